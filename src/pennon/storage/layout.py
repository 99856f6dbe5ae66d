"""The layout of a Lance table: the folders of branches, and the names of manifests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from lance_namespace.errors import InvalidInputError

Scheme = Literal["V1", "V2"]

_HIGHEST = 2**64 - 1
_FINAL = re.compile(r"(?P<number>[0-9]{1,20})\.manifest")
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_STAGED = re.compile(rf"(?P<final>[0-9]{{1,20}}\.manifest)-{_UUID}")
_BRANCH = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")

RESERVED_MARKER = ".lance-reserved"
DEREGISTERED_MARKER = ".lance-deregistered"
TABLE_SUFFIX = ".lance"


@dataclass(frozen=True)
class ManifestName:
    """The version in the file name of a manifest, and its naming scheme."""

    version: int
    scheme: Scheme


def check_branch(branch: str | None) -> str:
    """Return a valid branch name; the main branch is the empty string."""
    if branch is None or branch in {"", "main"}:
        return ""
    parts = branch.split("/")
    odd = ".." in branch or branch.endswith(".lock") or any(part in {".", ""} for part in parts)
    if len(branch) > 200 or not _BRANCH.fullmatch(branch) or odd:
        raise InvalidInputError(f"Invalid branch name {branch!r}: use letters, digits, '.', '_', '-' and '/'.")
    return branch


def branch_folder(branch: str) -> str:
    """Return the folder of a branch in its table, with a trailing slash; empty for main."""
    return f"tree/{branch}/" if branch else ""


def versions_folder(branch: str) -> str:
    """Return the folder of a branch's manifests."""
    return f"{branch_folder(branch)}_versions"


def manifest_name(version: int, scheme: Scheme) -> str:
    """Return the final file name of a version's manifest."""
    return f"{version}.manifest" if scheme == "V1" else f"{_HIGHEST - version:020d}.manifest"


def parse_manifest_name(name: str) -> ManifestName | None:
    """Parse the name of a published manifest; None for any other file."""
    match = _FINAL.fullmatch(name)
    if match is None:
        return None
    digits = match["number"]
    number = int(digits)
    # Inverted numbers always have twenty digits; a plain version number that long would need 10^19 commits.
    if len(digits) == 20:
        return ManifestName(_HIGHEST - number, "V2") if number <= _HIGHEST else None
    return ManifestName(number, "V1")


def parse_staged_name(name: str) -> ManifestName | None:
    """Parse the name of a staged manifest; None for any other file."""
    match = _STAGED.fullmatch(name)
    return parse_manifest_name(match["final"]) if match else None
