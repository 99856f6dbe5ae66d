CREATE TABLE namespaces (
    path {key} PRIMARY KEY,
    parent {key} REFERENCES namespaces (path),
    name {key} NOT NULL,
    properties TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (parent, name)
);
INSERT INTO namespaces (path, parent, name, properties, created_at) VALUES ('', NULL, '', '{{}}', 0);
CREATE TABLE tables (
    id TEXT PRIMARY KEY,
    namespace {key} NOT NULL REFERENCES namespaces (path),
    name {key} NOT NULL,
    location {key} NOT NULL UNIQUE,
    origin TEXT NOT NULL,
    managed INTEGER NOT NULL,
    declared INTEGER NOT NULL,
    properties TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (namespace, name)
);
CREATE TABLE versions (
    table_id TEXT NOT NULL REFERENCES tables (id) ON DELETE CASCADE,
    branch {key} NOT NULL,
    version BIGINT NOT NULL,
    manifest TEXT NOT NULL,
    staged TEXT,
    size BIGINT NOT NULL,
    e_tag TEXT,
    digest TEXT NOT NULL,
    metadata TEXT NOT NULL,
    pending INTEGER NOT NULL,
    transaction_id TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (table_id, branch, version)
);
CREATE TABLE transactions (
    id TEXT PRIMARY KEY,
    operation TEXT NOT NULL,
    object {key} NOT NULL,
    status TEXT NOT NULL,
    properties TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX transactions_by_age ON transactions (created_at);
