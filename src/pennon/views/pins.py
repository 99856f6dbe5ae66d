"""Pins: tags that keep versions which a view or a running job needs from being cleaned up, also by Lance itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lance_namespace.errors import TableVersionNotFoundError

from pennon.catalog import jobs, tables
from pennon.commits.history import stored_manifest
from pennon.core.caller import current_caller
from pennon.core.identifiers import format_identifier
from pennon.core.job_model import TERMINAL
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
        """The name of the tag."""
        return f"{_PREFIXES[self.kind]}{self.owner}.{self.version}"


def pin(folder: FileIO, owner: str, version: int, branch: str = "", kind: Kind = "view") -> None:
    """Pin a version of a table for a view, a clone or a job, before it is read.

    Raises ``TableVersionNotFoundError`` if the version is gone. A version can be pinned repeatedly.
    """
    size = _manifest_size(folder, version, branch)
    wanted = Pin(owner, version, kind)
    if size is not None:
        folder.put_if_absent(refs.tag_file(wanted.tag), refs.tag_content(branch, version, size))
        # Check again: a cleanup that did not see the tag may have removed the version meanwhile.
        if _manifest_size(folder, version, branch) is not None:
            return
        folder.remove(refs.tag_file(wanted.tag))
    what = "a source" if kind == "view" else "the table"
    raise TableVersionNotFoundError(f"Version {version} of {what} is gone: it was cleaned up.")


def release(folder: FileIO, owner: str, keep: Collection[int] = (), kind: Kind = "view") -> None:
    """Remove the pins of a view or a job on a table, except for the versions to keep."""
    remove(folder, (found for found in pins(folder, kind) if found.owner == owner and found.version not in keep))


def versions_needed(view: View | None, table_id: str) -> set[int]:
    """Return the versions of a table that a view needs while no job refreshes it; none if the view was dropped."""
    if view is None:
        return set()
    sources = Definition.from_json(view.definition).sources
    needed = {source.version for source in sources if source.table_id == table_id and source.version is not None}
    return needed if view.watermark is None else needed | {view.watermark.versions.get(table_id, 0)} - {0}


def remove(folder: FileIO, found: Iterable[Pin]) -> None:
    """Remove pins; those that are already gone are ignored."""
    for each in found:
        folder.remove(refs.tag_file(each.tag))


def release_job_pins(folder: FileIO, branch: str) -> None:
    """Remove the pins of jobs on a branch that is about to be deleted."""
    found = (_pin_of(ref) for ref in refs.all_tags(folder) if ref.branch == branch)
    remove(folder, (each for each in found if each is not None and each.kind == "job"))


def pins(folder: FileIO, kind: Kind = "view") -> list[Pin]:
    """Return the pins on a table, of views and clones or of jobs."""
    found = map(_pin_of, refs.all_tags(folder))
    return [each for each in found if each is not None and each.kind == kind]


def describe_pins(connection: Connection, found: Sequence[Ref]) -> list[Ref]:
    """Replace the tags of pins by references to the views, clones and jobs that own them.

    Pins of dropped views and of jobs that have ended are left out.
    """
    named: list[Ref] = []
    principal = current_caller().principal
    for ref in found:
        pinned = _pin_of(ref)
        if pinned is None:
            named.append(ref)
        elif pinned.kind == "job":
            job = jobs.find(connection, pinned.owner)
            if job is not None and job.state not in TERMINAL:
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
