"""The OpenAPI document, made from the table of operations."""

from __future__ import annotations

import re
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from pennon import __version__
from pennon.core.errors import STATUS_BY_CODE
from pennon.server.http.codec import QUERY_PARAMETERS
from pennon.server.http.streams import FILE_TYPE, STREAM_TYPE
from pennon.server.operations.model import Alternative, Operation
from pennon.server.operations.table import OPERATIONS

Json = dict[str, Any]

_REFERENCE = "#/components/schemas/{model}"
_ERROR = {"$ref": _REFERENCE.format(model="ErrorResponse")}
_BINARY = {"type": "string", "format": "binary"}
_JSON_TYPES = {str: "string", int: "integer", bool: "boolean"}


@cache
def build_document() -> Json:
    """Return the OpenAPI document of this server."""
    models = sorted({model for row in OPERATIONS for model in _models(row)}, key=lambda model: model.__name__)
    _, schemas = models_json_schema([(model, "validation") for model in models], ref_template=_REFERENCE)
    paths: dict[str, Json] = {}
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


def _models(row: Operation) -> list[type[BaseModel]]:
    models = [row.request, row.response, *(alternative.model for alternative in row.alternatives.values())]
    return [model for model in models if model is not None]


def _describe(row: Operation) -> Json:
    described: Json = {
        "operationId": row.id,
        "summary": row.summary,
        "tags": [row.tag],
        "x-pennon-role": row.permission.role.name.lower(),
        "parameters": _parameters(row),
        "responses": {str(row.status): _success(row), **_errors(), **_alternatives(row)},
    }
    content: Json = {}
    if row.method == "POST" and row.request is not None and row.body != "arrow":
        content["application/json"] = {"schema": _body_schema(row.request, row.body_field)}
    if row.body != "json":
        content[STREAM_TYPE.decode()] = {"schema": _BINARY}
    if content:
        described["requestBody"] = {"required": False, "content": content}
    return described


def _body_schema(model: type[BaseModel], field: str | None) -> Json:
    if field is None:
        return _reference(model)
    field_type: Any = model.model_fields[field].annotation
    return TypeAdapter(field_type).json_schema(ref_template=_REFERENCE)


def _parameters(row: Operation) -> list[Json]:
    parameters: list[Json] = []
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


def _success(row: Operation) -> Json:
    if row.response_format == "arrow":
        content: Json = {kind.decode(): {"schema": _BINARY} for kind in (FILE_TYPE, STREAM_TYPE)}
        content["application/json"] = {"schema": _rows_schema()}
    elif row.response_format == "events":
        content = {"text/event-stream": {"schema": {"type": "string"}}}
    elif row.value_type is not None:
        content = {"application/json": {"schema": TypeAdapter(row.value_type).json_schema()}}
    elif row.response is not None:
        content = {"application/json": {"schema": _reference(row.response)}}
    else:
        return {"description": "Success; the response has no body."}
    return {"description": row.summary, "content": content}


def _alternatives(row: Operation) -> Json:
    return {str(status): _alternative(status, response) for status, response in row.alternatives.items()}


def _alternative(status: int, response: Alternative) -> Json:
    if response.model is not None:
        schema = _reference(response.model)
        schema = {"anyOf": [schema, _ERROR]} if status >= HTTPStatus.BAD_REQUEST else schema
        return {"description": response.description, "content": {response.media_type: {"schema": schema}}}
    if response.media_type != "application/json":
        return {"description": response.description, "content": {response.media_type: {"schema": _BINARY}}}
    return {"description": response.description}


def _reference(model: type[BaseModel]) -> Json:
    return {"$ref": _REFERENCE.format(model=model.__name__)}


def _rows_schema() -> Json:
    rows = {"type": "array", "items": {"type": "object"}}
    fields = {
        "version": {"type": "integer"},
        "schema": {"type": "object"},
        "rows": rows,
        "truncated": {"type": "boolean"},
    }
    return {"type": "object", "required": list(fields), "properties": fields}


def _errors() -> Json:
    content = {"application/json": {"schema": _ERROR}}
    statuses = sorted({*STATUS_BY_CODE.values(), 413, 422})
    return {str(status): {"description": "An error.", "content": content} for status in statuses}


def _error_schema() -> Json:
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
