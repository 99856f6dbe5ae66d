"""Parsing, checking and rewriting the SQL of views; the Spark source uses it, too."""
