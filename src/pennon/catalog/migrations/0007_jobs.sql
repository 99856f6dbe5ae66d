CREATE TABLE jobs (
    id {key} PRIMARY KEY,
    kind TEXT NOT NULL,
    table_id TEXT NOT NULL,
    branch {key} NOT NULL,
    target {key} NOT NULL,
    namespace {key} NOT NULL,
    name {key} NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    spec TEXT NOT NULL,
    submitted_by TEXT NOT NULL,
    context TEXT NOT NULL,
    retry_of TEXT,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    finished_at BIGINT,
    deadline_at BIGINT,
    paused_at BIGINT,
    worker TEXT,
    lease_until BIGINT,
    attempt INTEGER NOT NULL,
    takeovers INTEGER NOT NULL,
    wish TEXT,
    counters TEXT NOT NULL,
    result TEXT,
    failure TEXT,
    events BIGINT NOT NULL
);
CREATE UNIQUE INDEX jobs_one_at_a_time ON jobs (table_id, branch, target) WHERE state IN ('running', 'committing');
CREATE INDEX jobs_active ON jobs (state, lease_until) WHERE state IN ('pending', 'running', 'committing', 'paused');
CREATE INDEX jobs_by_table ON jobs (table_id, id);
CREATE INDEX jobs_by_end ON jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE TABLE job_events (
    job_id {key} NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT NOT NULL,
    unit TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (job_id, seq)
);
CREATE TABLE workers (
    id TEXT PRIMARY KEY,
    host TEXT NOT NULL,
    pid BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    heartbeat_at BIGINT NOT NULL,
    slots INTEGER NOT NULL,
    busy INTEGER NOT NULL,
    version TEXT NOT NULL
);
CREATE TABLE column_errors (
    id {key} PRIMARY KEY,
    table_id TEXT NOT NULL REFERENCES tables (id) ON DELETE CASCADE,
    branch {key} NOT NULL,
    column_name {key} NOT NULL,
    job_id TEXT NOT NULL,
    fragment_id BIGINT NOT NULL,
    row_offset BIGINT,
    row_id BIGINT,
    function TEXT NOT NULL,
    function_version TEXT NOT NULL,
    table_version BIGINT NOT NULL,
    error_type TEXT NOT NULL,
    error_message TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX column_errors_by_column ON column_errors (table_id, branch, column_name, id);
CREATE INDEX column_errors_by_job ON column_errors (job_id, id);
CREATE TABLE column_fills (
    table_id TEXT NOT NULL REFERENCES tables (id) ON DELETE CASCADE,
    column_key {key} NOT NULL,
    signature {key} NOT NULL,
    branch {key} NOT NULL,
    fragment_id BIGINT NOT NULL,
    version BIGINT NOT NULL,
    state BYTEA NOT NULL,
    PRIMARY KEY (table_id, column_key, signature, branch)
);
CREATE INDEX column_fills_by_fragment ON column_fills (table_id, branch, column_key, fragment_id);
