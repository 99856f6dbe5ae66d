"""The catalog: namespaces, tables, versions, transactions and keys in SQL, on SQLite or PostgreSQL.

One module a noun; each function takes the connection of the transaction it is part of.
"""

from pennon.catalog.database.connect import open_database
from pennon.catalog.database.protocol import (
    CommitOutcomeUnknownError,
    Connection,
    Database,
    StillReferencedError,
    write_transaction,
)

__all__ = [
    "Connection",
    "Database",
    "StillReferencedError",
    "CommitOutcomeUnknownError",
    "open_database",
    "write_transaction",
]
