"""Lance tables in Spark: a source for ``spark.read`` and ``df.write``, and SQL on tables of a server.

In your own session::

    import pennon.spark

    pennon.spark.register(spark)
    orders = spark.read.format("pennon").option("url", "http://127.0.0.1:2333").load("shop.orders")

With the location of a table, as in Pennon's worker::

    from pennon.spark import Snapshot, create_view, read, sql

    snapshot = Snapshot(location, storage_options, branch, version)
    create_view(spark, "orders", snapshot, columns=["id", "price"], row_ids=[3, 4, 5], with_row_id=True)
    sql(spark, "SELECT o.id FROM shop.orders AS o", {"shop.orders": snapshot})

Executors import this package, so its names are loaded lazily.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.spark.session import create_view, read, register
    from pennon.spark.sql_query import sql
    from pennon.tables.snapshots import Snapshot

__all__ = ["Snapshot", "create_view", "read", "register", "sql"]

_HOMES = {
    "Snapshot": "pennon.tables.snapshots",
    "create_view": "pennon.spark.session",
    "read": "pennon.spark.session",
    "register": "pennon.spark.session",
    "sql": "pennon.spark.sql_query",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
