"""The published clients, unmodified, against a running server."""
