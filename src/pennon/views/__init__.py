"""What a materialized view is: its definition, its lineage, and what changed in its sources."""
