"""Storage: the storage root, file I/O on disks and object stores, the layout of a Lance table, its refs and links."""
