"""The catalog: namespaces, tables, versions, transactions and keys in SQL, on SQLite or PostgreSQL.

One module a noun; each function takes the connection of the transaction it is part of.
"""

from pennon.catalog.database import Connection, Database, StillReferencedError, UnclearOutcomeError, write_note
from pennon.catalog.opening import open_database

__all__ = ["Connection", "Database", "StillReferencedError", "UnclearOutcomeError", "open_database", "write_note"]
