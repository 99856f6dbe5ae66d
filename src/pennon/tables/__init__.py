"""Tables on storage: datasets, writes, Arrow input, blobs, indexes, discovery and removal."""
