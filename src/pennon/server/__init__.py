"""The REST binding: one table of operations, and what is derived from it."""
