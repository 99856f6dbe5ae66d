"""What the operations beyond the specification take and answer, for the OpenAPI document: no models describe them."""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string", "minLength": 1}
_NUMBER = {"type": "integer", "minimum": 0}
_FLAG = {"type": "boolean"}
_OBJECT = {"application/json": {"schema": {"type": "object"}}}
_CONTENT = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def _body(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": {**required, **optional}}


#: The JSON bodies, by operation.
BODIES: dict[str, dict[str, Any]] = {
    "CloneTable": _body({"source_location": _TEXT}, source_version=_NUMBER, source_tag=_TEXT, is_shallow=_FLAG),
    "DiffBranch": _body({"from_branch": _TEXT}),
    "CherryPick": _body({"from_branch": _TEXT}, dry_run=_FLAG),
    "FetchBlobs": _body({"column": _TEXT, "row_ids": {"type": "array", "items": _NUMBER}}, version=_NUMBER),
}

#: Answers that differ from those every operation may give, by operation and status.
ANSWERS: dict[str, dict[str, Any]] = {
    "CherryPick": {
        "409": {
            "description": "What is in the way of the branch, or an error.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
    },
    "CreateMaterializedView": {
        "200": {"description": "The view was made; LanceDB's client asked for it.", "content": _OBJECT},
        "202": {"description": "The view was made, and a job fills it.", "content": _OBJECT},
    },
    "RefreshMaterializedView": {"200": {"description": "What a refresh would do.", "content": _OBJECT}},
    "ReadBlob": {
        "204": {"description": "There is no blob in this row."},
        "206": {"description": "Bytes of the blob.", "content": _CONTENT},
        "416": {"description": "The range begins after the end of the blob."},
    },
}
