-- Tables and columns take the names that Python and REST use for them. SQLite cannot rename an index, so indexes are
-- created again.
ALTER TABLE view_slots RENAME TO view_schedules;
ALTER TABLE dropped_places RENAME TO dropped_locations;
DROP INDEX column_fills_by_fragment;
ALTER TABLE column_fills RENAME TO column_states;
CREATE INDEX column_states_by_fragment ON column_states (table_id, branch, column_key, fragment_id);
DROP INDEX clones_by_origin;
ALTER TABLE clones RENAME COLUMN origin_id TO source_id;
CREATE INDEX clones_by_source ON clones (source_id);
ALTER TABLE jobs RENAME COLUMN wish TO stop_request;
ALTER TABLE jobs RENAME COLUMN events TO event_count;
ALTER TABLE index_builds RENAME COLUMN alive_at TO heartbeat_at;
ALTER TABLE garbage RENAME COLUMN leased_until TO lease_until;
ALTER TABLE idempotency RENAME COLUMN answer TO response;
