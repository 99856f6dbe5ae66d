"""The database interface of the catalog, and its implementations for SQLite and PostgreSQL."""
