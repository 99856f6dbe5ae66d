CREATE TABLE view_slots (
    view_id TEXT PRIMARY KEY REFERENCES views (table_id) ON DELETE CASCADE,
    schedule TEXT NOT NULL,
    due_at BIGINT NOT NULL
);
