"""Archives of removed manifests: a cleanup that is interrupted, or that removed too much, continues from them."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pennon.catalog.versions import Statistics, Version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pennon.storage.file_io import FileIO

#: Outside ``_versions``, where Lance would read manifests as versions.
FOLDER = "_removed_versions"
_RECORDS = "versions.json"


@dataclass(frozen=True)
class RemovedManifests:
    """The records of removed versions and their manifests, by version."""

    records: Mapping[int, Version]
    manifests: Mapping[int, bytes]


def archive_path(removal_id: str) -> str:
    """Return the path of an archive."""
    return f"{FOLDER}/{removal_id}.zip"


def write_archive(folder: FileIO, removal_id: str, removed: RemovedManifests) -> None:
    """Write an archive, durably."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(_RECORDS, json.dumps([asdict(record) for record in removed.records.values()]))
        for version, content in removed.manifests.items():
            archive.writestr(str(version), content)
    path = archive_path(removal_id)
    folder.replace(path, buffer.getvalue())
    folder.sync([path])


def read_archive(folder: FileIO, removal_id: str) -> RemovedManifests:
    """Read an archive; it is empty if the file was removed."""
    try:
        content = folder.read(archive_path(removal_id))
    except FileNotFoundError:
        return RemovedManifests({}, {})
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        records = [_record(fields) for fields in json.loads(archive.read(_RECORDS))]
        manifests = {int(name): archive.read(name) for name in archive.namelist() if name != _RECORDS}
    return RemovedManifests({record.version: record for record in records}, manifests)


def remove_archives(folder: FileIO, removal_ids: Sequence[str]) -> None:
    """Remove archives."""
    folder.remove_files([archive_path(removal_id) for removal_id in removal_ids])


def _record(fields: dict[str, object]) -> Version:
    statistics = fields.pop("statistics")
    known = Statistics(**statistics) if isinstance(statistics, dict) else None
    return Version(**fields, statistics=known)  # type: ignore[arg-type]  # as they were written
