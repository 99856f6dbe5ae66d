"""The table of operations, and what is derived from it."""
