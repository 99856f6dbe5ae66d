"""Maintenance of tables: policies, table health, and the planning of compaction, index upkeep and cleanup."""
