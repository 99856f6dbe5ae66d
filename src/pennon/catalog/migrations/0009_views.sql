CREATE TABLE views (
    table_id TEXT PRIMARY KEY REFERENCES tables (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    definition TEXT NOT NULL,
    request TEXT NOT NULL,
    auto_refresh INTEGER NOT NULL,
    schedule TEXT,
    on_schema_change TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    watermark TEXT,
    refreshed_at BIGINT,
    refreshed_version BIGINT,
    stale_reason TEXT,
    failed_job TEXT
);
CREATE TABLE view_sources (
    view_id TEXT NOT NULL REFERENCES views (table_id) ON DELETE CASCADE,
    source_id {key} NOT NULL,
    columns TEXT NOT NULL,
    PRIMARY KEY (view_id, source_id)
);
CREATE INDEX view_sources_by_source ON view_sources (source_id, view_id);
