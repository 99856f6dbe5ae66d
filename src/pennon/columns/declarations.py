"""What a table remembers of a column that a function or an expression fills: stored here, run by a worker later.

The bytes of a function are stored as they come and never loaded by the server.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import InvalidInputError

from pennon.core.identifiers import new_id
from pennon.tables.field_metadata import COMPUTED_INPUTS_KEY, COMPUTED_KEY, IDENTITY_KEY, INPUTS_KEY, KIND_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pennon.storage.file_io import FileIO

_FUNCTIONS = "_udfs"
_REFERENCE = re.compile(rf"{_FUNCTIONS}/[0-9a-f]{{64}}")


def store_function(folder: FileIO, column: Any) -> str | None:
    """Keep a function's bytes in the table's folder, by their digest, and return their name there."""
    check_manifest_checksum(column.manifest, column.manifest_checksum)
    if column.udf is None:
        return None
    try:
        content = base64.b64decode(column.udf, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInputError("The function ('udf') is not base64.") from None
    name = function_reference(content)
    folder.put_if_absent(name, content)
    return name


def function_reference(content: bytes) -> str:
    """Return the name of a function's bytes in the folder of the table that keeps them."""
    return f"{_FUNCTIONS}/{hashlib.sha256(content).hexdigest()}"


def check_manifest_checksum(manifest: str | None, checksum: str | None) -> None:
    """Refuse a manifest that is not the one its checksum was made of."""
    if manifest is None or checksum is None:
        return
    actual = hashlib.sha256(manifest.encode()).hexdigest()
    if actual != checksum.lower():
        raise InvalidInputError(f"manifest_checksum is not the sha256 of the manifest, which is {actual}.")


def read_function(folder: FileIO, reference: str) -> bytes:
    """Return a function's bytes; the name comes from metadata that clients may change, so it is not trusted."""
    if not _REFERENCE.fullmatch(reference):
        raise InvalidInputError("The column's metadata names no function of this table ('virtual_column.udf').")
    try:
        content = folder.read(reference)
    except FileNotFoundError:
        raise InvalidInputError("The function of the column is gone; give it one with alter_columns.") from None
    if hashlib.sha256(content).hexdigest() != reference.rpartition("/")[2]:
        raise InvalidInputError("The stored function of the column was changed; give it one with alter_columns.")
    return content


def binding_metadata(column: Any, reference: str | None) -> dict[str, str]:
    """Return the field metadata that ties a column to its function."""
    stated = {
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
    known = {key: value for key, value in stated.items() if value is not None}
    return {**user, "virtual_column": "true", **known, **identity_metadata()}


def read_inputs(metadata: dict[str, str], key: str = INPUTS_KEY) -> list[str] | None:
    """Return the inputs that a column's metadata names; clients may change it, so that it may name none."""
    try:
        inputs = json.loads(metadata.get(key) or "null")
    except (ValueError, RecursionError):
        return None
    return inputs if isinstance(inputs, list) and all(isinstance(name, str) for name in inputs) else None


def identity_metadata() -> dict[str, str]:
    """Return what tells a column from all others that ever were."""
    return {IDENTITY_KEY: new_id()}


def computed_metadata(expression: str, inputs: Sequence[str]) -> dict[str, str]:
    """Return the field metadata that ties a column to the SQL expression that fills it.

    LanceDB's client writes to a table only if it finds the kind of every computed column.
    """
    declared = {"computed_column": "true", KIND_KEY: "sql", COMPUTED_KEY: expression}
    return {**declared, COMPUTED_INPUTS_KEY: json.dumps(list(inputs)), **identity_metadata()}
