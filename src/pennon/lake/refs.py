"""Tags and branches of a table, as Lance keeps them beside the data."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from lance_namespace.errors import InvalidInputError

if TYPE_CHECKING:
    from pennon.lake.folder import Folder

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_TAGS, _BRANCHES = "_refs/tags", "_refs/branches"
#: Tags of this beginning are Pennon's own: by them it keeps versions that nobody gave a name.
RESERVED = "pennon."


@dataclass(frozen=True)
class Ref:
    """A name that needs a version of a branch to stay: a tag, or a branch that starts there."""

    kind: str
    name: str
    branch: str
    version: int
    #: What Lance wrote about it.
    content: dict[str, Any] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


def tags(folder: Folder) -> list[Ref]:
    """Return the tags that people gave a table's versions."""
    return [ref for ref in all_tags(folder) if not ref.name.startswith(RESERVED)]


def all_tags(folder: Folder) -> list[Ref]:
    """Return the tags of a table, also Pennon's own."""
    return [
        Ref("tag", name, content.get("branch") or "", content["version"], content)
        for name, content in _read(folder, _TAGS)
    ]


def branches(folder: Folder) -> list[Ref]:
    """Return the branches of a table, each with the version it starts from."""
    return [
        Ref("branch", name, content.get("parentBranch") or "", content["parentVersion"], content)
        for name, content in _read(folder, _BRANCHES)
    ]


def tag_path(name: str) -> str:
    """Return the file of a tag that people may give, or raise the error for a name that cannot be one."""
    if not _NAME.fullmatch(name) or ".." in name or name.startswith(".") or name.endswith((".", ".lock")):
        raise InvalidInputError(f"{name!r} cannot name a tag: use letters, digits, '.', '-' and '_'.")
    if name.startswith(RESERVED):
        raise InvalidInputError(f"{name!r} cannot name a tag: names that begin with {RESERVED!r} are Pennon's own.")
    return file_of(name)


def file_of(name: str) -> str:
    """Return the file of a tag."""
    return f"{_TAGS}/{quote(name, safe='')}.json"


def tag_content(branch: str, version: int, size: int, before: Ref | None = None) -> bytes:
    """Return what is written of a tag, as Lance itself writes it."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    content = {
        "branch": branch or None,
        "version": version,
        "createdAt": before.content.get("createdAt", now) if before else now,
        "updatedAt": now,
        "manifestSize": size,
        "metadata": before.content.get("metadata", {}) if before else {},
    }
    return json.dumps(content, indent=2).encode()


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
