CREATE TABLE garbage (
    location {key} PRIMARY KEY,
    table_id TEXT NOT NULL,
    leased_until BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
