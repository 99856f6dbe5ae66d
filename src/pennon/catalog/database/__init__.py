"""What the catalog asks of a database, and the two databases that provide it: SQLite and PostgreSQL."""
