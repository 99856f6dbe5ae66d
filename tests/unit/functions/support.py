"""Functions, appliers and interpreters for the tests of this folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from pennon.functions import Function, read_envelope
from pennon.functions.loader import load
from pennon.functions.udf_calls import Applier


def applier(function: Function[..., Any], **options: Any) -> Applier:
    """Return what applies a function, packed and loaded as on an executor; its columns are called like its outputs."""
    fields = [(output.struct_field or "value", output.data_type) for output in function.outputs]
    struct_fields = [output.struct_field for output in function.outputs]
    return Applier(load(read_envelope(function.pack())), function.inputs, pa.schema(fields), struct_fields, **options)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def run_python(code: str, *arguments: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run code in an interpreter of its own and return what it printed."""
    answer = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout
