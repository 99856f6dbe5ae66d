"""What a refresh has to do: changes of the sources, freshness, the plan, and new columns."""
