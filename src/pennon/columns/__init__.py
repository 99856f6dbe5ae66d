"""Feature columns: how a schema declares them, the state of their rows, and what a backfill has to compute."""
