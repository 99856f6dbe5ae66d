-- The log of changes, from which caches of reads learn what to forget. Triggers write it, so that no statement that
-- changes a cached row can be missed, not even one by an administrator. Transactions commit in another order than they
-- insert, so a row has the id of its transaction: a snapshot tells which transactions a reader has seen.
CREATE TABLE changes (
    transaction_id XID8 NOT NULL DEFAULT pg_current_xact_id(),
    subject TEXT NOT NULL
);
CREATE INDEX changes_by_transaction ON changes (transaction_id);
-- Rows of transactions before "pruned" are deleted. Rows before "next" are deleted next; it was set at "recorded_at".
CREATE TABLE change_horizon (
    singleton INTEGER PRIMARY KEY,
    pruned XID8 NOT NULL,
    next XID8 NOT NULL,
    recorded_at BIGINT NOT NULL
);
INSERT INTO change_horizon (singleton, pruned, next, recorded_at) VALUES (1, '0', '0', 0);
CREATE FUNCTION log_table_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO changes (subject) VALUES ('table ' || OLD.namespace || ' ' || OLD.name);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO changes (subject) VALUES ('table ' || NEW.namespace || ' ' || NEW.name);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER tables_changed AFTER INSERT OR DELETE ON tables
    FOR EACH ROW EXECUTE FUNCTION log_table_change();
-- Not for updates that only lock the row.
CREATE TRIGGER tables_updated AFTER UPDATE ON tables
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION log_table_change();
-- Once per statement: a dropped table may have many versions.
CREATE FUNCTION log_version_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO changes (subject) SELECT DISTINCT 'versions ' || table_id FROM changed;
    RETURN NULL;
END $$;
CREATE TRIGGER versions_inserted AFTER INSERT ON versions REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION log_version_changes();
CREATE TRIGGER versions_updated AFTER UPDATE ON versions REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION log_version_changes();
CREATE TRIGGER versions_deleted AFTER DELETE ON versions REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION log_version_changes();
CREATE FUNCTION log_namespace_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO changes (subject) VALUES ('namespace ' || OLD.path);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO changes (subject) VALUES ('namespace ' || NEW.path);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER namespaces_changed AFTER INSERT OR UPDATE OR DELETE ON namespaces
    FOR EACH ROW EXECUTE FUNCTION log_namespace_change();
CREATE FUNCTION log_key_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO changes (subject) VALUES ('keys');
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO changes (subject) VALUES ('key ' || OLD.digest);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO changes (subject) VALUES ('key ' || NEW.digest);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER keys_changed AFTER INSERT OR UPDATE OR DELETE ON keys
    FOR EACH ROW EXECUTE FUNCTION log_key_change();
