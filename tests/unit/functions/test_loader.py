"""Loading: the environment is compared first, and a class is set up once."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import platform
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pennon.functions import read_envelope, udf
from pennon.functions.envelope import Envelope
from pennon.functions.loader import EnvironmentMismatchError, LoadingFailedError, load
from pennon.functions.udf_calls import Applier
from tests.unit.functions.support import applier, batch, run_python


@udf
def half(x: float) -> float:
    return float(np.divide(x, 2))


def envelope_of(thing: Any) -> Envelope:
    return read_envelope(thing.pack())


def test_a_loaded_function_is_called_as_it_was_declared() -> None:
    loaded = load(envelope_of(half))
    assert (loaded.name, loaded.call(3)) == ("half", 1.5)


def test_another_python_is_named_with_both_sides() -> None:
    with pytest.raises(
        EnvironmentMismatchError, match=rf"Python 3\.99\.1, this executor has {platform.python_version()}"
    ):
        load(replace(envelope_of(half), python="3.99.1"))
    load(replace(envelope_of(half), python=".".join([*platform.python_version().split(".")[:2], "99"])))


def test_all_packages_that_do_not_fit_are_named_with_both_sides() -> None:
    packages = {"numpy": "1.26.4", "no-such-package": "0.1", "pyarrow": "1.0", "cloudpickle": "3.0.0"}
    with pytest.raises(EnvironmentMismatchError) as raised:
        load(replace(envelope_of(half), packages=packages))
    assert f"numpy 1.26.4, this executor has {np.__version__}" in str(raised.value)
    assert "no-such-package 0.1, which this executor does not have" in str(raised.value)
    assert "pyarrow" not in str(raised.value)
    assert "cloudpickle" not in str(raised.value)


def test_a_package_that_is_missing_while_unpickling_is_named(tmp_path: Path) -> None:
    code = "import sys, pickle, types\nm = sys.modules['lost'] = types.ModuleType('lost')\n"
    code += "def f(x): return x\nf.__module__ = 'lost'\nm.f = f\nopen('packed', 'wb').write(pickle.dumps(f))"
    run_python(code, cwd=tmp_path)
    with pytest.raises(EnvironmentMismatchError, match="needs the package 'lost'"):
        load(read_envelope((tmp_path / "packed").read_bytes()))


def test_a_package_that_is_missing_in_the_first_call_is_named_whatever_the_policy() -> None:
    from pennon.functions import ErrorPolicy

    @udf(error_policy=ErrorPolicy.skip())
    def lazy(x: int) -> int:
        import not_there.at_all  # type: ignore[import-not-found]

        return int(not_there.at_all.f(x))

    with pytest.raises(EnvironmentMismatchError, match="needs the package 'not_there'"):
        applier(lazy).apply(batch(x=[1, 2]))


def test_geneva_is_missing_by_name() -> None:
    content = b"\x80\x05cgeneva.transformer\nUDF\n."
    document = {"udf_pickle": base64.b64encode(content).decode(), "udf_checksum": hashlib.sha256(content).hexdigest()}
    assert "geneva" not in sys.modules
    with pytest.raises(EnvironmentMismatchError, match="packed with geneva"):
        load(read_envelope(json.dumps(document).encode()))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pickle.dumps(7), "a int, which is not callable"),
        (b"\x80\x05cos\nno_such_name\n.", "no_such_name"),
        (b"\x80\x05.", "cannot be unpickled"),
        (b"\x80\x05csys\nexit\n(I3\ntR.", "SystemExit"),
    ],
)
def test_what_cannot_be_loaded_says_why(content: bytes, said: str) -> None:
    with pytest.raises(LoadingFailedError, match=said):
        load(read_envelope(content))


def test_a_class_is_constructed_and_set_up_once_a_process(tmp_path: Path) -> None:
    log = tmp_path / "log"

    class Logged:
        def __init__(self, path: str = "") -> None:
            self.path = path
            self._note("constructed")

        def setup(self) -> None:
            self._note("set up")

        def __call__(self, x: int) -> int:
            return x + 1

        def _note(self, text: str) -> None:
            with Path(self.path).open("a") as file:
                file.write(f"{text}\n")

    function = udf(Logged).constructed_with(path=str(log))
    for _ in range(3):
        assert applier(function).apply(batch(x=[1, 2])).values["value"].to_pylist() == [2, 3]
    assert log.read_text().split("\n") == ["constructed", "set up", ""]


def test_a_class_that_cannot_be_set_up_says_why() -> None:
    @udf
    class Broken:
        def setup(self) -> None:
            raise RuntimeError("no model")

        def __call__(self, x: int) -> int:
            return x

    with pytest.raises(LoadingFailedError, match="'Broken' cannot be set up: RuntimeError: no model"):
        load(envelope_of(Broken))


def test_a_plain_pickle_is_applied_row_by_row() -> None:
    loaded = load(read_envelope(pickle.dumps(divmod)))
    outputs = pa.schema({"quotient": pa.int32(), "rest": pa.int64()})
    values = Applier(loaded, ["x", "y"], outputs).apply(batch(x=[7, 9], y=[2, 5])).values
    assert values.schema == outputs
    assert values.to_pylist() == [{"quotient": 3, "rest": 1}, {"quotient": 1, "rest": 4}]
