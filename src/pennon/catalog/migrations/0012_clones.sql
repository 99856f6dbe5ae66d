CREATE TABLE clones (
    clone_id TEXT PRIMARY KEY REFERENCES tables (id) ON DELETE CASCADE,
    origin_id TEXT NOT NULL REFERENCES tables (id)
);
CREATE INDEX clones_by_origin ON clones (origin_id);
