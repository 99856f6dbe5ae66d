CREATE INDEX versions_by_age ON versions (created_at);
