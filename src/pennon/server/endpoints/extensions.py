"""How the operations beyond the specification are called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from lance_namespace.errors import InvalidInputError

from pennon.namespace.operations import parse_choice
from pennon.server.http.exchange import version_header
from pennon.server.http.streams import BlobStream

if TYPE_CHECKING:
    from pennon.namespace.queries import Answer
    from pennon.server.endpoints.data import Call

Value = TypeVar("Value", int, str)

# No blob and no table is as large as eighteen digits can say.
_NUMBER = re.compile(r"[0-9]{1,18}")
#: What LanceDB's client for Node.js calls the outcomes of what others call a cherry-pick.
_AS_MERGE = {"failed": "rejected", "cherryPicked": "merged"}
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{1,18})?")


@dataclass(frozen=True)
class Reply:
    """An answer that is more than a body: with a status and headers of its own."""

    status: int
    body: bytes | dict[str, Any]
    headers: tuple[tuple[bytes, bytes], ...] = ()


def clone_table(call: Call) -> Any:
    """Clone a table."""
    source = _text(call, "source_location")
    version, tag = _optional(call, "source_version", int), _optional(call, "source_tag", str)
    shallow = call.stated.get("is_shallow", True) is not False
    return call.namespace.clone_table(call.identifier, source, version, tag, shallow=shallow)


def begin_upload(call: Call) -> Any:
    """Begin an upload in parts."""
    return call.namespace.begin_upload(call.identifier, _optional(call, "branch", str))


def complete_upload(call: Call) -> Any:
    """Commit an upload."""
    return call.namespace.complete_upload(call.identifier, _text(call, "upload_id"))


def abort_upload(call: Call) -> Any:
    """Give an upload up."""
    return call.namespace.abort_upload(call.identifier, _text(call, "upload_id"))


def add_part(call: Call) -> Any:
    """Take in a part of an upload."""
    mode = parse_choice("mode", call.stated.get("mode"), ("append", "overwrite"))
    part_id = _text(call, "upload_part_id")
    with call.source() as source:
        return call.namespace.add_part(call.identifier, _text(call, "upload_id"), part_id, source, mode)


def diff_branch(call: Call) -> Any:
    """Compare a branch with main."""
    return call.namespace.diff_branch(call.identifier, _text(call, "from_branch"))


def cherry_pick(call: Call, *, merge: bool = False) -> Reply:
    """Bring a branch over to main; why it failed is told in the same form, as a conflict."""
    result = call.namespace.cherry_pick(
        call.identifier, _text(call, "from_branch"), dry_run=bool(call.stated.get("dry_run"))
    )
    status = 409 if result["status"] == "failed" else 200
    if merge:
        result["status"] = _AS_MERGE.get(result["status"], result["status"])
    return Reply(status, result)


def fetch_blobs(call: Call) -> Answer:
    """Return the blobs of rows."""
    row_ids = call.stated.get("row_ids")
    if not isinstance(row_ids, list) or not all(type(row_id) is int and row_id >= 0 for row_id in row_ids):
        raise InvalidInputError("row_ids must be a list of row ids.")
    version, branch = _optional(call, "version", int), _optional(call, "branch", str)
    return call.namespace.fetch_blobs(call.identifier, _text(call, "column"), row_ids, version, branch)


def read_blob(call: Call) -> Reply | BlobStream:
    """Return bytes of one blob."""
    start, end = _range(call.headers.get("range"))
    row_id = call.stated["row_id"]
    if not _NUMBER.fullmatch(row_id):
        raise InvalidInputError("The row id must be a whole number.")
    version, branch = call.stated.get("version"), call.stated.get("branch")
    found = call.namespace.read_blob(
        call.identifier, call.stated["column"], int(row_id), start, end, version=version, branch=branch
    )
    at = version_header(found.version)  # LanceDB's client reads the rest of a blob from the version of its first byte
    if found.file is None:
        return Reply(204, b"", at)
    if found.start >= found.size:
        return Reply(416, b"", (*at, (b"content-range", f"bytes */{found.size}".encode())))
    return BlobStream(found)


def prewarm_index(call: Call) -> Any:
    """Load an index into memory."""
    call.namespace.prewarm_table_index(call.namespace.find_table(call.identifier), call.stated["index_name"])
    return {}


def prewarm_data(call: Call) -> Any:
    """Accept the wish to have data at hand: Lance reads it ahead by itself."""
    call.namespace.find_table(call.identifier)
    return {}


def no_write_buffer(call: Call) -> Any:
    """Tell that a table has no write buffer of its own: every write is committed at once."""
    call.namespace.find_table(call.identifier)
    return {"lsm_write_spec": None, "lsm_stats": None}


def _text(call: Call, name: str) -> str:
    value = call.stated.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidInputError(f"The request needs {name!r} as text.")
    return value


def _optional(call: Call, name: str, kind: type[Value]) -> Value | None:
    value = call.stated.get(name)
    if value is None or type(value) is kind:
        return value
    raise InvalidInputError(f"{name!r} must be {'text' if kind is str else 'a whole number'}.")


def _range(header: str | None) -> tuple[int, int | None]:
    if not header:
        return 0, None
    match = _RANGE.fullmatch(header.strip())
    start, end = (int(match[1]), int(match[2]) + 1 if match[2] else None) if match else (0, 0)
    if end is not None and end <= start:
        raise InvalidInputError("The Range header must be bytes=START-END or bytes=START-.")
    return start, end
