"""The manifest of a function's environment: the packages, modules and environment variables it needs.

A manifest comes from a client, and its entries reach command lines, file names and process environments on the worker's
host. The same code therefore checks it twice: in the API process when it arrives, and in the worker before anything is
installed.

Executors import this module, so ``packaging`` is imported where it is used.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.parser import HeaderParser
from pathlib import PurePosixPath
from urllib.parse import SplitResult, unquote, urlsplit

KEYS = frozenset(
    [
        "checksum",
        "conda",
        "conda_environment_path",
        "env_vars",
        "head_image",
        "name",
        "pip",
        "pip_extra_index_urls",
        "py_modules",
        "requirements_path",
        "skip_site_packages",
        "version",
        "worker_image",
        "zips",
    ]
)
_UNSUPPORTED = ("conda", "conda_environment_path", "requirements_path", "zips")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}\.(py|zip|whl)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_RESERVED_PREFIXES = ("SPARK_", "PYSPARK_", "PYTHON_", "PENNON_", "PIP_", "JAVA_", "_JAVA")
#: Variables that decide what a new process loads before its own program.
_RESERVED = frozenset(["LD_PRELOAD", "LD_AUDIT", "PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "HOME"])
_HASH = re.compile(r"sha(256|384|512)=[0-9A-Fa-f]+")
_ARCHIVES = (".whl", ".zip", ".tar", ".gz", ".bz2", ".xz", ".tgz", ".tbz", ".txz", ".egg")
_MAX_ENTRY_LENGTH = 2000
_MAX_ENTRIES = 500
_MAX_VARIABLE_BYTES = 64 * 1024
#: Total unpacked size of the zip files in one manifest.
_MAX_UNPACKED_BYTES = 1024**3


class ManifestError(ValueError):
    """A manifest needs something that is not allowed or cannot be installed."""


@dataclass(frozen=True)
class EnvironmentManifest:
    """A checked manifest."""

    #: Normalized requirements: packages with versions, and wheels by URL.
    requirements: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    #: Files contained in the manifest, by name: .py and .zip are modules, .whl packages.
    modules: dict[str, bytes] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


def read_manifest(
    text: str, checksum: str | None = None, *, allowed_indexes: Sequence[str] = ()
) -> EnvironmentManifest:
    """Read and check a manifest.

    Args:
        text: A JSON object.
        checksum: The sha256 of the text, if known.
        allowed_indexes: URLs of package indexes; if there are any, packages and wheels may only come from them.
    """
    actual = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    if checksum is not None and checksum.lower() != actual:
        raise ManifestError(f"The sha256 of the manifest is {actual}, not {checksum}.")
    manifest = _read_object(text)
    for key in _UNSUPPORTED:
        if manifest.get(key):
            raise ManifestError(f"The manifest uses {key!r}, which is not supported; use 'pip' instead.")
    modules = _list(manifest, "py_modules")
    wheels = [_wheel(entry) for entry in modules if isinstance(entry, str)]
    return EnvironmentManifest(
        requirements=tuple(_requirement(entry, allowed_indexes) for entry in [*_list(manifest, "pip"), *wheels]),
        indexes=tuple(_index(entry, allowed_indexes) for entry in _list(manifest, "pip_extra_index_urls")),
        modules=_modules([entry for entry in modules if not isinstance(entry, str)], allowed_indexes),
        variables=_variables(manifest.get("env_vars")),
    )


def _read_object(text: str) -> dict[str, object]:
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"The manifest is not JSON: {error}. Send the text of a JSON object.") from error
    if not isinstance(manifest, dict):
        raise ManifestError("The manifest is not a JSON object. Named manifests are not supported.")
    return manifest


def _list(manifest: dict[str, object], key: str) -> list[object]:
    value = manifest.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ManifestError(f"The manifest's {key!r} must be a list.")
    if len(value) > _MAX_ENTRIES:
        raise ManifestError(f"The manifest's {key!r} has {len(value)} entries; at most {_MAX_ENTRIES} are allowed.")
    return value


def _text(entry: object, what: str) -> str:
    """Return an entry as text that is safe to show and to pass on: bounded, without control characters."""
    text = entry.strip() if isinstance(entry, str) else ""
    if not text or len(text) > _MAX_ENTRY_LENGTH or not text.isprintable():
        shown = repr(entry)[:100]
        raise ManifestError(
            f"{shown} in the manifest's {what} is not a string of 1 to {_MAX_ENTRY_LENGTH} printable characters."
        )
    return text


def _requirement(entry: object, allowed: Sequence[str]) -> str:
    """Normalize a requirement: a package with versions or a wheel by URL, never anything that pip would build."""
    from packaging.requirements import InvalidRequirement, Requirement

    text = _text(entry, "'pip'")
    if "://" in text.partition("@")[0]:
        _check_wheel_url(text, allowed)
        return text
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise _refused(text) from None
    if requirement.url is not None:
        _check_wheel_url(requirement.url, allowed)
    elif requirement.name.lower().endswith(_ARCHIVES):  # pip would look for a file of that name
        raise _refused(text)
    return str(requirement)


def _refused(text: str) -> ManifestError:
    return ManifestError(
        f"{text!r} is neither a package with versions, such as 'numpy>=2', nor the http(s) URL of a wheel (*.whl). "
        "pip options, paths, version control URLs and source archives are not allowed: they would run code on the "
        "worker."
    )


def _check_wheel_url(url: str, allowed: Sequence[str]) -> None:
    """Reject a URL whose path does not name a wheel, whatever its query or fragment."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    parts = _http_parts(url)
    try:
        parse_wheel_filename(PurePosixPath(unquote(parts.path)).name)
    except (InvalidWheelFilename, ValueError):
        raise _refused(url) from None
    if parts.fragment and not _HASH.fullmatch(parts.fragment):
        raise ManifestError(f"The fragment of {url!r} is not a hash; only '#sha256=…' may follow a wheel's URL.")
    if allowed and not any(_is_below(parts, _http_parts(index)) for index in allowed):
        raise ManifestError(
            f"The wheel {url!r} is not below a package index that this server allows (setting 'package_indexes'): "
            f"{_shown(allowed)}. Name the package in 'pip' instead."
        )


def _http_parts(url: str) -> SplitResult:
    """Split an http(s) URL; reject all others, and URLs that servers and pip may parse differently."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_host = False
    if (
        not has_host
        or parts.scheme not in ("http", "https")
        or re.search(r"[\s\\;]|\$\{", url)
        or not unquote(parts.path).isprintable()
    ):
        raise _refused(url)
    return parts


def _shown(indexes: Sequence[str]) -> str:
    """List the URLs of indexes without credentials."""
    parts = [urlsplit(index) for index in indexes]
    return ", ".join(part._replace(netloc=part.netloc.rpartition("@")[2]).geturl() for part in parts)


def _is_below(parts: SplitResult, index: SplitResult) -> bool:
    path = unquote(parts.path)
    same_host = (parts.scheme, parts.hostname, parts.port) == (index.scheme, index.hostname, index.port)
    folder = unquote(index.path).rstrip("/") + "/"
    return same_host and path.startswith(folder) and ".." not in path.split("/")


def _wheel(entry: str) -> str:
    if not entry.lower().startswith(("http://", "https://")):
        raise ManifestError(
            f"The module {entry!r} is neither the http(s) URL of a wheel (*.whl) nor an object with name and content. "
            "Files on the worker's host cannot be used; send the content."
        )
    return entry


def _index(entry: object, allowed: Sequence[str]) -> str:
    url = _text(entry, "'pip_extra_index_urls'")
    if not url.startswith(("https://", "http://")):
        raise ManifestError(f"The package index {url!r} is not an http(s) URL.")
    _http_parts(url)
    if allowed and url.rstrip("/") not in {known.rstrip("/") for known in allowed}:
        raise ManifestError(
            f"The package index {url!r} is not one that this server allows (setting 'package_indexes'): "
            f"{_shown(allowed)}."
        )
    return url


def _modules(entries: list[object], allowed: Sequence[str]) -> dict[str, bytes]:
    modules: dict[str, bytes] = {}
    unpacked = 0
    for entry in entries:
        name, content = _module(entry)
        if name in modules:
            raise ManifestError(f"The manifest has two modules named {name!r}.")
        if not name.endswith(".py"):
            unpacked += _unpacked_bytes(name, content)
        if name.endswith(".whl"):
            _check_wheel(name, content, allowed)
        modules[name] = content
    if unpacked > _MAX_UNPACKED_BYTES:
        raise ManifestError(
            f"The zip files of the manifest unpack to {unpacked} bytes; at most {_MAX_UNPACKED_BYTES} are allowed. "
            "Publish large packages as wheels and list them in 'pip'."
        )
    return modules


def _module(entry: object) -> tuple[str, bytes]:
    """Read a file from the manifest: a Python file, a zip file of modules and packages, or a wheel."""
    try:
        name, content = str(entry["name"]), base64.b64decode(entry["content"], validate=True)  # type: ignore[index]
    except (TypeError, KeyError, ValueError) as error:
        raise ManifestError("A module of the manifest needs a 'name', and its 'content' in base64.") from error
    if not _MODULE.fullmatch(name):
        raise ManifestError(f"The module {name[:200]!r} must be a .py, .zip or .whl file with a plain name.")
    return name, content


def _unpacked_bytes(name: str, content: bytes) -> int:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise ManifestError(f"The content of the module {name!r} is not a zip file.") from error


def _check_wheel(name: str, content: bytes, allowed: Sequence[str]) -> None:
    """Reject a wheel with dependencies that a manifest may not have."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        parse_wheel_filename(name)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            found = [entry for entry in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", entry)]
            headers = HeaderParser().parsestr(archive.read(found[0]).decode("utf-8", "replace"))
    except (InvalidWheelFilename, IndexError, KeyError, RuntimeError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise ManifestError(f"The module {name!r} is not a wheel: its name or its metadata cannot be read.") from error
    for dependency in headers.get_all("Requires-Dist") or []:
        _requirement(dependency, allowed)


def _variables(given: object) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ManifestError("The manifest's 'env_vars' must be an object.")
    for name, value in given.items():
        if not isinstance(value, str) or re.search("[\0\ud800-\udfff]", value):
            raise ManifestError(f"The value of {name[:200]!r} in 'env_vars' must be a string without NUL.")
        if not _VARIABLE.fullmatch(name) or name.startswith(_RESERVED_PREFIXES) or name in _RESERVED:
            raise ManifestError(f"The environment variable {name[:200]!r} is reserved, or not a valid name.")
    if sum(len(name) + len(value) for name, value in given.items()) > _MAX_VARIABLE_BYTES:
        raise ManifestError(f"The manifest's 'env_vars' have more than {_MAX_VARIABLE_BYTES} characters.")
    return given
