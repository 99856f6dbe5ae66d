"""Pins: versions that a view or a running job needs, kept by tags that Lance's own cleanup honours everywhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lance_namespace.errors import TableVersionNotFoundError

from pennon.catalog import jobs, tables
from pennon.commits.history import stored_manifest
from pennon.core.caller import current_caller
from pennon.core.identifiers import format_identifier
from pennon.storage import refs
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.views import View
    from pennon.storage.file_io import FileIO
    from pennon.storage.refs import Ref

Kind = Literal["view", "job"]
_PREFIXES: dict[Kind, str] = {"view": f"{refs.RESERVED}view.", "job": f"{refs.RESERVED}job."}


@dataclass(frozen=True)
class Pin:
    """A version of a table that a view, a clone or a job needs."""

    #: The id of the view, the clone or the job.
    owner: str
    version: int
    kind: Kind = "view"

    @property
    def tag(self) -> str:
        """The name of the tag that keeps it."""
        return f"{_PREFIXES[self.kind]}{self.owner}.{self.version}"


def pin(folder: FileIO, owner: str, version: int, branch: str = "", kind: Kind = "view") -> None:
    """Keep a version of a table for a view, a clone or a job; raises ``TableVersionNotFoundError`` when it is gone.

    Whoever reads a version pins it first. To pin what is pinned changes nothing.
    """
    size = _manifest_size(folder, version, branch)
    wanted = Pin(owner, version, kind)
    if size is not None:
        folder.put_if_absent(refs.file_of(wanted.tag), refs.tag_content(branch, version, size))
        # Looked for again: a cleanup that did not see the tag may have removed the version just now.
        if _manifest_size(folder, version, branch) is not None:
            return
        folder.remove(refs.file_of(wanted.tag))
    what = "a source" if kind == "view" else "the table"
    raise TableVersionNotFoundError(f"Version {version} of {what} is gone: it was cleaned up.")


def release(folder: FileIO, owner: str, keep: Collection[int] = (), kind: Kind = "view") -> None:
    """Give up what a view or a job does not need any more of a table: all versions but those to keep."""
    remove(folder, (found for found in pins(folder, kind) if found.owner == owner and found.version not in keep))


def versions_needed(view: View | None, table_id: str) -> set[int]:
    """Return the versions of a table that a view needs while no job refreshes it; none of one that was dropped."""
    if view is None:
        return set()
    sources = Definition.from_json(view.definition).sources
    needed = {source.version for source in sources if source.table_id == table_id and source.version is not None}
    return needed if view.watermark is None else needed | {view.watermark.versions.get(table_id, 0)} - {0}


def remove(folder: FileIO, found: Iterable[Pin]) -> None:
    """Give up pins; one that is gone already is none."""
    for each in found:
        folder.remove(refs.file_of(each.tag))


def release_jobs(folder: FileIO, branch: str) -> None:
    """Give up what jobs need of a branch that is about to be deleted."""
    found = (_pin_of(ref) for ref in refs.all_tags(folder) if ref.branch == branch)
    remove(folder, (each for each in found if each is not None and each.kind == "job"))


def pins(folder: FileIO, kind: Kind = "view") -> list[Pin]:
    """Return which versions of a table are kept for which views, or for which jobs."""
    found = map(_pin_of, refs.all_tags(folder))
    return [each for each in found if each is not None and each.kind == kind]


def name_views(connection: Connection, found: Sequence[Ref]) -> list[Ref]:
    """Return references with those that are pins called by who needs them.

    One whose view was dropped, or whose job ended, needs nothing.
    """
    named: list[Ref] = []
    principal = current_caller().principal
    for ref in found:
        pinned = _pin_of(ref)
        if pinned is None:
            named.append(ref)
        elif pinned.kind == "job":
            job = jobs.find(connection, pinned.owner)
            if job is not None and job.state not in jobs.ENDED:
                named.append(refs.Ref("job", job.id, ref.branch, ref.version))
        elif (view := tables.find_by_id(connection, pinned.owner)) is not None:
            kind = "view" if view.is_view else "clone"
            seen = principal.role_on(view.namespace) is not None
            name = format_identifier(view.identifier) if seen else "(hidden from this key)"
            named.append(refs.Ref(kind, name, ref.branch, ref.version))
    return named


def _pin_of(ref: Ref) -> Pin | None:
    for kind, prefix in _PREFIXES.items():
        owner, _, version = ref.name.removeprefix(prefix).rpartition(".")
        if ref.kind == "tag" and ref.name.startswith(prefix) and owner and version.isdecimal():
            return Pin(owner, int(version), kind)
    return None


def _manifest_size(folder: FileIO, version: int, branch: str) -> int | None:
    stored = stored_manifest(folder, branch, version)
    return None if stored is None else stored.size
