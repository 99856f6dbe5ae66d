"""What the process that answers requests has loaded: nothing that runs or loads what users write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import sys
from pennon.namespace import PennonNamespace
from pennon.server import process, supervisor
from pennon.server.application import Application

namespace = PennonNamespace(directory=sys.argv[1])
Application(namespace)
namespace.close()
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"pyspark", "py4j"}))
loading = ("pennon.pipeline", "pennon.functions.loader", "pennon.functions.pickles", "pennon.functions.udf_calls")
print(*sorted(name for name in sys.modules if name.startswith(loading)))
"""


def test_neither_spark_nor_anything_that_unpickles_functions_is_loaded(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert ran.stdout.split() == []
