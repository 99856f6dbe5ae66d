"""Manifests of environments, as requests carry them: modules that lie on this machine travel along."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FILES = (".py", ".whl", ".zip")


def manifest_text(manifest: Mapping[str, Any] | str | None) -> str | None:
    """Return a manifest as the text that is sent, with the content of the files it names; text is sent as it is."""
    if manifest is None or isinstance(manifest, str):
        return manifest
    stated = dict(manifest)
    if isinstance(modules := stated.get("py_modules"), list | tuple):
        stated["py_modules"] = [_with_content(entry) for entry in modules]
    return json.dumps(stated, sort_keys=True)


def manifest_fields(manifest: Mapping[str, Any] | None) -> dict[str, str | None]:
    """Return the fields of a request that say which environment a function has."""
    text = manifest_text(manifest)
    checksum = None if text is None else hashlib.sha256(text.encode()).hexdigest()
    return {"manifest": text, "manifest_checksum": checksum}


def _with_content(entry: Any) -> Any:
    """Return a module as the worker reads it: the content of a file of this machine, or the URL of a wheel."""
    if not isinstance(entry, str) or not entry.endswith(_FILES) or entry.startswith(("http://", "https://")):
        return entry
    path = Path(entry)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"The module {entry!r} of the manifest cannot be read: {error.strerror}.") from None
    return {"name": path.name, "content": base64.b64encode(content).decode()}
