"""Pennon's own client, against a real server."""
