"""Importing Pennon costs next to nothing; what it promises is loaded when it is used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ["lancedb", "lance", "pyarrow", "numpy", "cloudpickle", "pickle", "rich", "urllib3", "pydantic", "pyspark"]


def run(code: str) -> str:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def loaded_after(statement: str) -> list[str]:
    after = "print(json.dumps(sorted(set(sys.modules) - before)))"
    found = json.loads(run(f"import json, sys\nbefore = set(sys.modules)\n{statement}\n{after}"))
    return [name for name in found if name in HEAVY or name.startswith("pennon.")]


def test_importing_pennon_imports_nothing_else() -> None:
    assert loaded_after("import pennon; pennon.__version__; dir(pennon)") == []


def test_a_function_is_declared_without_a_client() -> None:
    assert not {"lancedb", "urllib3", "pennon.client"} & set(loaded_after("from pennon import udf, ErrorPolicy"))


def test_jobs_are_known_without_lancedb() -> None:
    assert "lancedb" not in loaded_after("from pennon import Job, connect, computed")


def test_every_public_name_can_be_imported() -> None:
    code = "import pennon\nfor name in pennon.__all__: assert getattr(pennon, name) and name in dir(pennon)"
    run(code)
    run("from pennon import *\nconnect, udf, ErrorPolicy, Job, computed")


def test_an_unknown_name_is_an_attribute_error() -> None:
    import pennon

    with pytest.raises(AttributeError, match="has no attribute 'conect'"):
        pennon.conect  # noqa: B018


def test_a_missing_lancedb_is_named() -> None:
    code = """
import sys
sys.modules["lancedb"] = None
import pennon
try:
    pennon.connect()
except ImportError as error:
    print(error)
"""
    assert "pip install lancedb" in run(code)
