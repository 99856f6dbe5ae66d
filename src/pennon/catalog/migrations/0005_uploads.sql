CREATE TABLE uploads (
    id TEXT PRIMARY KEY,
    table_id TEXT NOT NULL REFERENCES tables (id) ON DELETE CASCADE,
    branch {key} NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE TABLE upload_parts (
    upload_id TEXT NOT NULL REFERENCES uploads (id) ON DELETE CASCADE,
    id {key} NOT NULL,
    fragments TEXT NOT NULL,
    arrow_schema TEXT NOT NULL,
    row_count BIGINT NOT NULL,
    overwrite INTEGER NOT NULL,
    PRIMARY KEY (upload_id, id)
);
