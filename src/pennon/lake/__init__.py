"""The lake: tables on storage, read and committed through Lance and the object store."""
