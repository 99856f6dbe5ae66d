"""Resolution of identifiers to tables, views, tags and branches, or to the error that names what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableBranchNotFoundError,
    TableNotFoundError,
    TableTagNotFoundError,
)

from pennon.catalog import ForeignKeyError, namespaces, tables, views
from pennon.catalog.changes import table_subject
from pennon.catalog.versions import MAIN
from pennon.commits.view_protection import refuse_view_write
from pennon.core.caller import current_caller
from pennon.core.errors import suggest
from pennon.core.identifiers import Identifier, format_identifier, is_within
from pennon.services import Services
from pennon.storage import refs

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.catalog.views import View
    from pennon.storage.file_io import FileIO

#: How many neighbouring names are searched for the one that was probably meant.
_SIMILAR_NAMES = 200


@dataclass(frozen=True)
class TableResolver:
    """Finds what requests name. Operations share one."""

    services: Services

    def table(self, identifier: Identifier) -> Table:
        """Return a table, or raise the error that names what is missing."""
        if not identifier:
            raise InvalidInputError("The root namespace is not a table; name a table.")
        found = self.find(identifier)
        if found is None:
            raise self.missing_table(identifier)
        return found

    def find(self, identifier: Identifier) -> Table | None:
        """Return a table of the catalog, or one that only the root folder has, or None."""
        found = self.services.database.cached_read(table_subject(identifier), tables.find, identifier)
        if found is not None and self.services.discovery.forget_if_gone_locally(found):
            found = None
        if found is None and len(identifier) == 1:
            found = self.services.discovery.find(identifier[0])
        return found

    def find_by_id(self, table_id: str) -> Table | None:
        """Return the table with an id, or None if it was dropped."""
        return self.services.database.read(lambda connection: tables.find_by_id(connection, table_id))

    def writable_table(self, identifier: Identifier) -> Table:
        """Return a table whose rows callers may change, or raise the error that says why they may not."""
        table = self.table(identifier)
        refuse_view_write(table)
        return table

    def view(self, identifier: Identifier) -> tuple[Table, View]:
        """Return a materialized view and its table, or raise the error that names what is missing."""
        table = self.table(identifier)
        view = self.services.database.read(lambda connection: views.find(connection, table.id))
        if view is None:
            raise InvalidInputError(f"{format_identifier(identifier)!r} is a table, not a materialized view.")
        return table, view

    def tag(self, table: Table, name: str) -> refs.Ref:
        """Return a tag of a table."""
        known = {ref.name: ref for ref in refs.tags(self.folder(table))}
        if name not in known:
            shown = format_identifier(table.identifier)
            raise TableTagNotFoundError(f"Table {shown!r} has no tag {name!r}.{suggest(name, known)}")
        return known[name]

    def branches(self, table: Table) -> dict[str, refs.Ref]:
        """Return the branches of a table by name."""
        return {ref.name: ref for ref in refs.branches(self.folder(table))}

    def folder(self, table: Table) -> FileIO:
        """Return the folder of a table on storage."""
        return self.services.storage_root.folder(table.location)

    def is_only_declared(self, table: Table) -> bool:
        """Return whether a table has no version yet."""
        return table.declared and self.services.history.latest(table, MAIN) is None

    @contextmanager
    def not_found_if_dropped(self, table: Table) -> Iterator[None]:
        """Raise that a table was dropped if that is why something failed inside the block."""
        try:
            yield
        except (LanceNamespaceError, ForeignKeyError, OSError, RuntimeError) as error:
            if self.find_by_id(table.id) is None:
                raise TableNotFoundError(f"Table {format_identifier(table.identifier)!r} was dropped.") from error
            raise

    def list_names(self, namespace: Identifier, read: Callable[[Connection], list[str]]) -> list[str]:
        """Return the names that a query finds in a namespace, if the caller may read the namespace."""
        principal = current_caller().principal
        if not principal.may_traverse(namespace):
            raise missing_namespace(namespace)
        found = self.services.database.read(read) if principal.role_on(namespace) is not None else []
        if not found and not self.services.database.read(lambda connection: namespaces.exists(connection, namespace)):
            raise self.missing_namespace(namespace)
        return found

    def missing_table(self, identifier: Identifier) -> NamespaceNotFoundError | TableNotFoundError:
        """Return the error for a table that does not exist."""
        return self.services.database.read(lambda connection: missing_table(connection, identifier))

    def missing_namespace(self, namespace: Identifier) -> NamespaceNotFoundError:
        """Return the error for a namespace that does not exist."""
        return self.services.database.read(lambda connection: missing_namespace(namespace, connection))


def readable_scopes(namespace: Identifier) -> list[Identifier]:
    """Return the outermost namespaces in a namespace that the caller may read."""
    inside = {namespace if is_within(namespace, scope) else scope for scope in current_caller().principal.scopes()}
    visible = [scope for scope in inside if is_within(scope, namespace)]
    return [scope for scope in visible if not any(scope != other and is_within(scope, other) for other in visible)]


def missing_branch(name: str, known: dict[str, refs.Ref]) -> TableBranchNotFoundError:
    """Return the error for a branch that a table does not have."""
    return TableBranchNotFoundError(f"The table has no branch {name!r}.{suggest(name, known)}")


def missing_table(connection: Connection, identifier: Identifier) -> NamespaceNotFoundError | TableNotFoundError:
    """Return the error for a table that does not exist, or for its namespace if that does not exist either."""
    parent = identifier[:-1]
    if not namespaces.exists(connection, parent):
        return missing_namespace(parent, connection)
    page = partial(tables.names, connection, parent, limit=_SIMILAR_NAMES, include_declared=True)
    hint = suggest(identifier[-1], _similar(identifier[-1], page))
    return TableNotFoundError(f"Table {format_identifier(identifier)!r} does not exist.{hint}")


def missing_namespace(namespace: Identifier, connection: Connection | None = None) -> NamespaceNotFoundError:
    """Return the error for a namespace that does not exist. With a connection, it suggests a similar name.

    It never suggests names that the caller may not see.
    """
    visible = current_caller().principal.role_on(namespace[:-1]) is not None
    hint = ""
    if connection and visible:
        page = partial(namespaces.children, connection, namespace[:-1], limit=_SIMILAR_NAMES)
        hint = suggest(namespace[-1], _similar(namespace[-1], page))
    return NamespaceNotFoundError(f"Namespace {format_identifier(namespace)!r} does not exist.{hint}")


def _similar(name: str, page: Callable[..., list[str]]) -> list[str]:
    """Return candidates for a misspelled name: names with the same beginning, then the first names of all."""
    return [*page(after=name[: len(name) // 2]), *page(after="")]
