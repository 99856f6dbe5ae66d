"""Pennon's programs load the protocol's models, and the HTTP client beside them only for those who ask for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PACKAGE = "lance_namespace_urllib3_client"


def run(code: str) -> str:
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("program", ["pennon.cli.main", "pennon.server.supervisor"])
def test_a_program_loads_no_client(program: str) -> None:
    loaded = f"print(*(name for name in ('models', 'api', 'api_client') if f'{PACKAGE}.{{name}}' in sys.modules))"
    assert run(f"import sys, {program}; {loaded}") == "models\n"


@pytest.mark.parametrize("asking", [f"from {PACKAGE} import TableApi", f"from {PACKAGE}.api import TableApi"])
def test_who_asks_for_the_client_gets_it(asking: str) -> None:
    more = f"from {PACKAGE} import ApiClient, CreateTableRequest, models"
    same = "assert CreateTableRequest is models.CreateTableRequest"
    assert run(f"import pennon.cli\n{asking}\n{more}\n{same}\nprint(TableApi.__name__)") == "TableApi\n"


def test_a_client_that_is_there_already_stays() -> None:
    code = f"import {PACKAGE} as before, pennon.cli, sys; print(sys.modules['{PACKAGE}'] is before)"
    assert run(code) == "True\n"
