"""The output columns of a function, with their Arrow types as JSON."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pennon.core.arrow_messages import check_schema_message

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Output:
    """One output of a function: the whole result, or one field of it."""

    struct_field: str  # "" is the whole result
    data_type: pa.DataType
    nullable: bool = True

    def to_json(self) -> dict[str, object]:
        """Return the output as JSON; its type is an Arrow IPC schema message, which can express every type."""
        import pyarrow as pa

        message = pa.schema([pa.field("", self.data_type)]).serialize().to_pybytes()
        return {
            "struct_field": self.struct_field,
            "data_type": base64.b64encode(message).decode(),
            "nullable": self.nullable,
        }

    @classmethod
    def from_json(cls, document: Any) -> Output:  # unchecked JSON, read inside the try
        """Read an output from JSON."""
        import pyarrow as pa

        try:
            message = base64.b64decode(document["data_type"], validate=True)
            check_schema_message(message)
            data_type = pa.ipc.read_schema(pa.py_buffer(message)).field(0).type
            return cls(str(document["struct_field"]), data_type, bool(document.get("nullable", True)))
        except (KeyError, TypeError, ValueError, AttributeError, OSError, pa.ArrowException) as error:
            raise ValueError(f"An output of the function cannot be read: {error}.") from None


def outputs_of(data_type: pa.DataType) -> tuple[Output, ...]:
    """Return the outputs of a function that returns values of a type: one for each field of a struct, else one."""
    import pyarrow as pa

    if pa.types.is_struct(data_type):
        return tuple(Output(field.name, field.type) for field in data_type)
    return (Output("", data_type),)
