"""Tags and branches of a table, in the files where Lance stores them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import quote, unquote

from lance_namespace.errors import InvalidInputError

from pennon.storage.layout import check_branch

if TYPE_CHECKING:
    from pennon.storage.file_io import FileIO

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_TAGS, _BRANCHES = "_refs/tags", "_refs/branches"
#: The maximum size of a file; Lance writes a few hundred bytes.
_MAX_BYTES = 1024 * 1024
#: The prefix of Pennon's own tags, which keep versions that have no tag of a user.
RESERVED = "pennon."

#: The JSON object that Lance writes for a tag or a branch; its fields are checked by ``_is_ref``.
RefContent = dict[str, Any]


@dataclass(frozen=True)
class Ref:
    """A reference that keeps a version: a tag, or a branch that starts there."""

    kind: str
    name: str
    branch: str
    version: int
    #: The content of its file.
    content: RefContent = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


def tags(folder: FileIO) -> list[Ref]:
    """Return the tags of users."""
    return [ref for ref in all_tags(folder) if not ref.name.startswith(RESERVED)]


def all_tags(folder: FileIO) -> list[Ref]:
    """Return all tags, including Pennon's own."""
    return [
        Ref("tag", name, content.get("branch") or "", content["version"], content)
        for name, content in _read(folder, _TAGS)
        if _is_tag(name) and _is_ref(content, "version", "branch")
    ]


def branches(folder: FileIO) -> list[Ref]:
    """Return the branches, each with the version where it starts."""
    return [
        Ref("branch", name, content.get("parentBranch") or "", content["parentVersion"], content)
        for name, content in _read(folder, _BRANCHES)
        if _is_branch(name) and _is_ref(content, "parentVersion", "parentBranch")
    ]


def malformed(folder: FileIO) -> list[str]:
    """Return the tags and branches with invalid files: Lance deletes no branch while there is one."""
    found = []
    for kind, place, read in (("branch", _BRANCHES, branches), ("tag", _TAGS, all_tags)):
        known = {ref.name for ref in read(folder)}
        found += [f"{kind} {name!r}" for name, _ in _read(folder, place) if name not in known]
    return sorted(found)


def remove_malformed(folder: FileIO, ref: str, kind: str) -> bool:
    """Remove the invalid file of a tag or a branch; false if it has none."""
    folders = {"tag": (_TAGS, all_tags), "branch": (_BRANCHES, branches)}
    place, read = folders[kind]
    path = f"{place}/{quote(ref, safe='')}.json"
    if any(known.name == ref for known in read(folder)) or folder.stat(path) is None:
        return False
    folder.remove(path)
    return True


def tag_path(name: str) -> str:
    """Return the file of a user's tag; raises an error for an invalid name."""
    if not _NAME.fullmatch(name) or ".." in name or name.startswith(".") or name.endswith((".", ".lock")):
        raise InvalidInputError(f"Invalid tag name {name!r}: use letters, digits, '.', '-' and '_'.")
    if name.startswith(RESERVED):
        raise InvalidInputError(f"Invalid tag name {name!r}: the prefix {RESERVED!r} is reserved.")
    return tag_file(name)


def tag_file(name: str) -> str:
    """Return the file of a tag."""
    return f"{_TAGS}/{quote(name, safe='')}.json"


def tag_content(branch: str, version: int, size: int, before: Ref | None = None) -> bytes:
    """Return the content of a tag's file, as Lance writes it."""
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


def _read(folder: FileIO, path: str) -> list[tuple[str, object]]:
    """Return the names and contents of JSON files in a folder; None for invalid JSON, which any writer may leave."""
    found: list[tuple[str, object]] = []
    for file in folder.files(path):
        if file.path.endswith(".json"):
            name = unquote(file.path.removeprefix(path + "/").removesuffix(".json"))
            try:
                content = json.loads(folder.read(file.path)) if file.size <= _MAX_BYTES else None
            except FileNotFoundError:
                continue  # removed after it was listed
            except (ValueError, RecursionError):
                content = None
            found.append((name, content))
    return found


def _is_tag(name: str) -> bool:
    return "/" not in name and ".." not in name


def _is_branch(name: str) -> bool:
    try:
        return check_branch(name) == name != ""
    except InvalidInputError:
        return False


def _is_ref(content: object, version_key: str, branch_key: str) -> TypeGuard[RefContent]:
    """Tell whether a file has the content of a tag or a branch, as far as Pennon reads it."""
    if not isinstance(content, dict) or not _is_count(content.get(version_key)):
        return False
    branch, metadata = content.get(branch_key), content.get("metadata")
    if branch is not None and not (isinstance(branch, str) and (branch == "" or _is_branch(branch))):
        return False
    if any(content.get(key) is not None and not _is_count(content[key]) for key in ("createAt", "manifestSize")):
        return False
    return metadata is None or (isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values()))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
