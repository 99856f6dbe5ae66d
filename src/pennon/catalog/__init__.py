"""The catalog: namespaces, tables, versions, transactions and keys in SQL, on SQLite or PostgreSQL.

Each noun has a module, whose functions take the connection of their transaction.
"""

from pennon.catalog.database.connect import open_database
from pennon.catalog.database.protocol import (
    CommitOutcomeUnknownError,
    Connection,
    Database,
    ForeignKeyError,
    write_at_least_once,
)

__all__ = [
    "Connection",
    "Database",
    "ForeignKeyError",
    "CommitOutcomeUnknownError",
    "open_database",
    "write_at_least_once",
]
