-- Files of acknowledged commits that are written but perhaps not flushed to disk: after a power failure they are written
-- again. Without a reference to the table, whose files may stay when its record is removed.
CREATE TABLE unflushed_files (
    table_id {key} NOT NULL,
    path {key} NOT NULL,
    location TEXT NOT NULL,
    content BYTEA NOT NULL,
    PRIMARY KEY (table_id, path)
);
