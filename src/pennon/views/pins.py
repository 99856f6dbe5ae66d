"""Pins: versions of its sources that a view needs, kept by tags that Lance's own cleanup honours everywhere."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_namespace.errors import TableVersionNotFoundError

from pennon.catalog import tables
from pennon.core.caller import current_caller
from pennon.core.identifiers import format_identifier
from pennon.lake import refs
from pennon.lake.history import stored_manifest

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.lake.folder import Folder
    from pennon.lake.refs import Ref

_PREFIX = f"{refs.RESERVED}view."


@dataclass(frozen=True)
class Pin:
    """A version of a source that a view needs."""

    view_id: str
    version: int

    @property
    def tag(self) -> str:
        """The name of the tag that keeps it."""
        return f"{_PREFIX}{self.view_id}.{self.version}"


def pin(folder: Folder, view_id: str, version: int, branch: str = "") -> None:
    """Keep a version of a source for a view or a clone; raises ``TableVersionNotFoundError`` when it is gone.

    Whoever reads a version pins it first. To pin what is pinned changes nothing.
    """
    size = _manifest_size(folder, version, branch)
    wanted = Pin(view_id, version)
    if size is not None:
        folder.put_if_absent(refs.file_of(wanted.tag), refs.tag_content(branch, version, size))
        # Looked for again: a cleanup that did not see the tag may have removed the version just now.
        if _manifest_size(folder, version, branch) is not None:
            return
        folder.remove(refs.file_of(wanted.tag))
    raise TableVersionNotFoundError(f"Version {version} of a source is gone: it was cleaned up.")


def release(folder: Folder, view_id: str, keep: Collection[int] = ()) -> None:
    """Give up what a view does not need any more of a source: all versions but those to keep."""
    for found in pins(folder):
        if found.view_id == view_id and found.version not in keep:
            folder.remove(refs.file_of(found.tag))


def pins(folder: Folder) -> list[Pin]:
    """Return which versions of a table are kept for which views."""
    return [found for ref in refs.all_tags(folder) if (found := _pin_of(ref)) is not None]


def name_views(connection: Connection, found: Sequence[Ref]) -> list[Ref]:
    """Return references with those that are pins called by who needs them; one whose view was dropped needs nothing."""
    named: list[Ref] = []
    principal = current_caller().principal
    for ref in found:
        pinned = _pin_of(ref)
        if pinned is None:
            named.append(ref)
        elif (view := tables.find_by_id(connection, pinned.view_id)) is not None:
            kind = "view" if view.is_view else "clone"
            seen = principal.role_on(view.namespace) is not None
            name = format_identifier(view.identifier) if seen else "(hidden from this key)"
            named.append(refs.Ref(kind, name, ref.branch, ref.version))
    return named


def _pin_of(ref: Ref) -> Pin | None:
    view_id, _, version = ref.name.removeprefix(_PREFIX).rpartition(".")
    is_pin = ref.kind == "tag" and ref.name.startswith(_PREFIX) and view_id and version.isdecimal()
    return Pin(view_id, int(version)) if is_pin else None


def _manifest_size(folder: Folder, version: int, branch: str) -> int | None:
    stored = stored_manifest(folder, branch, version)
    return None if stored is None else stored.size
