CREATE TABLE idempotency (
    principal {key} NOT NULL,
    key {key} NOT NULL,
    fingerprint TEXT NOT NULL,
    transaction_id TEXT,
    status INTEGER,
    answer TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (principal, key)
);
CREATE INDEX idempotency_by_age ON idempotency (created_at);
