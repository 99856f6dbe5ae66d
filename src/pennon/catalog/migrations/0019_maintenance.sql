-- The size of each version, by which maintenance finds the tables that need it. It is unknown for earlier versions.
-- Triggers follow versions by the time of their record, because the clocks of clients differ.
ALTER TABLE versions ADD COLUMN recorded_at BIGINT;
ALTER TABLE versions ADD COLUMN fragments BIGINT;
ALTER TABLE versions ADD COLUMN small_fragments BIGINT;
ALTER TABLE versions ADD COLUMN row_count BIGINT;
ALTER TABLE versions ADD COLUMN deleted_rows BIGINT;
ALTER TABLE versions ADD COLUMN data_bytes BIGINT;
ALTER TABLE versions ADD COLUMN indices BIGINT;
ALTER TABLE versions ADD COLUMN unindexed_rows BIGINT;
ALTER TABLE versions ADD COLUMN stale_since BIGINT;
ALTER TABLE versions ADD COLUMN has_auto_cleanup INTEGER;
UPDATE versions SET recorded_at = created_at;
DROP INDEX versions_by_age;
CREATE INDEX versions_by_record ON versions (recorded_at);
CREATE TABLE maintenance_state (
    table_id TEXT NOT NULL REFERENCES tables (id) ON DELETE CASCADE,
    branch {key} NOT NULL,
    version BIGINT NOT NULL,
    small_fragments BIGINT NOT NULL,
    deleted_rows BIGINT NOT NULL,
    unindexed_rows BIGINT NOT NULL,
    kept_versions BIGINT NOT NULL,
    unindexed_since BIGINT,
    job_id TEXT,
    ended_at BIGINT,
    duration BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    due_at BIGINT,
    due TEXT NOT NULL,
    orphans_at BIGINT,
    PRIMARY KEY (table_id, branch)
);
CREATE INDEX maintenance_state_due ON maintenance_state (due_at) WHERE due_at IS NOT NULL;
INSERT INTO maintenance_state (
    table_id, branch, version, small_fragments, deleted_rows, unindexed_rows, kept_versions, duration, failures, due_at, due
)
SELECT table_id, branch, 0, 0, 0, 0, 0, 0, 0, 0, '' FROM versions GROUP BY table_id, branch;
CREATE TABLE maintenance_cursor (
    followed_until BIGINT NOT NULL
);
INSERT INTO maintenance_cursor (followed_until) SELECT COALESCE(MAX(recorded_at), 0) FROM versions;
CREATE TABLE maintenance_turns (
    namespace {key} PRIMARY KEY,
    claimed_at BIGINT NOT NULL
);
CREATE TABLE removals (
    id {key} PRIMARY KEY,
    table_id TEXT NOT NULL REFERENCES tables (id) ON DELETE CASCADE,
    branch {key} NOT NULL,
    versions TEXT NOT NULL,
    removed_at BIGINT NOT NULL,
    unlisted INTEGER NOT NULL
);
CREATE INDEX removals_by_table ON removals (table_id, branch);
