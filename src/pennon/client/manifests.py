"""Environment manifests in requests, with the content of the local module files they name."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

_FILES = (".py", ".whl", ".zip")


def manifest_text(manifest: Mapping[str, object] | str | None) -> str | None:
    """Return a manifest as JSON, with the content of the local files it names; a string is returned unchanged."""
    if manifest is None or isinstance(manifest, str):
        return manifest
    document = dict(manifest)
    if isinstance(modules := document.get("py_modules"), list | tuple):
        document["py_modules"] = [_with_content(entry) for entry in modules]
    return json.dumps(document, sort_keys=True)


class ManifestFields(TypedDict):
    """The environment of a function in a request."""

    manifest: str | None
    manifest_checksum: str | None


def manifest_fields(manifest: Mapping[str, object] | None) -> ManifestFields:
    """Return the fields of a request that describe the environment of a function."""
    text = manifest_text(manifest)
    checksum = None if text is None else hashlib.sha256(text.encode()).hexdigest()
    return {"manifest": text, "manifest_checksum": checksum}


def _with_content(entry: object) -> object:
    """Return a local file with its content; a wheel's URL is returned unchanged."""
    if not isinstance(entry, str) or not entry.endswith(_FILES) or entry.startswith(("http://", "https://")):
        return entry
    path = Path(entry)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"Cannot read the module {entry!r} of the manifest: {error.strerror}.") from None
    return {"name": path.name, "content": base64.b64encode(content).decode()}
