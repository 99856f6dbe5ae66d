"""The envelope of a function: the bytes that are sent and stored, read without unpickling anything.

It has three forms: Pennon's own JSON, the plain pickle of a callable, and geneva's JSON around a pickle.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar, cast, get_args

from pennon.functions.error_policy import ErrorPolicy
from pennon.functions.options import Options
from pennon.functions.outputs import Output

Form = Literal["pennon", "pickle", "geneva"]
#: How a function is called: three kinds of UDFs, two of chunkers, and UDTFs.
Kind = Literal["scalar", "batch", "record_batch", "chunker", "batched_chunker", "udtf"]
#: The kinds of UDFs, which compute columns.
COLUMN_KINDS: tuple[Kind, ...] = ("scalar", "batch", "record_batch")

FORMAT = 1
_Document: TypeAlias = dict[str, object]
#: Escaped surrogates: JSON can hold unpaired ones, which cannot be encoded as UTF-8.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class Envelope:
    """The metadata of a function, available without loading it."""

    form: Form
    pickle: bytes = field(repr=False)
    sha256: str
    kind: Kind = "scalar"
    stateful: bool = False
    name: str = ""
    version: str = ""
    python: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ()
    options: Options = field(default_factory=Options)
    #: The source code, where it was available; to be shown, never run.
    source: str | None = None

    @property
    def error_policy(self) -> ErrorPolicy:
        """The error policy among the options."""
        return self.options.error_policy

    @property
    def digest(self) -> str:
        """A digest that changes with the function's code or stated version."""
        if self.version in ("", self.sha256):
            return self.sha256
        return hashlib.sha256(f"{self.sha256}:{self.version}".encode()).hexdigest()


def write_envelope(envelope: Envelope) -> bytes:
    """Return an envelope in Pennon's own form."""
    document = {
        "pennon": FORMAT,
        "kind": envelope.kind,
        "stateful": envelope.stateful,
        "name": envelope.name,
        "version": envelope.version,
        "pickle": base64.b64encode(envelope.pickle).decode(),
        "sha256": envelope.sha256,
        "python": envelope.python,
        "packages": dict(envelope.packages),
        "inputs": list(envelope.inputs),
        "outputs": [output.to_json() for output in envelope.outputs],
        "options": envelope.options.to_json(),
        **({} if envelope.source is None else {"source": envelope.source}),
    }
    return json.dumps(document, sort_keys=True).encode()


def read_envelope(content: bytes) -> Envelope:
    """Read an envelope in any of the three forms; raise ValueError if it is in none of them."""
    if content[:1] == b"\x80" and content[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05") and content[-1:] == b".":
        return Envelope("pickle", content, hashlib.sha256(content).hexdigest())
    document = _json_object(content)
    if "pennon" in document:
        return _read_pennon(document)
    if "udf_pickle" in document:
        return _read_geneva(document)
    if "chunker_payload" in document or "udtf_payload" in document:
        return _read_geneva_table_function(document)
    raise ValueError(
        "The function is JSON, but neither in Pennon's form ('pennon') nor in geneva's ('udf_pickle', "
        "'chunker_payload', 'udtf_payload'). Pack it with @pennon.udf."
    )


def _json_object(content: bytes) -> _Document:
    try:
        document = json.loads(content)
        if _SURROGATE.search(content):
            json.dumps(document, ensure_ascii=False).encode()  # raises for an unpaired surrogate
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ValueError(  # noqa: TRY004 - a bad document
            "The function is neither a JSON object nor a pickle of protocol 2 to 5. Pack it with @pennon.udf."
        )
    return document


def _read_pennon(document: _Document) -> Envelope:
    if document["pennon"] != FORMAT:
        raise ValueError(
            f"The function's format is {document['pennon']!r}, but this server supports {FORMAT}. Upgrade the server."
        )
    kind = _take(document, "kind", str)
    if kind not in get_args(Kind):
        raise ValueError(f"The function's kind is {kind!r}; it must be one of {', '.join(get_args(Kind))}.")
    content, checksum = _checked_pickle(document, "pickle", "sha256")
    return Envelope(
        form="pennon",
        pickle=content,
        sha256=checksum,
        kind=cast(Kind, kind),  # checked above
        stateful=_take(document, "stateful", bool),
        name=_take(document, "name", str),
        version=_take(document, "version", str),
        python=_take(document, "python", str),
        packages=_take_texts(document, "packages"),
        inputs=tuple(map(str, _take(document, "inputs", list))),
        outputs=tuple(Output.from_json(output) for output in _take(document, "outputs", list)),
        options=Options.from_json(document.get("options", {})),
        source=_take(document, "source", str) if document.get("source") is not None else None,
    )


def _read_geneva(document: _Document) -> Envelope:
    content, checksum = _checked_pickle(document, "udf_pickle", "udf_checksum")
    # geneva's functions take a record batch and select their columns themselves.
    return Envelope("geneva", content, checksum, kind="record_batch")


def _read_geneva_table_function(document: _Document) -> Envelope:
    key = "chunker_payload" if "chunker_payload" in document else "udtf_payload"
    content = _decode(document, key)
    batch = document.get("batch") is True
    return Envelope(
        form="geneva",
        pickle=content,
        sha256=hashlib.sha256(content).hexdigest(),
        kind="udtf" if key == "udtf_payload" else "batched_chunker" if batch else "chunker",
        name=str(document.get("name") or ""),
        version=str(document.get("version") or ""),
        inputs=tuple(map(str, cast("list[object]", document.get("input_columns") or ()))),
    )


def _checked_pickle(document: _Document, key: str, checksum_key: str) -> tuple[bytes, str]:
    content = _decode(document, key)
    expected, actual = _take(document, checksum_key, str), hashlib.sha256(content).hexdigest()
    if expected.lower() != actual:
        raise ValueError(f"The function's {checksum_key!r} is {expected}, but the sha256 of its pickle is {actual}.")
    return content, actual


def _decode(document: _Document, key: str) -> bytes:
    text = _take(document, key, str)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"The function's {key!r} is not base64: {error}.") from None


_Taken = TypeVar("_Taken")


def _take(document: _Document, key: str, kind: type[_Taken]) -> _Taken:
    value = document.get(key)
    if not isinstance(value, kind):
        raise ValueError(f"The function's {key!r} is missing or has the wrong type.")  # noqa: TRY004 - a bad document
    return value


def _take_texts(document: _Document, key: str) -> dict[str, str]:
    return {str(name): str(value) for name, value in _take(document, key, dict).items()}
