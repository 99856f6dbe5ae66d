"""The functions that make columns of a view, or its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.namespace.backfills import stored_function
from pennon.namespace.base import request_as, table_id
from pennon.namespace.inspection import known_of
from pennon.namespace.inspection_models import (
    DescribeViewFunctionsRequest,
    DescribeViewFunctionsResponse,
    FunctionDescription,
)
from pennon.namespace.views import ViewOperations
from pennon.views.definition import Definition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class ViewFunctionOperations(ViewOperations):
    """Tell which functions a view is made by."""

    def describe_view_functions(self, request: DescribeViewFunctionsRequest) -> DescribeViewFunctionsResponse:
        """Return the functions of a view, without loading them."""
        table, view = self._view(table_id(request_as(DescribeViewFunctionsRequest, request)))
        folder = self.house.places.folder(table.location)
        found = []
        for reference, inputs, columns in _uses(Definition.from_json(view.definition)):
            envelope = stored_function(folder, reference, repr(table.name))
            known = {"name": envelope.name, "version": envelope.version, **known_of(envelope)}
            found.append(FunctionDescription(inputs=list(inputs), columns=list(columns), **known))
        return DescribeViewFunctionsResponse(functions=found)


def _uses(definition: Definition) -> Iterator[tuple[str, Sequence[str], Sequence[str]]]:
    """Tell where each function is kept, what it is given, and the columns it makes."""
    for function in definition.functions:
        yield function.reference, function.inputs, [column for column, _ in function.outputs]
    expansion = definition.expansion
    if expansion is not None:
        inputs = definition.sources[0].columns if expansion.inputs is None else expansion.inputs
        yield expansion.reference, inputs, expansion.outputs
