"""Maintenance jobs: compaction, index upkeep, cleanup, and the cycle of all three."""
