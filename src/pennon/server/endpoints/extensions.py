"""Endpoints of operations that LanceDB's client sends and the specification does not have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

from pennon.namespace.models.extensions import (
    BeginUploadRequest,
    CherryPickRequest,
    CloneTableRequest,
    DiffBranchRequest,
    FetchBlobsRequest,
    PrewarmIndexRequest,
    UploadRequest,
)
from pennon.namespace.requests import parse_choice
from pennon.server.http.exchange import version_header
from pennon.server.http.streams import BlobStream
from pennon.server.request import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from pennon.namespace.queries import QueryResult
    from pennon.server.request import RequestContext

# No blob and no table has more bytes or rows than 18 digits can express.
_NUMBER = re.compile(r"[0-9]{1,18}")
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{1,18})?")
#: The statuses of a cherry-pick that LanceDB's client for Node.js, which calls it a merge, knows by other names.
_MERGE_STATUSES = {"failed": "rejected", "cherryPicked": "merged"}


def clone_table(context: RequestContext) -> BaseModel:
    """Clone a table."""
    request = context.parse(CloneTableRequest)
    return context.namespace.clones.clone_table(
        context.id,
        request.source_location,
        request.source_version,
        request.source_tag,
        shallow=request.is_shallow is not False,
    )


def begin_upload(context: RequestContext) -> BaseModel:
    """Begin a multipart upload."""
    return context.namespace.uploads.begin_upload(context.id, context.parse(BeginUploadRequest).branch)


def complete_upload(context: RequestContext) -> BaseModel:
    """Commit a multipart upload."""
    return context.namespace.uploads.complete_upload(context.id, context.parse(UploadRequest).upload_id)


def abort_upload(context: RequestContext) -> BaseModel:
    """Abort a multipart upload."""
    return context.namespace.uploads.abort_upload(context.id, context.parse(UploadRequest).upload_id)


def add_part(context: RequestContext) -> BaseModel:
    """Add the body to a multipart upload."""
    mode = parse_choice("mode", context.text("mode"), ("append", "overwrite"))
    upload_id, part_id = context.text("upload_id"), context.text("upload_part_id")
    if not upload_id or not part_id:
        raise InvalidInputError("A part of an upload needs both 'upload_id' and 'upload_part_id' in the query.")
    with context.source() as source:
        return context.namespace.uploads.add_part(context.id, upload_id, part_id, source, mode)


def diff_branch(context: RequestContext) -> Mapping[str, object]:
    """Compare a branch with main."""
    return context.namespace.branches.diff_branch(context.id, context.parse(DiffBranchRequest).from_branch)


def cherry_pick(context: RequestContext) -> Response:
    """Apply the changes of a branch to main; a conflict is described in the same form."""
    request = context.parse(CherryPickRequest)
    result = context.namespace.branches.cherry_pick(context.id, request.from_branch, dry_run=bool(request.dry_run))
    return Response(409 if result["status"] == "failed" else 200, result)


def merge_branch(context: RequestContext) -> Response:
    """Cherry-pick as LanceDB's client for Node.js requests it."""
    picked = cherry_pick(context)
    assert not isinstance(picked.body, bytes)  # noqa: S101 (a cherry-pick responds with JSON)
    status = picked.body["status"]
    return Response(picked.status, {**picked.body, "status": _MERGE_STATUSES.get(str(status), status)})


def fetch_blobs(context: RequestContext) -> QueryResult:
    """Return the blobs of rows."""
    request = context.parse(FetchBlobsRequest)
    return context.namespace.blobs.fetch_blobs(
        context.id, request.column, request.row_ids, request.version, request.branch
    )


def read_blob(context: RequestContext) -> Response | BlobStream:
    """Return bytes of one blob."""
    start, end = _range(context.headers.get("range"))
    row_id, version = str(context.params["row_id"]), context.params.get("version")
    if not _NUMBER.fullmatch(row_id):
        raise InvalidInputError(f"Invalid row id {row_id!r}: must be a whole number.")
    found = context.namespace.blobs.read_blob(
        context.id,
        str(context.params["column"]),
        int(row_id),
        start,
        end,
        version=version if isinstance(version, int) else None,
        branch=context.text("branch"),
    )
    header = version_header(found.version)  # LanceDB's client reads the rest of the blob from the same version
    if found.file is None:
        return Response(204, b"", header)
    if found.start >= found.size:
        return Response(416, b"", (*header, (b"content-range", f"bytes */{found.size}".encode())))
    return BlobStream(found)


def prewarm_index(context: RequestContext) -> Mapping[str, object]:
    """Load an index into memory."""
    index = context.parse(PrewarmIndexRequest).index_name
    context.namespace.indices.prewarm_table_index(context.namespace.find_table(context.id), index)
    return {}


def prewarm_data(context: RequestContext) -> Mapping[str, object]:
    """Do nothing: Lance reads ahead of queries."""
    context.namespace.find_table(context.id)
    return {}


def get_write_buffer(context: RequestContext) -> Mapping[str, object]:
    """Report no write buffer: every write is committed immediately."""
    context.namespace.find_table(context.id)
    return {"lsm_write_spec": None, "lsm_stats": None}


def _range(header: str | None) -> tuple[int, int | None]:
    if not header:
        return 0, None
    match = _RANGE.fullmatch(header.strip())
    start, end = (int(match[1]), int(match[2]) + 1 if match[2] else None) if match else (0, 0)
    if end is not None and end <= start:
        raise InvalidInputError(f"Invalid Range header {header!r}: must be bytes=START-END or bytes=START-.")
    return start, end
