"""What a table's versions may read: files of the table itself, and of the tables a clone of it was made from.

A manifest may name base paths, folders of other tables that hold some of its files, and Lance reads from them with the
server's rights. Clients write manifests, so what one names is checked when it is committed, and again when it is
opened: whoever can write to a table's folder can also replace a manifest there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lance_namespace.errors import InvalidInputError

from pennon.catalog import clones, tables
from pennon.commits.manifest import BadManifestError, parse_opened
from pennon.core.identifiers import format_identifier, is_within
from pennon.storage.links import is_link

if TYPE_CHECKING:
    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table
    from pennon.commits.manifest import Manifest
    from pennon.storage.root import StorageRoot

_BRANCH_FOLDER = re.compile(r"/tree/[A-Za-z0-9._/-]+")


class Confinement:
    """Checks what manifests name against what their table may read."""

    def __init__(self, database: Database, storage_root: StorageRoot) -> None:
        self._database = database
        self._storage_root = storage_root

    def check_staged(self, table: Table, manifest: Manifest, before: Iterable[str]) -> None:
        """Refuse base paths that neither the version before had nor a clone of this table was recorded with."""
        known = set(before)
        strange = [base for base in self._strange(table, manifest.bases) if base not in known]
        if strange and self._database.read(lambda connection: _other_tables(connection, table, strange, strict=True)):
            raise InvalidInputError(
                "The staged manifest names a base path that this table may not read: only those that its last version "
                "had are taken, and those of the table it was cloned from. Clone tables with CloneTable."
            )

    def check_opened(self, table: Table, dataset: Any) -> Any:
        """Return a dataset that reads nothing but what its table may; raises what it names beside that."""
        try:
            manifest = parse_opened(dataset._ds.serialized_manifest())  # noqa: SLF001 (as Lance has loaded it)
            dataset.schema  # noqa: B018 (Lance panics at types that it does not know)
        except BadManifestError as error:
            raise _unreadable(table, dataset, f"{error}") from None
        except BaseException as error:
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                raise _unreadable(table, dataset, "its schema has a type that nobody knows") from error
            raise
        strange = self._strange(table, manifest.bases)
        if strange and self._database.read(lambda connection: _other_tables(connection, table, strange, strict=False)):
            raise _unreadable(table, dataset, "it names files of another table that this one may not read")
        return dataset

    def _strange(self, table: Table, bases: Iterable[str]) -> list[str]:
        """Return base paths that are not the table's own folder."""
        homes = [table.location]
        link = self._storage_root.link_to(table.location)
        if link is not None and is_link(self._storage_root, link):
            homes.append(link)
        return [base for base in bases if not any(_is_home(base, home) for home in homes)]


def _other_tables(connection: Connection, table: Table, bases: Iterable[str], *, strict: bool) -> list[str]:
    """Return base paths that this table was not cloned with; unless strict, nor are of a table in its namespace."""
    recorded = clones.bases_of(connection, table.id)
    rest = [base for base in bases if base not in recorded and not any(_is_home(base, home) for home in recorded)]
    return rest if strict else [base for base in rest if not _is_beside(connection, table, base)]


def _is_beside(connection: Connection, table: Table, base: str) -> bool:
    """Tell whether a base is a table that whoever reads this one may read, too: so LanceDB clones in one folder."""
    path = _normal(base)
    found = None if path is None else tables.find_by_location(connection, _BRANCH_FOLDER.sub("", path))
    return found is not None and is_within(found.namespace, table.namespace)


def _is_home(base: str, location: str) -> bool:
    """Tell whether a base path is the folder of a table, or of one of its branches."""
    path = _normal(base)
    if path is None or not path.startswith(location):
        return False
    rest = path[len(location) :]
    return not rest or _BRANCH_FOLDER.fullmatch(rest) is not None


def _normal(base: str) -> str | None:
    """Return a base path as locations are written; none for one that does not say where it is, or says it oddly."""
    path = base.removeprefix("file://") if base.startswith("file:///") else base
    rest = urlsplit(path).path if "://" in path else path
    parts = rest.rstrip("/").split("/")
    if not rest.startswith("/") or any(part in {"", ".", ".."} for part in parts[1:]):
        return None
    return path.rstrip("/")


def _unreadable(table: Table, dataset: Any, why: str) -> InvalidInputError:
    name = format_identifier(table.identifier)
    return InvalidInputError(
        f"Version {dataset.version} of table {name!r} cannot be read: {why}. Read an earlier version; to mend the "
        "table, commit a version without that, or drop it."
    )
