"""The catalog: namespaces, tables, versions, transactions and keys in SQL, on SQLite or PostgreSQL.

One module a noun; each function takes the connection of the transaction it is part of.
"""

from pennon.catalog.database.connect import open_database
from pennon.catalog.database.protocol import Connection, Database, StillReferencedError, UnclearOutcomeError, write_note

__all__ = ["Connection", "Database", "StillReferencedError", "UnclearOutcomeError", "open_database", "write_note"]
