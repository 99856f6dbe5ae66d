"""Queries of tables: checks of SQL expressions, scans, full-text search, and query processes."""
