-- The commit that left a row without a value: its error is shown while the row is as that commit left it, and comes back
-- when the version is restored. Errors recorded before this have none, and are shown while their row is failed.
ALTER TABLE column_errors ADD COLUMN commit_version BIGINT;
