"""Refreshes of materialized views on Spark: the driver, its tasks and commits."""
