"""``pennon demo``: a walk through a real server."""
