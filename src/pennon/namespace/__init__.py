"""Pennon as a ``LanceNamespace``: every operation as a plain method, no HTTP and no SQL. One module a noun."""

from lance_namespace import register_namespace_impl

from pennon.namespace.namespace import PennonNamespace

# From here on, ``lance_namespace.connect("pennon", {"directory": …})`` is Pennon in this process.
register_namespace_impl("pennon", "pennon.namespace.PennonNamespace")

__all__ = ["PennonNamespace"]
