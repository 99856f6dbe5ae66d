"""Dependents of tables and columns: views, feature columns and clones that a change would break."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidTableStateError, PermissionDeniedError, TableColumnNotFoundError

from pennon.catalog import clones, tables, views
from pennon.core.caller import Principal, Role, current_caller
from pennon.core.identifiers import format_identifier
from pennon.services import Services
from pennon.tables.field_paths import find_field
from pennon.views import pins
from pennon.views.lineage import dependents
from pennon.views.model.definition import Definition, Source

if TYPE_CHECKING:
    import pyarrow as pa

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.catalog.views import Dependent
    from pennon.storage.file_io import FileIO

logger = logging.getLogger("pennon.namespace")


@dataclass
class Dropped:
    """Tables that a transaction dropped, and the pins to release once it is durable."""

    tables: list[Table] = field(default_factory=list)
    #: Ids of dropped views and clones, each with the location of a table whose versions it pinned.
    pinned: list[tuple[str, str]] = field(default_factory=list)

    def clear(self) -> None:
        """Start over, because the transaction is retried."""
        self.tables.clear()
        self.pinned.clear()


@dataclass(frozen=True)
class Dependents:
    """Finds the dependents of tables and columns, and either refuses the change or drops them too."""

    services: Services

    def check(
        self,
        what: str,
        needed_by: Sequence[Dependent],
        principal: Principal,
        *,
        cascade: bool = False,
        columns: Sequence[str] = (),
    ) -> None:
        """Refuse to drop what views or columns need, unless cascade is set and the principal may drop the views."""
        if not cascade and (needed_by or columns):
            names = [*(f"column {name!r}" for name in columns), *_visible_names(needed_by, principal)]
            raise InvalidTableStateError(
                f"{what} is needed by {', '.join(names)}. Drop what needs it first, or send cascade: true."
            )
        for view in needed_by:
            role = principal.role_on(view.identifier[:-1])
            if role is None or role < Role.WRITER:
                raise PermissionDeniedError(f"{what} is needed by a view that this key may not drop.")

    def check_replacement(self, table: Table, branch: str, schema: pa.Schema) -> None:
        """Refuse to replace all rows by rows that lack a column that views read, or have it with another type."""
        if branch:
            return  # views read main only
        needed_by = self.services.database.read(lambda connection: views.dependents(connection, table.id))
        if not needed_by:
            return
        stored = self.services.datasets.at(table, "", None).schema
        for view in needed_by:
            for path in view.columns:
                before, after = _type_at(stored, path), _type_at(schema, path)
                if before is not None and before != after:
                    reader = _visible_names([view], current_caller().principal)[0]
                    raise InvalidTableStateError(
                        f"Column {path!r} is needed by {reader} as {before}, but the new rows have "
                        f"{'no such column' if after is None else f'it as {after}'}. Drop what needs it first."
                    )

    def views_over(self, connection: Connection, to_drop: Sequence[Table]) -> list[Dependent]:
        """Return the views that read tables, directly or through other views, the topmost first.

        Views among the tables themselves are left out.
        """
        own = {table.id for table in to_drop}
        lowest = [view for table in to_drop for view in views.dependents(connection, table.id)]
        return [view for view in dependents.with_downstream_views(connection, lowest) if view.view_id not in own]

    def drop_views_over(self, connection: Connection, what: str, dropped: Dropped, *, cascade: bool) -> None:
        """Drop the views over dropped tables, or refuse the whole transaction.

        Call this after the drop: a new view locks its sources, so the drop has waited until the view is visible.
        """
        above = self.views_over(connection, dropped.tables)
        self.check(what, above, current_caller().principal, cascade=cascade)
        self.drop_views(connection, above, dropped)

    def drop(self, connection: Connection, to_drop: Sequence[Table], dropped: Dropped) -> None:
        """Remove tables from the catalog inside a transaction, and add them to what was dropped."""
        self._refuse_clones_of(connection, to_drop)
        for table in to_drop:
            if (origin := clones.source_of(connection, table.id)) is not None:
                dropped.pinned.append((table.id, origin.location))
                clones.delete(connection, table.id)  # so that its origin may be dropped before it
            if table.is_view and (view := views.find(connection, table.id)) is not None:
                for source in Definition.from_json(view.definition).sources:
                    found = tables.find_by_id(connection, source.table_id)
                    dropped.pinned += [(table.id, found.location)] if found is not None else []
        for table in to_drop:
            if tables.delete(connection, table.id):
                self.services.removal.schedule(connection, table)
                dropped.tables.append(table)

    def drop_views(self, connection: Connection, to_drop: Collection[Dependent], dropped: Dropped) -> None:
        """Remove views from the catalog inside a transaction, and add them to what was dropped."""
        found = [tables.find_by_id(connection, view.view_id) for view in to_drop]
        self.drop(connection, [table for table in found if table is not None], dropped)

    def clean_up(self, dropped: Dropped) -> None:
        """Remove the files of dropped tables, and release the versions that dropped views and clones pinned."""
        locations = {table.location for table in dropped.tables}
        for view_id, location in dropped.pinned:
            if location not in locations:
                try:
                    pins.release(self.services.storage_root.folder(location), view_id)
                except Exception:  # the drop is durable, so a failure of storage must not fail the request
                    logger.exception(
                        "could not release the versions at %s that a dropped view or clone pinned", location
                    )
        self.services.removal.remove((table.location, table.id) for table in dropped.tables)

    def pin_fixed_versions(self, view_id: str, definition: Definition) -> None:
        """Pin the versions of sources that a view names in its query; refreshes pin the other versions."""
        for source in definition.sources:
            if source.version is not None and (folder := self._folder_of(source)) is not None:
                pins.pin(folder, view_id, source.version)

    def release_pins(self, view_id: str, definition: Definition) -> None:
        """Release all versions that a view pinned."""
        for source in definition.sources:
            if (folder := self._folder_of(source)) is not None:
                pins.release(folder, view_id)

    def _refuse_clones_of(self, connection: Connection, to_drop: Sequence[Table]) -> None:
        """Refuse to drop tables whose files shallow clones read, unless the clones are dropped with them."""
        own = {table.id for table in to_drop}
        for table in to_drop:
            remaining = [clone for clone in clones.of(connection, table.id) if clone.id not in own]
            if remaining:
                raise InvalidTableStateError(
                    f"Table {format_identifier(table.identifier)!r} has shallow clones, which read its files "
                    f"({len(remaining)} of them). Drop those first."
                )

    def _folder_of(self, source: Source) -> FileIO | None:
        found = self.services.database.read(lambda connection: tables.find_by_id(connection, source.table_id))
        return None if found is None else self.services.storage_root.folder(found.location)


def wants_cascade(request: object) -> bool:
    """Return whether a request asks to drop what depends on its object. Requests of the specification cannot."""
    return bool(getattr(request, "cascade", None))


def _type_at(schema: pa.Schema, path: str) -> pa.DataType | None:
    try:
        kind: pa.DataType = find_field(schema, path).type
    except TableColumnNotFoundError:
        return None
    return kind


def _visible_names(found: Sequence[Dependent], principal: Principal) -> list[str]:
    """Return the names of views, and the number of those that a principal may not see."""
    visible = [view for view in found if principal.role_on(view.identifier[:-1]) is not None]
    hidden = len(found) - len(visible)
    names = [f"view {format_identifier(view.identifier)!r}" for view in visible]
    return [*names, *([f"{hidden} that this key may not see"] if hidden else [])]
