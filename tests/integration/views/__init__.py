"""Materialized views: what they are asked for, how they are refreshed, and what is kept from breaking them."""
