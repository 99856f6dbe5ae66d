-- What maintenance has done since the catalog was created, for metrics: the records of jobs are deleted after a time.
CREATE TABLE maintenance_totals (
    kind {key} NOT NULL,
    outcome {key} NOT NULL,
    runs BIGINT NOT NULL,
    millis BIGINT NOT NULL,
    bytes_rewritten BIGINT NOT NULL,
    rows_indexed BIGINT NOT NULL,
    versions_removed BIGINT NOT NULL,
    bytes_removed BIGINT NOT NULL,
    PRIMARY KEY (kind, outcome)
);
