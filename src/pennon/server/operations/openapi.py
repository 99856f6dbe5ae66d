"""The OpenAPI document, made from the table of operations."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from pennon import __version__
from pennon.core.errors import STATUS_BY_CODE
from pennon.server.http.codec import QUERY_PARAMETERS
from pennon.server.http.streams import FILE_TYPE, STREAM_TYPE
from pennon.server.operations.model import Operation
from pennon.server.operations.schemas import ANSWERS, BODIES, MODELS, RESULTS
from pennon.server.operations.table import OPERATIONS

_REFERENCE = "#/components/schemas/{model}"
_JSON_TYPES = {str: "string", int: "integer", bool: "boolean"}


@cache
def build_document() -> dict[str, Any]:
    """Return the OpenAPI document of this server."""
    models: set[type[BaseModel]] = {*MODELS}
    models.update(model for row in OPERATIONS for model in (row.request, row.response) if model is not None)
    _, schemas = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda m: m.__name__)], ref_template=_REFERENCE
    )
    paths: dict[str, dict[str, Any]] = {}
    for row in OPERATIONS:
        paths.setdefault(row.path, {})[row.method.lower()] = _describe(row)
    return {
        "openapi": "3.1.1",
        "info": {"title": "Pennon", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": {**schemas.get("$defs", {}), "ErrorResponse": _error_schema()},
            "securitySchemes": {
                "ApiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "Bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"ApiKey": []}, {"Bearer": []}],
    }


def _describe(row: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": row.id,
        "summary": row.summary,
        "tags": [row.tag],
        "x-pennon-role": row.permission.role.name.lower(),
        "parameters": _parameters(row),
        "responses": {str(row.status): _success(row), **_errors(), **ANSWERS.get(row.id, {})},
    }
    content: dict[str, Any] = {}
    if row.id in BODIES:
        content["application/json"] = {"schema": BODIES[row.id]}
    elif row.method == "POST" and row.request is not None and row.arrow is not True:
        content["application/json"] = {"schema": {"$ref": _REFERENCE.format(model=row.request.__name__)}}
    if row.arrow:
        content[STREAM_TYPE.decode()] = {"schema": {"type": "string", "format": "binary"}}
    if content:
        described["requestBody"] = {"required": False, "content": content}
    return described


def _parameters(row: Operation) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    parameters += [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", row.path)
    ]
    parameters.append({"name": "delimiter", "in": "query", "required": False, "schema": {"type": "string"}})
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": {"type": _JSON_TYPES[QUERY_PARAMETERS[name][0]]}}
        for name in row.query
    ]
    return parameters


def _success(row: Operation) -> dict[str, Any]:
    if row.answer == "batches":
        content = {
            kind.decode(): {"schema": {"type": "string", "format": "binary"}} for kind in (FILE_TYPE, STREAM_TYPE)
        }
        content["application/json"] = {"schema": _rows_schema()}
        return {"description": row.summary, "content": content}
    if row.answer == "events":
        return {"description": row.summary, "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    if row.answer == "value":
        kind = "integer" if row.id == "CountTableRows" else "string"
        return {"description": row.summary, "content": {"application/json": {"schema": {"type": kind}}}}
    if row.response is not None:
        schema = {"$ref": _REFERENCE.format(model=row.response.__name__)}
    elif row.id in RESULTS:
        schema = RESULTS[row.id]
    else:
        return {"description": "Yes; the answer has no body."}
    return {"description": row.summary, "content": {"application/json": {"schema": schema}}}


def _rows_schema() -> dict[str, Any]:
    rows = {"type": "array", "items": {"type": "object"}}
    fields = {
        "version": {"type": "integer"},
        "schema": {"type": "object"},
        "rows": rows,
        "truncated": {"type": "boolean"},
    }
    return {"type": "object", "required": list(fields), "properties": fields}


def _errors() -> dict[str, Any]:
    schema = {"$ref": _REFERENCE.format(model="ErrorResponse")}
    content = {"application/json": {"schema": schema}}
    statuses = sorted({*STATUS_BY_CODE.values(), 413, 422})
    return {str(status): {"description": "An error.", "content": content} for status in statuses}


def _error_schema() -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        "required": ["error", "code", "instance", "request_id"],
        "properties": {
            "error": text,
            "code": {"type": "integer", "minimum": 0, "maximum": 23},
            "detail": text,
            "instance": text,
            "request_id": text,
        },
    }
