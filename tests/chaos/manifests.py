"""Manifests made by hand: the smallest that the commit authority takes for one, each unlike any other."""

from __future__ import annotations

import struct
import uuid

HIGHEST = 2**64 - 1


def manifest_name(version: int) -> str:
    """Return the final name of a version's manifest."""
    return f"{HIGHEST - version:020d}.manifest"


def staged_name(version: int) -> str:
    """Return a fresh name for a staged manifest of a version."""
    return f"{manifest_name(version)}-{uuid.uuid4()}"


def make_manifest(version: int, branch: str = "") -> bytes:
    """Return a manifest of a version without data; a unique note in it tells it from every other."""
    body = b"\x18" + _varint(version) + _text(12, str(uuid.uuid4()))
    if branch:
        body += _text(20, branch)
    return struct.pack("<I", len(body)) + body + struct.pack("<QHH4s", 0, 0, 2, b"LANC")


def _text(field: int, value: str) -> bytes:
    encoded = value.encode()
    return _varint(field << 3 | 2) + _varint(len(encoded)) + encoded


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
