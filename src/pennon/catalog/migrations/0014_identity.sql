CREATE TABLE catalog_identity (
    singleton INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    root TEXT NOT NULL
);
CREATE TABLE lost_versions (
    table_id TEXT NOT NULL REFERENCES tables (id) ON DELETE CASCADE,
    branch {key} NOT NULL,
    version BIGINT NOT NULL,
    digest {key} NOT NULL,
    reason TEXT NOT NULL,
    lost_at BIGINT NOT NULL,
    PRIMARY KEY (table_id, branch, version, digest)
);
