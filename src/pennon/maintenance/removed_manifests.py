"""Archives of removed manifests: a cleanup that is interrupted, or that removed too much, continues from them.

An archive lies in the folder of its table, where clients may write, and names files to remove. So the id of a removal
is the digest of its archive, and an archive with another digest counts as removed.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import zipfile
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pennon.catalog.versions import Statistics, Version
from pennon.core.identifiers import new_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pennon.storage.file_io import FileIO

logger = logging.getLogger("pennon.worker")

#: Outside ``_versions``, where Lance would read manifests as versions.
FOLDER = "_removed_versions"
_RECORDS, _UNIQUE = "versions.json", "id.txt"


@dataclass(frozen=True)
class RemovedManifests:
    """The records of removed versions and their manifests, by version."""

    records: Mapping[int, Version]
    manifests: Mapping[int, bytes]


def archive_path(removal_id: str) -> str:
    """Return the path of an archive."""
    return f"{FOLDER}/{removal_id}.zip"


def write_archive(folder: FileIO, removed: RemovedManifests) -> str:
    """Write an archive, durably, and return the id of its removal."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(_UNIQUE, new_id())  # the same versions may be removed twice
        archive.writestr(_RECORDS, json.dumps([asdict(record) for record in removed.records.values()]))
        for version, content in removed.manifests.items():
            archive.writestr(str(version), content)
    removal_id = hashlib.sha256(buffer.getvalue()).hexdigest()
    path = archive_path(removal_id)
    folder.replace(path, buffer.getvalue())
    folder.sync([path])
    return removal_id


def read_archive(folder: FileIO, removal_id: str) -> RemovedManifests:
    """Read an archive; it is empty if the file was removed or replaced."""
    try:
        content = folder.read(archive_path(removal_id))
    except FileNotFoundError:
        return RemovedManifests({}, {})
    if hashlib.sha256(content).hexdigest() != removal_id:
        logger.warning("the archive %s of removed versions was replaced, so their files stay", removal_id)
        return RemovedManifests({}, {})
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        records = [_record(fields) for fields in json.loads(archive.read(_RECORDS))]
        manifests = {int(name): archive.read(name) for name in archive.namelist() if name.isdecimal()}
    return RemovedManifests({record.version: record for record in records}, manifests)


def remove_archives(folder: FileIO, removal_ids: Sequence[str]) -> None:
    """Remove archives."""
    folder.remove_files([archive_path(removal_id) for removal_id in removal_ids])


def _record(fields: dict[str, object]) -> Version:
    statistics = fields.pop("statistics")
    known = Statistics(**statistics) if isinstance(statistics, dict) else None
    return Version(**fields, statistics=known)  # type: ignore[arg-type]  # as they were written
