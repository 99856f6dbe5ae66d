"""The environment of a function: the packages, modules and variables that its manifest asks for.

It is built once per content, by the driver, and shipped to the executors. Packages are installed from wheels only, by a
pip that cannot start processes: building one from source would run its code beside the driver. What Pennon and Spark
themselves use is pinned to the versions that are there, for a Python worker has them loaded already.

Python workers are never shared between environments, so nothing has to be unloaded, nor between tenants, whose
functions could change modules for one another: Spark keeps workers with different variables apart, and a Connect server
those of different sessions.

This module is imported by executors: nothing heavy is imported at its top.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pennon.functions.environment_manifest import read_manifest
from pennon.pipeline.cancellation import Check, always, attend

MARK = "PENNON_ENVIRONMENT"
TENANT = "PENNON_TENANT"

_LOADED = ("cloudpickle", "numpy", "pandas", "py4j", "pyarrow", "pylance", "pyspark")
_PIP = Path(__file__).with_name("pip_process.py")
#: All that pip sees of the worker's environment: how to reach package indexes, and nothing of Pennon's settings.
_PIP_VARIABLES = frozenset(
    [
        *("LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("PIP_CERT", "PIP_CLIENT_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_PROXY", "PIP_RETRIES", "PIP_TIMEOUT"),
        "PIP_TRUSTED_HOST",
    ]
)
#: What names indexes there; left out where the setting 'package_indexes' names them.
_PIP_INDEXES = frozenset(["PIP_CONFIG_FILE", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_NO_INDEX"])
_PIP_OPTIONS = (
    *("--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-warn-script-location"),
    *("--only-binary", ":all:"),
)
_NO_KEYRING = "keyring.backends.null.Keyring"
_WHEEL = ".whl"
_LAST_LINES = 12


class BuildError(Exception):
    """An environment could not be built; the message has pip's last words."""


@dataclass(frozen=True)
class Environment:
    """What a function needs beside Pennon: packages, files by name, and variables."""

    requirements: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    modules: dict[str, bytes] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    #: The package indexes that the settings allow; none means those that pip is configured with.
    configured_indexes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, checksum: str | None = None, *, configured_indexes: Sequence[str] = ()) -> Environment:
        """Read a manifest, a JSON object; the checksum, if given, is the sha256 of its text."""
        found = read_manifest(text, checksum, allowed_indexes=configured_indexes)
        return cls(found.requirements, found.indexes, found.modules, found.variables, tuple(configured_indexes))

    @property
    def is_empty(self) -> bool:
        """Whether it asks for nothing."""
        return not (self.requirements or self.modules or self.variables)

    @property
    def checksum(self) -> str:
        """What tells it from others: its content, and the Python and packages it is built for."""
        content = {
            "requirements": self.requirements,
            "indexes": [self.indexes, self.configured_indexes],
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
            elif name.endswith(".zip"):
                zipfile.ZipFile(io.BytesIO(data)).extractall(target)
        if self.requirements or any(name.endswith(_WHEEL) for name in self.modules):
            self._install_packages(target, check)

    def _install_packages(self, target: Path, check: Check) -> None:
        with tempfile.TemporaryDirectory(prefix="pennon-pip-") as folder:
            wheels = [Path(folder, name) for name in self.modules if name.endswith(_WHEEL)]
            for wheel in wheels:
                wheel.write_bytes(self.modules[wheel.name])
            pins = Path(folder, "pins.txt")
            pins.write_text("\n".join(_pins()), encoding="utf-8")
            home = Path(folder, "home")
            home.mkdir()
            sources = _index_options(self.indexes, self.configured_indexes)
            options = [*_PIP_OPTIONS, *sources, "-c", str(pins), "-t", str(target.absolute())]
            environment = _pip_environment(home, configured=bool(self.configured_indexes))
            pip = subprocess.Popen(  # noqa: S603 (requirements were checked: none is an option)
                [sys.executable, "-I", _PIP, "install", *options, "--", *self.requirements, *wheels],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=home,  # where pip finds no file that a requirement could mean
                env=environment,
            )
            printed, _ = attend(pip.communicate, check, pip.kill).result()
        if pip.returncode:
            said = "\n".join(printed.strip().splitlines()[-_LAST_LINES:])
            names = ", ".join([*self.requirements, *(wheel.name for wheel in wheels)])
            raise BuildError(f"The packages {names} could not be installed from wheels:\n{said}")


@dataclass(frozen=True)
class Shipped:
    """An environment as an executor finds it, and the tenant that its Python workers belong to."""

    #: What tells the environment from others; none where there is nothing to install or set.
    checksum: str | None
    variables: dict[str, str]
    #: Where its files are: a folder that the executor can see, or the name of an archive that Spark unpacked for it.
    folder: str | None = None
    archive: str | None = None
    tenant: str = ""

    @property
    def identity(self) -> tuple[str, str]:
        """What a Python worker may belong to only one of."""
        return self.tenant, self.checksum or ""

    @property
    def marks(self) -> dict[str, str]:
        """The variables that Python workers of this tenant and environment are started with."""
        tenant, checksum = self.identity
        return {**self.variables, **({MARK: checksum} if checksum else {}), **({TENANT: tenant} if tenant else {})}


def activate(shipped: Shipped) -> None:
    """Make this Python worker one of a tenant and an environment, for the rest of its life."""
    global _active  # noqa: PLW0603 (once a process)
    if _active == shipped.identity:
        return
    if _active is not None:
        raise RuntimeError("This Python worker has another tenant or environment; Spark should not have shared it.")
    os.environ.update(shipped.variables)
    folder = _find(shipped)
    if folder is not None:
        if not folder.is_dir():
            raise FileNotFoundError(f"The environment of the function is not on this executor: {folder} is missing.")
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
    _active = shipped.identity


_active: tuple[str, str] | None = None


def _find(shipped: Shipped) -> Path | None:
    if shipped.archive is None:
        return Path(shipped.folder) if shipped.folder else None
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory(), shipped.archive).absolute()


def _pins() -> list[str]:
    """Return the versions that a Python worker has loaded before a function is."""
    return [f"{name}=={version}" for name in _LOADED if (version := _version_of(name)) is not None]


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _index_options(named: tuple[str, ...], configured: tuple[str, ...]) -> list[str]:
    """Return the options that say where packages come from: the configured indexes, and those a manifest names."""
    first, more = configured[:1], [*configured[1:], *(index for index in named if index not in configured)]
    main = [part for index in first for part in ("--index-url", index)]
    return main + [part for index in more for part in ("--extra-index-url", index)]


def _pip_environment(home: Path, *, configured: bool) -> dict[str, str]:
    """Return the variables that pip runs with; its home is empty, so that no user's configuration is read."""
    kept = _PIP_VARIABLES if configured else _PIP_VARIABLES | _PIP_INDEXES
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    known = {name: value for name, value in os.environ.items() if name in kept}
    own = {"HOME": str(home), "PATH": os.defpath, "XDG_CACHE_HOME": cache, "PYTHON_KEYRING_BACKEND": _NO_KEYRING}
    return known | own | ({"PIP_CONFIG_FILE": os.devnull} if configured else {})
