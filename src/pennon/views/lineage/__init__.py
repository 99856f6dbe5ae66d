"""Lineage: the sources of views, and the dependents of tables and columns."""
