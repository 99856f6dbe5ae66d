"""Materialized views: definitions, lineage, and the planning of refreshes."""
