CREATE TABLE column_writes (
    table_id TEXT NOT NULL REFERENCES tables (id) ON DELETE CASCADE,
    branch {key} NOT NULL,
    version BIGINT NOT NULL,
    state BYTEA NOT NULL,
    PRIMARY KEY (table_id, branch, version)
);
