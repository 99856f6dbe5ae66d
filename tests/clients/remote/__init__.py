"""LanceDB's own remote client (``lancedb.connect("db://...")``), as it is published."""
