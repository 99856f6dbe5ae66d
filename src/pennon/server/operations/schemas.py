"""What the operations beyond the specification take and answer, for the OpenAPI document: no models describe them."""

from __future__ import annotations

from typing import Any

from pennon.namespace.models.columns import BackfillPlan
from pennon.namespace.models.views import RefreshPlan

_TEXT = {"type": "string", "minLength": 1}
_NUMBER = {"type": "integer", "minimum": 0}
_FLAG = {"type": "boolean"}
_MAP = {"type": "object", "additionalProperties": {"type": "string"}}
_CONTENT = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def _body(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": {**required, **optional}}


def _model(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


#: Models of answers that are told of here only.
MODELS = (BackfillPlan, RefreshPlan)

#: The JSON bodies, by operation.
BODIES: dict[str, dict[str, Any]] = {
    "CloneTable": _body({"source_location": _TEXT}, source_version=_NUMBER, source_tag=_TEXT, is_shallow=_FLAG),
    "DiffBranch": _body({"from_branch": _TEXT}),
    "CherryPick": _body({"from_branch": _TEXT}, dry_run=_FLAG),
    "MergeBranch": _body({"from_branch": _TEXT}, dry_run=_FLAG),
    "FetchBlobs": _body(
        {"column": _TEXT, "row_ids": {"type": "array", "items": _NUMBER}}, version=_NUMBER, branch=_TEXT
    ),
    "UpdateTableSchemaMetadata": _MAP,
}

_VIEW = _model("CreateMaterializedViewResponse")
_LIST = {"type": "array", "items": {"type": "object"}}
_NAMES = {"type": "array", "items": _TEXT}
_NOTHING = {"type": "object", "maxProperties": 0}
_NO_BUFFER = _body({"lsm_write_spec": {"type": "null"}, "lsm_stats": {"type": "null"}})
_ROWS = _body(
    {
        **dict.fromkeys(("unchanged", "newOnBase", "newOnBranch", "staleRecompute", "inputsChanged"), _NUMBER),
        "deltaAvailable": _FLAG,
    }
)
_COLUMNS = (
    "addedColumns",
    "removedColumns",
    "changedColumns",
    "addedIndexes",
    "removedIndexes",
    "errors",
    "mergeBlockers",
)
_DIFF = _body(
    {
        "fromBranch": _TEXT,
        **dict.fromkeys(("parentVersion", "mainVersion", "branchVersion", "rowCountMain", "rowCountBranch"), _NUMBER),
        "baseMoved": _FLAG,
        "mergeable": _FLAG,
        "rowSummary": _ROWS,
        **dict.fromkeys(_COLUMNS, _LIST),
    }
)
_PICK = _body(
    {
        "status": {"enum": ["ready", "failed", "cherryPicked", "rejected", "merged"]},
        "diff": _DIFF,
        "preview": _body({"promotedColumns": _NAMES}),
    },
    mainVersionAfter=_NUMBER,
)

_IN_THE_WAY = {
    "description": "What is in the way of the branch, or an error.",
    "content": _json({"anyOf": [_PICK, _model("ErrorResponse")]}),
}

#: What operations answer when they succeed.
RESULTS: dict[str, dict[str, Any]] = {
    "CloneTable": _body({"transaction_id": _TEXT, "location": _TEXT}),
    "BeginUpload": _body({"upload_id": _TEXT}),
    "CompleteUpload": _body({"version": _NUMBER, "num_inserted_rows": _NUMBER, "transaction_id": _TEXT}),
    "AbortUpload": _NOTHING,
    "DiffBranch": _DIFF,
    "CherryPick": _PICK,
    "MergeBranch": _PICK,
    "PrewarmIndex": _NOTHING,
    "PrewarmData": _NOTHING,
    "GetWriteBuffer": _NO_BUFFER,
    "GetWriteBufferStats": _NO_BUFFER,
    "UpdateTableSchemaMetadata": _MAP,
}

#: Answers that differ from those every operation may give, by operation and status.
ANSWERS: dict[str, dict[str, Any]] = {
    "CherryPick": {"409": _IN_THE_WAY},
    "MergeBranch": {"409": _IN_THE_WAY},
    "AlterTableBackfillColumns": {
        "200": {"description": "What a backfill would do.", "content": _json(_model("BackfillPlan"))},
    },
    "CreateMaterializedView": {
        "200": {"description": "The view was made; LanceDB's client asked for it.", "content": _json(_VIEW)},
        "202": {"description": "The view was made, and a job fills it.", "content": _json(_VIEW)},
    },
    "RefreshMaterializedView": {
        "200": {"description": "What a refresh would do.", "content": _json(_model("RefreshPlan"))},
    },
    "ReadBlob": {
        "204": {"description": "There is no blob in this row."},
        "206": {"description": "Bytes of the blob.", "content": _CONTENT},
        "416": {"description": "The range begins after the end of the blob."},
    },
}
