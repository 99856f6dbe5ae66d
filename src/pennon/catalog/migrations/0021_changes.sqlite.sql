-- The log of changes, from which caches of reads learn what to forget. Triggers write it, so that no statement that
-- changes a cached row can be missed, not even one by an administrator.
CREATE TABLE changes (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    subject TEXT NOT NULL
);
-- Rows before "pruned" are deleted. Rows before "next" are deleted next; it was set at "recorded_at".
CREATE TABLE change_horizon (
    singleton INTEGER PRIMARY KEY,
    pruned BIGINT NOT NULL,
    next BIGINT NOT NULL,
    recorded_at BIGINT NOT NULL
);
INSERT INTO change_horizon (singleton, pruned, next, recorded_at) VALUES (1, 0, 0, 0);
CREATE TRIGGER tables_inserted AFTER INSERT ON tables BEGIN
    INSERT INTO changes (subject) VALUES ('table ' || NEW.namespace || ' ' || NEW.name);
END;
CREATE TRIGGER tables_deleted AFTER DELETE ON tables BEGIN
    INSERT INTO changes (subject) VALUES ('table ' || OLD.namespace || ' ' || OLD.name);
END;
CREATE TRIGGER tables_updated AFTER UPDATE ON tables
-- Not for updates that only lock the row.
WHEN (OLD.namespace, OLD.name, OLD.location, OLD.origin, OLD.managed, OLD.declared, OLD.properties)
    IS NOT (NEW.namespace, NEW.name, NEW.location, NEW.origin, NEW.managed, NEW.declared, NEW.properties)
BEGIN
    INSERT INTO changes (subject) VALUES ('table ' || OLD.namespace || ' ' || OLD.name);
    INSERT INTO changes (subject) SELECT 'table ' || NEW.namespace || ' ' || NEW.name
        WHERE (OLD.namespace, OLD.name) IS NOT (NEW.namespace, NEW.name);
END;
CREATE TRIGGER versions_inserted AFTER INSERT ON versions BEGIN
    INSERT INTO changes (subject) VALUES ('versions ' || NEW.table_id);
END;
CREATE TRIGGER versions_updated AFTER UPDATE ON versions BEGIN
    INSERT INTO changes (subject) VALUES ('versions ' || NEW.table_id);
END;
CREATE TRIGGER versions_deleted AFTER DELETE ON versions BEGIN
    INSERT INTO changes (subject) VALUES ('versions ' || OLD.table_id);
END;
CREATE TRIGGER namespaces_inserted AFTER INSERT ON namespaces BEGIN
    INSERT INTO changes (subject) VALUES ('namespace ' || NEW.path);
END;
CREATE TRIGGER namespaces_updated AFTER UPDATE ON namespaces BEGIN
    INSERT INTO changes (subject) VALUES ('namespace ' || OLD.path);
    INSERT INTO changes (subject) SELECT 'namespace ' || NEW.path WHERE OLD.path IS NOT NEW.path;
END;
CREATE TRIGGER namespaces_deleted AFTER DELETE ON namespaces BEGIN
    INSERT INTO changes (subject) VALUES ('namespace ' || OLD.path);
END;
CREATE TRIGGER keys_inserted AFTER INSERT ON keys BEGIN
    INSERT INTO changes (subject) VALUES ('keys'), ('key ' || NEW.digest);
END;
CREATE TRIGGER keys_updated AFTER UPDATE ON keys BEGIN
    INSERT INTO changes (subject) VALUES ('key ' || OLD.digest), ('key ' || NEW.digest);
END;
CREATE TRIGGER keys_deleted AFTER DELETE ON keys BEGIN
    INSERT INTO changes (subject) VALUES ('keys'), ('key ' || OLD.digest);
END;
