"""Commits: the commit authority, the manifests it checks, and the versions of a table."""
