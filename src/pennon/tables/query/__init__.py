"""Queries of tables: SQL expressions of callers, scans, full-text search, and processes for demanding queries."""
