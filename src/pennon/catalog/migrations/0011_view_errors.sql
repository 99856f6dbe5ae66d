ALTER TABLE column_errors ADD COLUMN partition_value TEXT;
