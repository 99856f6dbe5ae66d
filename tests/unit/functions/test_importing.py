"""What importing the layer costs, in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.coverage import environment_without_coverage

_HEAVY = {"pickle", "cloudpickle", "pyspark", "lance", "pyarrow", "numpy", "pandas"}


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    command, environment = [sys.executable, "-c", code], environment_without_coverage()
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return set(answer.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import pennon.functions",
        "from pennon.functions import udf, ErrorPolicy, Function, Output, Envelope, read_envelope",
        "from pennon.functions.envelope import read_envelope; read_envelope(b'\\x80\\x05.')",
    ],
)
def test_importing_the_layer_imports_nothing_heavy(statement: str) -> None:
    assert not modules_after(statement) & _HEAVY


def test_declaring_and_packing_import_no_table_format_and_no_engine() -> None:
    statement = "from pennon.functions import udf\n@udf\ndef f(x: int) -> int: return x\nf.pack()"
    assert not modules_after(statement) & {"pyspark", "lance", "pandas"}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    import pennon.functions

    with pytest.raises(AttributeError, match="udff"):
        pennon.functions.udff  # noqa: B018
