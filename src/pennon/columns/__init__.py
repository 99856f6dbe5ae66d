"""Feature columns: their declarations in a schema, the states of their rows, and the planning of backfills."""
