"""Environments of functions: building, caching and deploying them, and trying functions in them."""
