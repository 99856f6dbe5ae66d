"""Details of a version that only its dataset has: schema, metadata, statistics."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from cachetools import LRUCache

from pennon.core.inline import require_thread

if TYPE_CHECKING:
    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Version
    from pennon.tables.arrow_json import SchemaJson
    from pennon.tables.datasets import Datasets


@dataclass(frozen=True)
class Details:
    """The schema, the metadata of table and schema, and basic statistics of one version."""

    schema: SchemaJson
    metadata: dict[str, str]
    num_fragments: int
    num_deleted_rows: int


class DetailReader:
    """Reads details once for each version, which is immutable."""

    def __init__(self, datasets: Datasets, entries: int) -> None:
        self._datasets = datasets
        self._lock = Lock()
        self._cache: LRUCache[tuple[str, str, int, str | None], Details] = LRUCache(entries)

    def read(self, table: Table, version: Version) -> Details:
        """Return the details of a version."""
        # Other programs may drop and recreate an unmanaged table: the manifest's tag differs then.
        key = (table.id, version.branch, version.version, version.e_tag)
        with self._lock:
            known = self._cache.get(key)
        if known is None:
            known = self._load(table, version)
            with self._lock:
                self._cache[key] = known
        return known

    def _load(self, table: Table, version: Version) -> Details:
        require_thread()
        from pennon.tables.arrow_json import schema_to_json, text_map
        from pennon.tables.field_metadata import with_declarations

        dataset = self._datasets.at(table, version.branch, version.version)
        fragments = dataset.get_fragments()
        return Details(
            schema=with_declarations(schema_to_json(dataset.schema)),
            metadata={**(dataset.metadata or {}), **text_map(dataset.schema.metadata)},
            num_fragments=len(fragments),
            num_deleted_rows=sum(fragment.num_deletions for fragment in fragments),
        )
