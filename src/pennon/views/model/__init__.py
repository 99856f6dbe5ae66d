"""The definition of a materialized view and its query."""
