"""What views are computed from, and what is computed from tables and columns."""
