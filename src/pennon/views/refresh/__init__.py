"""Planning of refreshes: changes of the sources, freshness, the plan, and new columns."""
