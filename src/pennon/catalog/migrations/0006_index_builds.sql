CREATE TABLE index_builds (
    table_id TEXT NOT NULL REFERENCES tables (id) ON DELETE CASCADE,
    branch {key} NOT NULL,
    name {key} NOT NULL,
    column_name TEXT NOT NULL,
    kind TEXT NOT NULL,
    failure TEXT,
    alive_at BIGINT NOT NULL,
    PRIMARY KEY (table_id, branch, name)
);
