"""Tables in the catalog. The id of a table is its incarnation: a table that is created again has another id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, LiteralString

from pennon.catalog.locations import from_stored, is_absolute, to_stored
from pennon.catalog.properties import Properties, dump_properties, load_properties
from pennon.core.clock import now_millis
from pennon.core.identifiers import Identifier, child_key_range, identifier_of, key_of

if TYPE_CHECKING:
    from pennon.catalog.database.protocol import Connection, Row

#: The origin of a table: how it came into the catalog.
CREATED, REGISTERED, DISCOVERED, VIEW = "created", "registered", "discovered", "view"


@dataclass(frozen=True)
class Table:
    """A table as the catalog stores it."""

    id: str
    namespace: Identifier
    name: str
    location: str
    origin: str = CREATED
    managed: bool = True
    declared: bool = True
    properties: Properties = field(default_factory=dict)
    created_at: int = field(default_factory=now_millis)

    @property
    def identifier(self) -> Identifier:
        """The full identifier of the table."""
        return (*self.namespace, self.name)

    @property
    def is_view(self) -> bool:
        """Whether the table is a materialized view, which never changes."""
        return self.origin == VIEW


_SELECT: LiteralString = (
    "SELECT id, namespace, name, location, origin, managed, declared, properties, created_at FROM tables "
)


#: Matches locations on object stores.
_URI = "%://%"


def _table(connection: Connection, row: Row) -> Table:
    return Table(
        id=row[0],
        namespace=identifier_of(row[1]),
        name=row[2],
        location=from_stored(connection, row[3]),
        origin=row[4],
        managed=bool(row[5]),
        declared=bool(row[6]),
        properties=load_properties(row[7]),
        created_at=row[8],
    )


def find(connection: Connection, identifier: Sequence[str]) -> Table | None:
    """Return a table by its identifier."""
    row = connection.one(
        _SELECT + "WHERE namespace = ? AND name = ?",
        key_of(identifier[:-1]),
        identifier[-1],
    )
    return _table(connection, row) if row else None


def find_by_id(connection: Connection, table_id: str) -> Table | None:
    """Return a table by its id."""
    row = connection.one(
        _SELECT + "WHERE id = ?",
        table_id,
    )
    return _table(connection, row) if row else None


def find_by_location(connection: Connection, location: str) -> Table | None:
    """Return the table at a location."""
    row = connection.one(
        _SELECT + "WHERE location = ?",
        to_stored(connection, location),
    )
    return _table(connection, row) if row else None


def find_overlapping(connection: Connection, location: str) -> Table | None:
    """Return a table at a location, above it or below it."""
    parent = location
    while "/" in parent:
        found = find_by_location(connection, parent)
        if found is not None:
            return found
        parent = parent.rsplit("/", 1)[0]
    return find_inside(connection, location)


def find_inside(connection: Connection, location: str) -> Table | None:
    """Return a table below a location."""
    stored = to_stored(connection, location)
    row = connection.one(_SELECT + "WHERE location > ? AND location < ? LIMIT 1", stored + "/", stored + "0")
    if row is None and f"{connection.root}/".startswith(location + "/"):  # then every table of the root is below it
        relative: LiteralString = "WHERE (location < '/' OR location >= '0') AND location NOT LIKE ? LIMIT 1"
        row = connection.one(_SELECT + relative, _URI)
    return _table(connection, row) if row else None


def insert(connection: Connection, table: Table) -> bool:
    """Insert a table; false if its name or its location is taken.

    Raises ``ForeignKeyError`` if its namespace does not exist.
    """
    added = connection.run(
        "INSERT INTO tables (id, namespace, name, location, origin, managed, declared, properties, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        table.id,
        key_of(table.namespace),
        table.name,
        to_stored(connection, table.location),
        table.origin,
        int(table.managed),
        int(table.declared),
        dump_properties(table.properties),
        table.created_at,
    )
    return added == 1


def lock(connection: Connection, table_id: str) -> bool:
    """Lock the row of a table until the transaction ends; false if it does not exist."""
    return connection.run("UPDATE tables SET declared = declared WHERE id = ?", table_id) == 1


def delete(connection: Connection, table_id: str) -> bool:
    """Delete a table and its versions; raises ``ForeignKeyError`` if it has shallow clones."""
    return connection.run("DELETE FROM tables WHERE id = ?", table_id) == 1


def deregister(connection: Connection, table_id: str) -> bool:
    """Delete a table whose files stay, so that its shallow clones may stay too."""
    connection.run("DELETE FROM clones WHERE source_id = ?", table_id)
    return delete(connection, table_id)


def rename(connection: Connection, table_id: str, identifier: Sequence[str]) -> bool:
    """Rename a table, also into another namespace; false if the name is taken.

    Raises ``ForeignKeyError`` if that namespace does not exist.
    """
    namespace, name = key_of(identifier[:-1]), identifier[-1]
    if connection.one("SELECT 1 FROM tables WHERE namespace = ? AND name = ?", namespace, name):
        return False
    connection.run("UPDATE tables SET namespace = ?, name = ? WHERE id = ?", namespace, name, table_id)
    return True


def mark_written(connection: Connection, table_id: str) -> None:
    """Mark a declared table as written."""
    connection.run("UPDATE tables SET declared = 0 WHERE id = ? AND declared = 1", table_id)


def set_properties(connection: Connection, table_id: str, properties: Mapping[str, str] | None) -> None:
    """Replace the properties of a table."""
    connection.run("UPDATE tables SET properties = ? WHERE id = ?", dump_properties(properties), table_id)


def names(
    connection: Connection, namespace: Sequence[str], *, after: str, limit: int, include_declared: bool
) -> list[str]:
    """Return the names of a namespace's tables after a name, in order."""
    rows = connection.all(
        "SELECT name FROM tables WHERE namespace = ? AND name > ? AND declared <= ? ORDER BY name LIMIT ?",
        key_of(namespace),
        after,
        int(include_declared),
        limit,
    )
    return [row[0] for row in rows]


def identifiers_below(
    connection: Connection,
    scope: Sequence[str],
    *,
    after: tuple[str, str],
    limit: int,
    include_declared: bool,
) -> list[Identifier]:
    """Return the identifiers of all tables in and below a namespace after a (namespace, name), in order."""
    key = key_of(scope)
    _, high = child_key_range(key)
    low, name = max(after, (key, ""))
    if low >= high:
        return []  # the token is beyond the scope
    # Not a row comparison, (namespace, name) > (?, ?): SQLite would scan the index from the start of the scope.
    rows = connection.all(
        "SELECT namespace, name FROM tables WHERE namespace = ? AND name > ? AND declared <= ? "
        "ORDER BY namespace, name LIMIT ?",
        low,
        name,
        int(include_declared),
        limit,
    )
    if len(rows) < limit:
        rows += connection.all(
            "SELECT namespace, name FROM tables WHERE namespace > ? AND namespace < ? AND declared <= ? "
            "ORDER BY namespace, name LIMIT ?",
            low,
            high,
            int(include_declared),
            limit - len(rows),
        )
    return [(*identifier_of(namespace), name) for namespace, name in rows]


def all_below(connection: Connection, namespace: Sequence[str]) -> list[Table]:
    """Return every table in and below a namespace."""
    key = key_of(namespace)
    low, high = child_key_range(key)
    rows = connection.all(
        _SELECT + "WHERE namespace = ? OR (namespace > ? AND namespace < ?)",
        key,
        low,
        high,
    )
    return [_table(connection, row) for row in rows]


def in_namespace(connection: Connection, namespace: Sequence[str]) -> list[Table]:
    """Return every table directly in a namespace."""
    return [_table(connection, row) for row in connection.all(_SELECT + "WHERE namespace = ?", key_of(namespace))]


def outside_root(connection: Connection) -> list[Table]:
    """Return the tables outside the storage root."""
    rows = connection.all(_SELECT + "WHERE (location >= '/' AND location < '0') OR location LIKE ?", _URI)
    return [_table(connection, row) for row in rows if is_absolute(row[3])]


def relocate(connection: Connection, table_id: str, location: str) -> None:
    """Change the location of a table."""
    connection.run("UPDATE tables SET location = ? WHERE id = ?", to_stored(connection, location), table_id)
