"""Tags and branches of a table, as Lance keeps them beside the data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from pennon.lake.folder import Folder

_TAGS, _BRANCHES = "_refs/tags", "_refs/branches"


@dataclass(frozen=True)
class Ref:
    """A name that needs a version of a branch to stay: a tag, or a branch that starts there."""

    kind: str
    name: str
    branch: str
    version: int

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


def tags(folder: Folder) -> list[Ref]:
    """Return the tags of a table."""
    return [Ref("tag", name, content.get("branch") or "", content["version"]) for name, content in _read(folder, _TAGS)]


def branches(folder: Folder) -> list[Ref]:
    """Return the branches of a table, each with the version it starts from."""
    return [
        Ref("branch", name, content.get("parentBranch") or "", content["parentVersion"])
        for name, content in _read(folder, _BRANCHES)
    ]


def _read(folder: Folder, path: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for file in folder.files(path):
        if file.path.endswith(".json"):
            name = unquote(file.path.removeprefix(path + "/").removesuffix(".json"))
            try:
                found.append((name, json.loads(folder.read(file.path))))
            except FileNotFoundError:
                continue  # removed since it was listed
    return found
