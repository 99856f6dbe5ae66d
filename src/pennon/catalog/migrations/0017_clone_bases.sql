CREATE TABLE clone_bases (
    clone_id TEXT NOT NULL REFERENCES tables (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    PRIMARY KEY (clone_id, path)
);
INSERT INTO clone_bases (clone_id, path)
WITH RECURSIVE origins (clone_id, origin_id) AS (
    SELECT clone_id, origin_id FROM clones
    UNION
    SELECT origins.clone_id, clones.origin_id FROM origins JOIN clones ON clones.clone_id = origins.origin_id
)
SELECT origins.clone_id, tables.location FROM origins JOIN tables ON tables.id = origins.origin_id;
