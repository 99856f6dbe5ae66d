"""Commits made by hand: real manifests, staged as Lance stages them, that a test may propose when and how it likes."""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance

from tests.clients.lakes import HINT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from tests.clients.lakes import Lake


@dataclass(frozen=True)
class Staged:
    """A manifest that waits in a table's ``_versions`` folder."""

    version: int
    path: str
    content: bytes

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.path.rsplit("/", 1)[1]

    def request(self, identifier: Sequence[str]) -> dict[str, Any]:
        """Return the body of the request that commits it."""
        return {
            "id": list(identifier),
            "version": self.version,
            "manifest_path": self.path,
            "manifest_size": len(self.content),
            "naming_scheme": "V2",
        }


class Stager:
    """Stages appends that all follow the state a table had when this was made."""

    def __init__(self, lake: Lake, location: str) -> None:
        self._lake = lake
        self._location = location
        self._files = lake.read(location)

    def append(self, data: pa.Table) -> Staged:
        """Stage an append; its data files are in place, its version is not committed."""
        with tempfile.TemporaryDirectory(prefix="pennon-staging-") as folder:
            for path, content in self._files.items():
                target = Path(folder, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            version = lance.write_dataset(data, folder, mode="append").version
            made = {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*.*")}
        new = {path: content for path, content in made.items() if path not in self._files and HINT not in path}
        (manifest,) = (path for path in new if path.startswith("_versions/"))
        staged = f"{manifest}-{uuid.uuid4()}"
        for path, content in new.items():
            self._lake.put(self._location, staged if path == manifest else path, content)
        place = self._location.partition("://")[2].partition("/")[2] if "://" in self._location else self._location[1:]
        return Staged(version, f"{place}/{staged}", new[manifest])
