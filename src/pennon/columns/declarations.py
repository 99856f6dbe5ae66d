"""Declarations of feature columns: the metadata and the stored function that a worker runs later.

The server stores the bytes of a function and never loads them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from typing import TYPE_CHECKING, TypeAlias

from lance_namespace.errors import InvalidInputError

from pennon.core.identifiers import new_id
from pennon.tables.field_metadata import COMPUTED_INPUTS_KEY, COMPUTED_KEY, IDENTITY_KEY, INPUTS_KEY, KIND_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_namespace_urllib3_client.models import AddVirtualColumnEntry, AlterVirtualColumnEntry

    from pennon.storage.file_io import FileIO

    VirtualColumn: TypeAlias = AddVirtualColumnEntry | AlterVirtualColumnEntry

_FUNCTIONS = "_udfs"
_REFERENCE = re.compile(rf"{_FUNCTIONS}/[0-9a-f]{{64}}")


def store_function(folder: FileIO, column: VirtualColumn) -> str | None:
    """Store a function's bytes in the table's folder, named by their digest, and return the name."""
    check_manifest_checksum(column.manifest, column.manifest_checksum)
    if column.udf is None:
        return None
    try:
        content = base64.b64decode(column.udf, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInputError("The function ('udf') is not valid base64.") from None
    name = function_reference(content)
    folder.put_if_absent(name, content)
    return name


def function_reference(content: bytes) -> str:
    """Return the name of a function's bytes in the table's folder."""
    return f"{_FUNCTIONS}/{hashlib.sha256(content).hexdigest()}"


def check_manifest_checksum(manifest: str | None, checksum: str | None) -> None:
    """Reject a manifest that does not match its checksum."""
    if manifest is None or checksum is None:
        return
    actual = hashlib.sha256(manifest.encode()).hexdigest()
    if actual != checksum.lower():
        raise InvalidInputError(f"manifest_checksum is not the sha256 of the manifest: it must be {actual}.")


def read_function(folder: FileIO, reference: str) -> bytes:
    """Return a function's bytes; checks the name, which comes from metadata that clients can change."""
    if not _REFERENCE.fullmatch(reference):
        raise InvalidInputError(
            f"The column's metadata 'virtual_column.udf' is {reference[:100]!r}, which is no function of this table. "
            "Set the function with alter_columns."
        )
    try:
        content = folder.read(reference)
    except FileNotFoundError:
        raise InvalidInputError(
            "The stored function of the column was not found; set it again with alter_columns."
        ) from None
    if hashlib.sha256(content).hexdigest() != reference.rpartition("/")[2]:
        raise InvalidInputError("The stored function of the column was modified; set it again with alter_columns.")
    return content


def binding_metadata(column: VirtualColumn, reference: str | None) -> dict[str, str]:
    """Return the field metadata that binds a column to its function."""
    declared = {
        "virtual_column.udf": reference,
        "virtual_column.udf_name": column.udf_name,
        "virtual_column.udf_version": column.udf_version,
        "virtual_column.udf_backend": column.udf_backend,
        INPUTS_KEY: None if column.input_columns is None else json.dumps(list(column.input_columns)),
        "virtual_column.image": column.image,
        "virtual_column.auto_backfill": None if column.auto_backfill is None else str(column.auto_backfill).lower(),
        "virtual_column.manifest": column.manifest,
        "virtual_column.manifest_checksum": column.manifest_checksum,
    }
    user = getattr(column, "field_metadata", None) or {}
    given = {key: value for key, value in declared.items() if value is not None}
    return {**user, "virtual_column": "true", **given, **identity_metadata()}


def read_inputs(metadata: dict[str, str], key: str = INPUTS_KEY) -> list[str] | None:
    """Return the inputs in a column's metadata; None if they are missing or invalid, since clients can change it."""
    try:
        inputs = json.loads(metadata.get(key) or "null")
    except (ValueError, RecursionError):
        return None
    return inputs if isinstance(inputs, list) and all(isinstance(name, str) for name in inputs) else None


def identity_metadata() -> dict[str, str]:
    """Return metadata with a new, unique id for a column."""
    return {IDENTITY_KEY: new_id()}


def computed_metadata(expression: str, inputs: Sequence[str]) -> dict[str, str]:
    """Return the field metadata that binds a column to its SQL expression.

    LanceDB's client writes to a table only if every computed column has a kind.
    """
    declared = {"computed_column": "true", KIND_KEY: "sql", COMPUTED_KEY: expression}
    return {**declared, COMPUTED_INPUTS_KEY: json.dumps(list(inputs)), **identity_metadata()}
