"""Endpoint functions: how operations are called whose bodies or responses are not plain JSON."""
