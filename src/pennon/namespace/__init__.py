"""Pennon as a ``LanceNamespace``: every operation as a plain method, no HTTP and no SQL. One module a noun."""

from pennon.namespace.service import PennonNamespace

__all__ = ["PennonNamespace"]
