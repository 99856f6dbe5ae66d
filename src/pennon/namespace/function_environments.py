"""Checks of the environments that requests ask for, before a job is made of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError

from pennon.core.errors import suggest
from pennon.functions.environment_manifest import KEYS, ManifestError, read_manifest

if TYPE_CHECKING:
    from pennon.core.settings import Settings


def check_manifest(text: str | None, settings: Settings) -> None:
    """Refuse a manifest that the worker would refuse, and keys that nobody reads."""
    if text is None:
        return
    try:
        read_manifest(text, allowed_indexes=settings.package_indexes)
    except ManifestError as error:
        raise InvalidInputError(str(error)) from None
    unknown = sorted(json.loads(text).keys() - KEYS)
    if unknown:
        hint = suggest(unknown[0], KEYS)
        raise InvalidInputError(f"The manifest has a key that is not known: {unknown[0]!r}.{hint}")
