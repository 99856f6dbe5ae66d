"""The versions that something needs: tags, branches, views, clones and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.catalog import clones, jobs, views
from pennon.core.caller import current_caller
from pennon.core.identifiers import Identifier, format_identifier
from pennon.core.job_model import JobKind
from pennon.storage import refs
from pennon.views import pins
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.storage.file_io import FileIO
    from pennon.storage.refs import Ref

#: Reasons by version.
Needed = dict[int, list[str]]


class UnknownNeedsError(Exception):
    """It is unknown which versions of a table are needed, so that none may be removed."""


def find_needed(connection: Connection, folder: FileIO, table: Table, branch: str) -> Needed:
    """Return the versions of a branch that something needs, with the reasons as sentences.

    Raises ``UnknownNeedsError`` if a version that must be kept is unknown.
    """
    if damaged := refs.malformed(folder):
        raise UnknownNeedsError(f"The file of {damaged[0]} is malformed, so the version it refers to is unknown.")
    readers = clones.of(connection, table.id)  # before their pins, which are set first
    found = [*refs.all_tags(folder), *refs.branches(folder)]
    needed: Needed = {}
    for ref in found:
        if ref.branch == branch:
            needed.setdefault(ref.version, []).append(_sentence(connection, ref))
    for version, reason in _needed_by_views(connection, table) if not branch else ():
        if version not in needed:  # otherwise its pin is in the list
            needed.setdefault(version, []).append(reason)
    for version, reason in _needed_by_jobs(connection, table, branch):
        needed.setdefault(version, []).append(reason)
    pinned = {pin.owner for pin in pins.pins(folder)}
    for clone in readers:
        if clone.id not in pinned and clones.source_of(connection, clone.id) is not None:
            # Without its name: the reader of a job's failure may not be allowed to see the clone.
            raise UnknownNeedsError(
                "A shallow clone, which the table's dependents name, reads files of this table, of an unknown version."
            )
    return needed


def referenced_versions(folder: FileIO, branch: str) -> set[int]:
    """Return the versions of a branch that tags and branches refer to, whether or not they exist."""
    return {ref.version for ref in (*refs.all_tags(folder), *refs.branches(folder)) if ref.branch == branch}


def _sentence(connection: Connection, ref: Ref) -> str:
    named = pins.describe_pins(connection, [ref])
    if not named:
        return "It was pinned by a view, clone or job that has ended; the pin is removed within minutes."
    (owner,) = named
    return {
        "tag": f"The tag {owner.name!r} refers to it.",
        "branch": f"The branch {owner.name!r} starts from it.",
        "view": f"The materialized view {owner.name!r} was computed from it.",
        "clone": f"The shallow clone {owner.name!r} reads its files.",
        "job": f"The job {owner.name!r} reads it.",
    }[owner.kind]


def _visible_name(identifier: Identifier) -> str:
    """Return the name of an object unless it is hidden from the caller."""
    seen = current_caller().principal.role_on(identifier[:-1]) is not None
    return format_identifier(identifier) if seen else "(hidden from this key)"


def _needed_by_views(connection: Connection, table: Table) -> Iterator[tuple[int, str]]:
    for dependent in views.dependents(connection, table.id):
        view = views.find(connection, dependent.view_id)
        for version in pins.versions_needed(view, table.id):
            yield version, f"The materialized view {_visible_name(dependent.identifier)!r} was computed from it."


def _needed_by_jobs(connection: Connection, table: Table, branch: str) -> Iterator[tuple[int, str]]:
    """Return the versions that active jobs are to read, and may not have pinned yet."""
    for job in jobs.active_on(connection, table.id):
        version = job.backfill_spec.get("read_version")
        if version is not None and job.branch == branch:
            yield version, f"The job {job.id!r} reads it."
    for job in jobs.active_of_kind(connection, JobKind.REFRESH) if not branch else ():
        version = job.refresh_spec.get("src_version")
        view = views.find(connection, job.table_id) if version is not None else None
        if version is not None and view is not None:
            sources = Definition.from_json(view.definition).sources
            if sources and sources[0].table_id == table.id:
                yield version, f"The job {job.id!r} reads it."
