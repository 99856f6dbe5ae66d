"""Backfills on Spark: the driver, its tasks, checkpoints and commits."""
