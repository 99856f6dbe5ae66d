"""Pickles: what they carry along, and that the same code is the same pickle."""

from __future__ import annotations

import os
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from pennon.functions import read_envelope, udf
from tests.unit.functions.support import run_python

SCRIPT = """
import sys
from typing import NamedTuple
from pennon.functions import udf
import helpers
from helpers import double
from package.nested import triple

class Pair(NamedTuple):
    a: int
    b: str

@udf
class Both:
    def __init__(self):
        self.offset = helpers.OFFSET

    def __call__(self, x: int) -> Pair:
        return Pair(double(x) + triple(x) + later(x) + self.offset, "b")

def later(x):
    return x

open(sys.argv[1], "wb").write(Both.pack())
"""

APPLY = """
import sys
import pyarrow as pa
from pennon.functions import read_envelope
from pennon.functions.loader import load
from pennon.functions.udf_calls import Applier
loaded = load(read_envelope(open(sys.argv[1], "rb").read()))
outputs = pa.schema({"a": pa.int64(), "b": pa.string()})
print(Applier(loaded, ["x"], outputs).apply(pa.RecordBatch.from_pydict({"x": [1, 2]})).values.to_pylist())
"""


def write_project(folder: Path) -> None:
    (folder / "package").mkdir(parents=True)
    (folder / "script.py").write_text(SCRIPT)
    (folder / "helpers.py").write_text(
        "OFFSET = 100\n\ndef double(x):\n    return 2 * one(x)\n\ndef one(x):\n    return x\n"
    )
    (folder / "package/__init__.py").touch()
    (folder / "package/nested.py").write_text("def triple(x):\n    return 3 * x\n")


def test_code_that_is_not_installed_comes_along(tmp_path: Path) -> None:
    write_project(tmp_path / "project")
    (tmp_path / "elsewhere").mkdir()
    packed = tmp_path / "packed"
    run_python("exec(open('script.py').read())", str(packed), cwd=tmp_path / "project")
    answer = run_python(APPLY, str(packed), cwd=tmp_path / "elsewhere")
    assert answer.strip() == "[{'a': 106, 'b': 'b'}, {'a': 112, 'b': 'b'}]"


def test_the_same_code_is_the_same_pickle_wherever_it_is_written(tmp_path: Path) -> None:
    pickles = []
    for seed, folder, before in [("1", "here", ""), ("2", "there", ""), ("3", "again", "# moved down\n\n")]:
        project = tmp_path / folder
        write_project(project)
        (project / "script.py").write_text(before + SCRIPT)
        for run in ("compiled now", "compiled before"):
            packed = project / run
            env = {**os.environ, "PYTHONHASHSEED": seed}
            run_python(
                "import runpy; runpy.run_path('script.py', run_name='__main__')", str(packed), cwd=project, env=env
            )
            pickles.append(read_envelope(packed.read_bytes()).pickle)
    assert len(set(pickles)) == 1
    assert str(tmp_path).encode() not in pickles[0]


def test_other_code_is_another_pickle(tmp_path: Path) -> None:
    write_project(tmp_path)
    versions = []
    for factor in ("3", "44"):  # of another size: Python takes a bytecode file by the size and the second of the source
        (tmp_path / "package/nested.py").write_text(f"def triple(x):\n    return {factor} * x\n")
        run_python("exec(open('script.py').read())", str(tmp_path / "packed"), cwd=tmp_path)
        versions.append(read_envelope((tmp_path / "packed").read_bytes()).version)
    assert len(set(versions)) == 2


def test_modules_that_the_manifest_ships_are_left_to_it(tmp_path: Path) -> None:
    write_project(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT.replace("@udf\n", "@udf(manifest={'py_modules': ['lib/helpers.py']})\n"))
    run_python("exec(open('script.py').read())", str(tmp_path / "packed"), cwd=tmp_path)
    content = read_envelope((tmp_path / "packed").read_bytes()).pickle
    assert b"helpers" in content
    assert b"OFFSET" in content  # the name that the class reads, but not the module's other functions
    assert b"one" not in content


def test_the_registry_of_cloudpickle_is_left_as_it_was() -> None:
    import tests.unit.functions.support as module

    cloudpickle.register_pickle_by_value(module)
    try:
        before = cloudpickle.list_registry_pickle_by_value()
        udf(scaled).pack()
        assert cloudpickle.list_registry_pickle_by_value() == before
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def scaled(x: float) -> float:
    return float(np.float64(x) * 2)


def plain(x: float) -> float:
    return x


def test_packages_that_the_function_refers_to_are_named_with_their_versions() -> None:
    assert read_envelope(udf(scaled).pack()).packages["numpy"] == np.__version__
    assert read_envelope(udf(plain).pack()).packages.keys() == {"cloudpickle", "pyarrow"}
