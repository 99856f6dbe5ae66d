"""The functions that make columns of a view, or its rows."""

from __future__ import annotations

from pennon.namespace.feature_columns import stored_function
from pennon.namespace.inspection import known_of
from pennon.namespace.models.inspection import (
    DescribeViewFunctionsRequest,
    DescribeViewFunctionsResponse,
    FunctionDescription,
)
from pennon.namespace.operations import request_as, table_id
from pennon.namespace.views import ViewOperations
from pennon.views.model.definition import Definition


class ViewFunctionOperations(ViewOperations):
    """Tell which functions a view is made by."""

    def describe_view_functions(self, request: DescribeViewFunctionsRequest) -> DescribeViewFunctionsResponse:
        """Return the functions of a view, without loading them."""
        table, view = self._view(table_id(request_as(DescribeViewFunctionsRequest, request)))
        folder = self.services.storage_root.folder(table.location)
        found = []
        for use in Definition.from_json(view.definition).uses():
            envelope = stored_function(folder, use.reference, repr(table.name))
            known = {"name": envelope.name, "version": envelope.version, **known_of(envelope)}
            found.append(FunctionDescription(inputs=list(use.inputs), columns=list(use.columns), **known))
        return DescribeViewFunctionsResponse(functions=found)
