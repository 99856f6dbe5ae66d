"""Changes that others depend on: who would lose something is named, or goes with it when that is asked for."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import InvalidTableStateError, PermissionDeniedError, TableColumnNotFoundError

from pennon.catalog import clones, tables, views
from pennon.core.caller import Principal, Role, current_caller
from pennon.core.identifiers import format_identifier
from pennon.namespace.operations import Operations
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
    """What left the catalog in a transaction, and what is to be done once that is durable."""

    tables: list[Table] = field(default_factory=list)
    #: Views that are gone, each with the location of a source.
    pinned: list[tuple[str, str]] = field(default_factory=list)

    def clear(self) -> None:
        """Forget what a transaction that is run again had dropped."""
        self.tables.clear()
        self.pinned.clear()


class DependentOperations(Operations):
    """Finds what depends on tables and columns, refuses what would break it, or drops it too."""

    def settle(
        self,
        what: str,
        views_needing: Sequence[Dependent],
        principal: Principal,
        *,
        cascade: bool,
        columns: Sequence[str] = (),
    ) -> None:
        """Refuse to take away what others need, unless they may go with it and the caller may drop them."""
        if not cascade and (views_needing or columns):
            names = [*(f"column {name!r}" for name in columns), *_shown(views_needing, principal)]
            raise InvalidTableStateError(
                f"{what} is needed by {', '.join(names)}. Drop what needs it first, or send cascade: true."
            )
        for view in views_needing:
            role = principal.role_on(view.identifier[:-1])
            if role is None or role < Role.WRITER:
                raise PermissionDeniedError(f"{what} is needed by a view that this key may not drop.")

    def refuse_other_columns(self, table: Table, branch: str, schema: pa.Schema) -> None:
        """Refuse to replace all rows by others without a column that views read, or with another type of it."""
        needing = [] if branch else self._read(lambda connection: views.dependents(connection, table.id))
        stored = self.services.datasets.at(table, "", None).schema if needing else None
        for view in needing:
            for path in view.columns:
                before, after = _type_at(stored, path), _type_at(schema, path)
                if before is not None and before != after:
                    reader = _shown([view], current_caller().principal)[0]
                    raise InvalidTableStateError(
                        f"Column {path!r} is needed by {reader} as {before}, but the new rows have "
                        f"{'no such column' if after is None else f'it as {after}'}. Drop what needs it first."
                    )

    def _views_over(self, connection: Connection, doomed: Sequence[Table]) -> list[Dependent]:
        """Return the views over tables, and over these, without the tables themselves; the topmost first."""
        own = {table.id for table in doomed}
        lowest = [view for table in doomed for view in views.dependents(connection, table.id)]
        return [view for view in dependents.with_views_above(connection, lowest) if view.view_id not in own]

    def _drop_views_over(self, connection: Connection, what: str, dropped: Dropped, *, cascade: bool) -> None:
        """Drop the views over what was dropped, or refuse the whole.

        Only now are they looked for: whoever makes a view holds its sources, and the drop has waited for that.
        """
        above = self._views_over(connection, dropped.tables)
        self.settle(what, above, current_caller().principal, cascade=cascade)
        self.drop_views(connection, above, dropped)

    def _drop(self, connection: Connection, doomed: Sequence[Table], dropped: Dropped) -> None:
        """Remove tables from the catalog inside a transaction, and remember what follows."""
        self._refuse_clones_of(connection, doomed)
        for table in doomed:
            if (origin := clones.origin_of(connection, table.id)) is not None:
                dropped.pinned.append((table.id, origin.location))
                clones.delete(connection, table.id)  # so that its origin may go before it
            if table.is_view and (view := views.find(connection, table.id)) is not None:
                for source in Definition.from_json(view.definition).sources:
                    found = tables.find_by_id(connection, source.table_id)
                    dropped.pinned += [(table.id, found.location)] if found is not None else []
        for table in doomed:
            if tables.delete(connection, table.id):
                self.services.removal.schedule(connection, table)
                dropped.tables.append(table)

    def _refuse_clones_of(self, connection: Connection, doomed: Sequence[Table]) -> None:
        """Refuse to take away files that shallow clones read; clones that go too do not count."""
        going = {table.id for table in doomed}
        for table in doomed:
            staying = [clone for clone in clones.of(connection, table.id) if clone.id not in going]
            if staying:
                raise InvalidTableStateError(
                    f"Table {format_identifier(table.identifier)!r} has shallow clones, which read its files "
                    f"({len(staying)} of them). Drop those first."
                )

    def drop_views(self, connection: Connection, doomed: Collection[Dependent], dropped: Dropped) -> None:
        """Remove views from the catalog inside a transaction, and remember what follows."""
        found = [tables.find_by_id(connection, view.view_id) for view in doomed]
        self._drop(connection, [table for table in found if table is not None], dropped)

    def pin_fixed_versions(self, view_id: str, definition: Definition) -> None:
        """Keep the versions of its sources that a view reads for good; the others are kept by its refreshes."""
        for source in definition.sources:
            if source.version is not None and (folder := self._folder_of(source)) is not None:
                pins.pin(folder, view_id, source.version)

    def release_pins(self, view_id: str, definition: Definition) -> None:
        """Give up all versions that a view needed."""
        for source in definition.sources:
            if (folder := self._folder_of(source)) is not None:
                pins.release(folder, view_id)

    def _folder_of(self, source: Source) -> FileIO | None:
        found = self._read(lambda connection: tables.find_by_id(connection, source.table_id))
        return None if found is None else self.services.storage_root.folder(found.location)

    def _finish(self, dropped: Dropped) -> None:
        """Remove the files of what was dropped, and give up the versions that dropped views needed."""
        gone = {table.location for table in dropped.tables}
        for view_id, location in dropped.pinned:
            if location not in gone:
                try:
                    pins.release(self.services.storage_root.folder(location), view_id)
                except Exception:  # what was dropped is dropped, whatever storage says
                    logger.exception("the versions at %s that a dropped view or clone needed stay pinned", location)
        self.services.removal.remove((table.location, table.id) for table in dropped.tables)


def _type_at(schema: pa.Schema, path: str) -> pa.DataType | None:
    try:
        return find_field(schema, path).type
    except TableColumnNotFoundError:
        return None


def wants_cascade(request: Any) -> bool:
    """Tell whether a request says what is to happen to what depends on its object."""
    return bool(getattr(request, "cascade", None))


def _shown(found: Sequence[Dependent], principal: Principal) -> list[str]:
    seen = [view for view in found if principal.role_on(view.identifier[:-1]) is not None]
    hidden = len(found) - len(seen)
    names = [f"view {format_identifier(view.identifier)!r}" for view in seen]
    return [*names, *([f"{hidden} that this key may not see"] if hidden else [])]
