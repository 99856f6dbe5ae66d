"""The environment of a function: the packages, modules and variables that its manifest asks for.

It is built once per content, by the driver, and shipped to the executors. Packages are installed from wheels only:
building one from source would run its code beside the driver. What Pennon and Spark themselves use is pinned to the
versions that are there, for a Python worker has them loaded already.

Python workers are never shared between environments, so nothing has to be unloaded: Spark keeps workers with different
variables apart, and a Connect server those of different sessions.

This module is imported by executors: nothing heavy is imported at its top.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pennon.pipeline.patience import Check, always, attend

MARK = "PENNON_ENVIRONMENT"

_LOADED = ("cloudpickle", "numpy", "pandas", "py4j", "pyarrow", "pylance", "pyspark")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[^\]]*\])?\s*([<>=!~][^;@]*)?(;.*)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = ("SPARK_", "PYSPARK_", "PYTHON_", "PENNON_")
_UNSUPPORTED = ("conda", "conda_environment_path", "requirements_path", "zips")
_LAST_LINES = 12


class ManifestError(ValueError):
    """A manifest asks for something that cannot be; the message says what."""


class BuildError(Exception):
    """An environment could not be built; the message has pip's last words."""


@dataclass(frozen=True)
class Environment:
    """What a function needs beside Pennon: wheels and other requirements, modules by name, and variables."""

    requirements: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    modules: dict[str, bytes] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, checksum: str | None = None) -> Environment:
        """Read a manifest, a JSON object; the checksum, if given, is the sha256 of its text."""
        actual = hashlib.sha256(text.encode()).hexdigest()
        if checksum is not None and checksum.lower() != actual:
            raise ManifestError(f"The checksum of the manifest is {actual}, not {checksum}.")
        manifest = _read_object(text)
        for key in _UNSUPPORTED:
            if manifest.get(key):
                raise ManifestError(f"The manifest uses {key!r}, which Pennon cannot install; use 'pip' instead.")
        modules = _list(manifest, "py_modules")
        wheels = [entry for entry in modules if isinstance(entry, str)]
        return cls(
            requirements=tuple(_requirement(entry) for entry in [*_list(manifest, "pip"), *map(_wheel, wheels)]),
            indexes=tuple(_index(entry) for entry in _list(manifest, "pip_extra_index_urls")),
            modules=dict(_module(entry) for entry in modules if not isinstance(entry, str)),
            variables=_variables(manifest.get("env_vars") or {}),
        )

    @property
    def is_empty(self) -> bool:
        """Whether it asks for nothing."""
        return not (self.requirements or self.modules or self.variables)

    @property
    def checksum(self) -> str:
        """What tells it from others: its content, and the Python and packages it is built for."""
        content = {
            "requirements": self.requirements,
            "indexes": self.indexes,
            "modules": {name: hashlib.sha256(data).hexdigest() for name, data in self.modules.items()},
            "variables": self.variables,
            "python": [sys.platform, *sys.version_info[:2]],
            "pins": _pins(),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def install(self, target: Path, check: Check = always) -> None:
        """Put everything into a new folder, for as long as the check lets it."""
        target.mkdir()
        for name, data in self.modules.items():
            if name.endswith(".py"):
                (target / name).write_bytes(data)
            else:
                zipfile.ZipFile(io.BytesIO(data)).extractall(target)
        if self.requirements:
            _pip_install(self.requirements, self.indexes, target, check)


@dataclass(frozen=True)
class Shipped:
    """An environment as an executor finds it."""

    checksum: str
    variables: dict[str, str]
    #: Where its files are: a folder that the executor can see, or the name of an archive that Spark unpacked for it.
    folder: str | None = None
    archive: str | None = None

    @property
    def marks(self) -> dict[str, str]:
        """The variables that Python workers of this environment are started with."""
        return {**self.variables, MARK: self.checksum}


def activate(shipped: Shipped) -> None:
    """Make this Python worker one of an environment, for the rest of its life."""
    global _active  # noqa: PLW0603 (once a process)
    if _active == shipped.checksum:
        return
    if _active is not None:
        raise RuntimeError("This Python worker has another environment; Spark should not have shared it.")
    os.environ.update(shipped.variables)
    folder = _find(shipped)
    if folder is not None:
        if not folder.is_dir():
            raise FileNotFoundError(f"The environment of the function is not on this executor: {folder} is missing.")
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
    _active = shipped.checksum


_active: str | None = None


def _find(shipped: Shipped) -> Path | None:
    if shipped.archive is None:
        return Path(shipped.folder) if shipped.folder else None
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory(), shipped.archive).absolute()


def _read_object(text: str) -> dict[str, Any]:
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise ManifestError(f"The manifest is not JSON: {error}.") from error
    if not isinstance(manifest, dict):
        raise ManifestError("The manifest is not a JSON object.")
    return manifest


def _list(manifest: dict[str, Any], key: str) -> list[Any]:
    value = manifest.get(key) or []
    if not isinstance(value, list):
        raise ManifestError(f"{key!r} of the manifest is not a list.")
    return value


def _requirement(entry: object) -> str:
    """Check that an entry names a package or a wheel: nothing that pip would take for an option or would build."""
    text = entry.strip() if isinstance(entry, str) else ""
    if text and not text.startswith("-") and (text.endswith(".whl") or _REQUIREMENT.fullmatch(text)):
        return text
    raise ManifestError(f"{entry!r} is neither a package with versions, such as 'numpy>=2', nor a wheel (*.whl).")


def _wheel(entry: str) -> str:
    if not entry.endswith(".whl"):
        raise ManifestError(f"The module {entry!r} is neither a wheel (*.whl) nor an object with name and content.")
    return entry


def _index(entry: object) -> str:
    if not isinstance(entry, str) or not entry.startswith(("https://", "http://")):
        raise ManifestError(f"The package index {entry!r} is not an http address.")
    return entry


def _module(entry: object) -> tuple[str, bytes]:
    """Read a module that the manifest holds: a Python file, or a zip file of modules and packages."""
    try:
        name, content = str(entry["name"]), base64.b64decode(entry["content"], validate=True)  # type: ignore[index]
    except (TypeError, KeyError, ValueError) as error:
        raise ManifestError("A module of the manifest has no name, or no content in base64.") from error
    if Path(name).name != name or not name.endswith((".py", ".zip")):
        raise ManifestError(f"The module {name!r} is neither a .py nor a .zip file.")
    if name.endswith(".zip") and not zipfile.is_zipfile(io.BytesIO(content)):
        raise ManifestError(f"The content of the module {name!r} is not a zip file.")
    return name, content


def _variables(given: object) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise ManifestError("'env_vars' of the manifest is not a map of texts.")
    for name in given:
        if not _VARIABLE.fullmatch(name) or name.startswith(_RESERVED):
            raise ManifestError(f"A function cannot set the environment variable {name!r}.")
    return given


def _pins() -> list[str]:
    """Return the versions that a Python worker has loaded before a function is."""
    return [f"{name}=={version}" for name in _LOADED if (version := _version_of(name)) is not None]


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _pip_install(requirements: tuple[str, ...], indexes: tuple[str, ...], target: Path, check: Check) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as pins:
        pins.write("\n".join(_pins()))
        pins.flush()
        more = [part for index in indexes for part in ("--extra-index-url", index)]
        options = [
            "--no-input",
            "--disable-pip-version-check",
            "--progress-bar",
            "off",
            "--only-binary",
            ":all:",
            *more,
        ]
        pip = subprocess.Popen(  # noqa: S603 (requirements were checked: none is an option)
            [sys.executable, "-m", "pip", "install", *options, "-c", pins.name, "-t", target, "--", *requirements],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        printed, _ = attend(pip.communicate, check, pip.kill).result()
    if pip.returncode:
        said = "\n".join(printed.strip().splitlines()[-_LAST_LINES:])
        raise BuildError(f"The packages {', '.join(requirements)} could not be installed from wheels:\n{said}")
