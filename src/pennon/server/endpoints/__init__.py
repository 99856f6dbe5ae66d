"""Endpoints: operations whose bodies, responses or clients need more than a method of the namespace."""
