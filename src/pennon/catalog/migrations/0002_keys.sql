CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    name {key} NOT NULL UNIQUE,
    digest TEXT NOT NULL UNIQUE,
    role TEXT NOT NULL,
    namespace {key} NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);
