"""SQL of views: reading, checking and rewriting it. The Spark source uses it, too."""
