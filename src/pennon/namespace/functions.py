"""The functions of feature columns and views, read without loading them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

from pennon.columns.declarations import read_function
from pennon.columns.feature_columns import FeatureColumn, find_feature_column
from pennon.core.errors import suggest
from pennon.functions.envelope import COLUMN_KINDS, Envelope, read_envelope
from pennon.functions.environment_manifest import KEYS, ManifestError, read_manifest
from pennon.namespace.models.inspection import (
    DescribeColumnFunctionRequest,
    DescribeColumnFunctionResponse,
    DescribeViewFunctionsRequest,
    DescribeViewFunctionsResponse,
    FunctionDescription,
)
from pennon.namespace.requests import request_as, table_id
from pennon.namespace.resolver import TableResolver
from pennon.services import Services
from pennon.storage.layout import check_branch
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    from pennon.core.settings import Settings
    from pennon.storage.file_io import FileIO


@dataclass(frozen=True)
class FunctionOperations:
    """Describe functions."""

    services: Services
    resolver: TableResolver

    def describe_column_function(self, request: DescribeColumnFunctionRequest) -> DescribeColumnFunctionResponse:
        """Describe the function or expression of a feature column, without loading it."""
        request = request_as(DescribeColumnFunctionRequest, request)
        if not request.column:
            raise InvalidInputError("column is empty; name a feature column.")
        table, branch = self.resolver.table(table_id(request)), check_branch(request.branch)
        column = find_feature_column(self.services.datasets.at(table, branch, None), request.column)
        envelope = column_function(self.resolver.folder(table), column)
        answer = DescribeColumnFunctionResponse(
            column=request.column,
            columns=[output.path for output in column.outputs],
            inputs=list(column.inputs),
            name=column.name,
            version=column.version,
            digest=column.digest,
            kind="expression",
            expression=column.expression,
            auto_backfill=column.auto_backfill,
        )
        return answer if envelope is None else answer.model_copy(update=_envelope_fields(envelope))

    def describe_view_functions(self, request: DescribeViewFunctionsRequest) -> DescribeViewFunctionsResponse:
        """Describe the functions of a view, without loading them."""
        table, view = self.resolver.view(table_id(request_as(DescribeViewFunctionsRequest, request)))
        folder = self.resolver.folder(table)
        found = []
        for use in Definition.from_json(view.definition).uses():
            envelope = stored_function(folder, use.reference, repr(table.name))
            names = {"name": envelope.name, "version": envelope.version, "inputs": use.inputs, "columns": use.columns}
            found.append(FunctionDescription.model_validate({**names, **_envelope_fields(envelope)}))
        return DescribeViewFunctionsResponse(functions=found)


def column_function(folder: FileIO, column: FeatureColumn) -> Envelope | None:
    """Return the function of a feature column; None for an expression."""
    if column.reference is None:
        return None
    envelope = stored_function(folder, column.reference, repr(column.path))
    if envelope.kind not in COLUMN_KINDS:
        raise InvalidInputError(f"The function of {column.path!r} is a {envelope.kind}; here it must be a udf.")
    return envelope


def stored_function(folder: FileIO, reference: str, owner: str) -> Envelope:
    """Return the envelope of a function in a table's folder, without loading the function."""
    content = read_function(folder, reference)
    try:
        return read_envelope(content)
    except ValueError as error:
        raise InvalidInputError(f"The function of {owner} cannot be read: {error}") from None


def _envelope_fields(envelope: Envelope) -> dict[str, object]:
    """Return the fields of a function's description that come from its envelope."""
    return {
        "digest": envelope.digest,
        "kind": envelope.kind,
        "stateful": envelope.stateful,
        "python": envelope.python,
        "packages": dict(envelope.packages),
        "options": envelope.options.to_json(),
        "source": envelope.source,
    }


def check_manifest(text: str | None, settings: Settings) -> None:
    """Refuse an environment manifest that a worker would refuse, and unknown keys."""
    if text is None:
        return
    try:
        read_manifest(text, allowed_indexes=settings.package_indexes)
    except ManifestError as error:
        raise InvalidInputError(str(error)) from None
    unknown = sorted(json.loads(text).keys() - KEYS)
    if unknown:
        hint = suggest(unknown[0], KEYS)
        raise InvalidInputError(f"The manifest has an unknown key: {unknown[0]!r}.{hint}")
