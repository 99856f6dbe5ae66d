"""Envelopes: the three forms, their checksums, and that reading one runs nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import platform
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pennon.functions import ErrorPolicy, read_envelope, udf


@udf(batch_size=7, error_policy=ErrorPolicy.skip(max_errors=1).retry(OSError), input_columns=["a.b", "`c.d`"])
def add(x: int, y: int) -> int:
    return x + y


class WritesAFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def changed(**entries: Any) -> bytes:
    return json.dumps({**json.loads(add.pack()), **entries}).encode()


def geneva(content: bytes, checksum: str | None = None) -> bytes:
    document = {
        "image": "repo",
        "tag": "1",
        "workspace_checksum": "",
        "udf_pickle": base64.b64encode(content).decode(),
        "udf_checksum": checksum or hashlib.sha256(content).hexdigest(),
    }
    return json.dumps(document).encode()


def test_an_envelope_says_all_that_was_declared() -> None:
    envelope = read_envelope(add.pack())
    assert (envelope.form, envelope.kind, envelope.stateful, envelope.name) == ("pennon", "scalar", False, "add")
    assert (envelope.inputs, envelope.outputs) == (("a.b", "`c.d`"), add.outputs)
    assert (envelope.options, envelope.error_policy) == (add.options, add.options.error_policy)
    assert envelope.sha256 == hashlib.sha256(envelope.pickle).hexdigest() == envelope.version == add.version
    assert (envelope.python, envelope.packages["pyarrow"]) == (platform.python_version(), pa.__version__)


def test_the_source_is_there_to_be_read_and_changes_nothing() -> None:
    envelope = read_envelope(add.pack())
    assert envelope.source is not None
    assert envelope.source.endswith("def add(x: int, y: int) -> int:\n    return x + y")
    without = json.loads(add.pack())
    del without["source"]
    older = read_envelope(json.dumps(without).encode())
    assert (older.source, older.digest) == (None, envelope.digest)
    assert read_envelope(changed(source="# 🦀")).source == "# 🦀"


def test_what_was_not_written_in_a_file_has_no_source() -> None:
    spaces: dict[str, Any] = {}
    exec("def twice(x: int) -> int:\n    return 2 * x", spaces)  # noqa: S102 (as a console does)
    assert read_envelope(udf(spaces["twice"]).pack()).source is None


@pytest.mark.parametrize(
    "data_type", [pa.list_(pa.float32(), 128), pa.large_string(), pa.timestamp("ns", "UTC"), pa.decimal128(9, 2)]
)
def test_any_type_survives(data_type: pa.DataType) -> None:
    envelope = read_envelope(udf(data_type=data_type)(lambda x: x).pack())
    assert envelope.outputs[0].data_type == data_type


def test_the_digest_follows_the_code_and_the_stated_version() -> None:
    def other(x: int, y: int) -> int:
        return x - y

    digests = [
        read_envelope(function.pack()).digest
        for function in (add, udf(add.plain), udf(other), udf(version="1")(other), udf(version="2")(other))
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


def test_reading_unpickles_in_no_form(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    content = pickle.dumps(WritesAFile(canary))
    checksum = hashlib.sha256(content).hexdigest()
    ours = changed(pickle=base64.b64encode(content).decode(), sha256=checksum)
    forms = [read_envelope(form) for form in (content, ours, geneva(content))]
    assert [(envelope.form, envelope.pickle) for envelope in forms] == [
        (form, content) for form in ("pickle", "pennon", "geneva")
    ]
    assert not canary.exists()
    pickle.loads(content)  # noqa: S301 - what reading did not do
    assert canary.exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_plain_pickle_is_called_once_a_row(protocol: int) -> None:
    envelope = read_envelope(pickle.dumps(len, protocol))
    assert (envelope.form, envelope.kind, envelope.python, envelope.inputs) == ("pickle", "scalar", None, ())
    assert envelope.digest == envelope.sha256


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "neither"),
        (b"hello", "neither"),
        (b"[1]", "neither"),
        (b"\x80\x05 cut short", "neither"),
        (b"\xff\xfe", "neither"),
        (b"[" * 100_000, "neither"),
        (b"{}", "neither in Pennon's form"),
        (changed(pennon=2), "format is 2, but this server supports 1"),
        (changed(kind="table"), "table"),
        (changed(sha256="0" * 64), "sha256 of its pickle"),
        (changed(pickle="?"), "not base64"),
        (changed(inputs=None), "inputs"),
        (changed(outputs=[{}]), "output"),
        (changed(outputs=[{"struct_field": "", "data_type": "AAAA"}]), "output"),
        (changed(source="\ud800"), "neither"),
        (changed(options={"speed": 1}), "speed"),
        (changed(options={"batch_size": "x"}), "batch_size"),
        (geneva(b"x", "0" * 64), "udf_checksum"),
    ],
)
def test_anything_else_is_a_value_error_that_says_why(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_envelope(content)
