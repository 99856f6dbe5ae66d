"""The definition of a materialized view, and the query it is made from."""
