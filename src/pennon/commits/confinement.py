"""Confinement: a version may read the files of its own table, and of the tables that the table was cloned from.

A manifest may name base paths: folders of other tables that have some of its files. Lance reads them with the rights of
the server, but clients write manifests. So base paths are checked at commit, and again when a version is opened, since
a client that can write to the folder of a table can also replace a manifest there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lance_namespace.errors import InvalidInputError

from pennon.catalog import clones, tables
from pennon.commits.manifest import InvalidManifestError, parse_manifest_message
from pennon.core.identifiers import format_identifier, is_within
from pennon.storage.links import is_link

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.catalog import Connection, Database
    from pennon.catalog.tables import Table
    from pennon.commits.manifest import Manifest
    from pennon.storage.root import StorageRoot

_BRANCH_FOLDER = re.compile(r"/tree/[A-Za-z0-9._/-]+")


class Confinement:
    """Checks the base paths of manifests."""

    def __init__(self, database: Database, storage_root: StorageRoot) -> None:
        self._database = database
        self._storage_root = storage_root

    def check_staged(self, table: Table, manifest: Manifest, before: Iterable[str]) -> None:
        """Refuse base paths that neither the previous version nor the record of a clone has."""
        known = set(before)
        foreign = [base for base in self._foreign(table, manifest.bases) if base not in known]
        if foreign and self._database.read(lambda connection: _other_tables(connection, table, foreign, strict=True)):
            raise InvalidInputError(
                "The staged manifest names a base path that this table may not read: only the base paths of its last "
                "version and of the table it was cloned from are allowed. Clone tables with CloneTable."
            )

    def check_opened(self, table: Table, dataset: LanceDataset) -> LanceDataset:
        """Return a dataset if it is readable and names only files that its table may read."""
        try:
            manifest = parse_manifest_message(dataset._ds.serialized_manifest())  # noqa: SLF001 (the manifest that Lance has loaded)
            dataset.schema  # noqa: B018 (Lance panics on unknown types)
        except InvalidManifestError as error:
            raise _unreadable(table, dataset, f"{error}") from None
        except BaseException as error:
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                raise _unreadable(table, dataset, "its schema has an unknown type") from error
            raise
        foreign = self._foreign(table, manifest.bases)
        if foreign and self._database.read(lambda connection: _other_tables(connection, table, foreign, strict=False)):
            raise _unreadable(table, dataset, "it names files of another table, which this table may not read")
        return dataset

    def _foreign(self, table: Table, bases: Iterable[str]) -> list[str]:
        """Return base paths that are not the folder of the table itself."""
        homes = [table.location]
        link = self._storage_root.link_path(table.location)
        if link is not None and is_link(self._storage_root, link):
            homes.append(link)
        return [base for base in bases if not any(_is_home(base, home) for home in homes)]


def _other_tables(connection: Connection, table: Table, bases: Iterable[str], *, strict: bool) -> list[str]:
    """Return base paths that this table was not cloned with; unless ``strict``, allow tables of its namespace too."""
    recorded = clones.bases_of(connection, table.id)
    rest = [base for base in bases if base not in recorded and not any(_is_home(base, home) for home in recorded)]
    return rest if strict else [base for base in rest if not _is_in_namespace(connection, table, base)]


def _is_in_namespace(connection: Connection, table: Table, base: str) -> bool:
    """Tell whether a base is a table of the same namespace, as in LanceDB's clones: readers of one may read both."""
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
    """Return a base path in the form of locations; None if it is relative or not normalized."""
    path = base.removeprefix("file://") if base.startswith("file:///") else base
    rest = urlsplit(path).path if "://" in path else path
    parts = rest.rstrip("/").split("/")
    if not rest.startswith("/") or any(part in {"", ".", ".."} for part in parts[1:]):
        return None
    return path.rstrip("/")


def _unreadable(table: Table, dataset: LanceDataset, reason: str) -> InvalidInputError:
    name = format_identifier(table.identifier)
    return InvalidInputError(
        f"Version {dataset.version} of table {name!r} cannot be read: {reason}. Read an earlier version; to repair "
        "the table, commit a valid version, or drop it."
    )
