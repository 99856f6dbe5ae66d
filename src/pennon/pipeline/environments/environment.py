"""The environment of a function: the packages, modules and variables that its manifest asks for.

The driver builds it once per content and deploys it to the executors. Packages are installed from wheels only, by a
pip that cannot start processes: a build from source would run code beside the driver. The packages that Pennon and
Spark use are pinned to the installed versions, because a Python worker has loaded them already.

Python workers are never shared between environments, so that nothing has to be unloaded, nor between tenants, whose
functions could change modules for each other: Spark shares a worker only among tasks with the same variables, and a
Connect server only within a session.

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
from pennon.pipeline.cancellation import Check, never, run_cancellable

MARK = "PENNON_ENVIRONMENT"
TENANT = "PENNON_TENANT"

_LOADED = ("cloudpickle", "numpy", "pandas", "py4j", "pyarrow", "pylance", "pyspark")
_PIP = Path(__file__).with_name("pip_process.py")
#: The only variables of the worker that pip sees: how to reach package indexes, and none of Pennon's settings.
_PIP_VARIABLES = frozenset(
    [
        *("LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("PIP_CERT", "PIP_CLIENT_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_PROXY", "PIP_RETRIES", "PIP_TIMEOUT"),
        "PIP_TRUSTED_HOST",
    ]
)
#: Those that name indexes; removed where the setting 'package_indexes' names them.
_PIP_INDEXES = frozenset(["PIP_CONFIG_FILE", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_NO_INDEX"])
_PIP_OPTIONS = (
    *("--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-warn-script-location"),
    *("--only-binary", ":all:"),
)
_NO_KEYRING = "keyring.backends.null.Keyring"
_WHEEL = ".whl"
_LAST_LINES = 12


class BuildError(Exception):
    """An environment could not be built; the message ends with pip's last lines."""


@dataclass(frozen=True)
class Environment:
    """What a function needs in addition to Pennon: packages, files by name, and variables."""

    requirements: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    modules: dict[str, bytes] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    #: The package indexes of the settings; if empty, those of pip's own configuration.
    configured_indexes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, checksum: str | None = None, *, configured_indexes: Sequence[str] = ()) -> Environment:
        """Read a manifest, a JSON object; the checksum, if given, is the sha256 of its text."""
        found = read_manifest(text, checksum, allowed_indexes=configured_indexes)
        return cls(found.requirements, found.indexes, found.modules, found.variables, tuple(configured_indexes))

    @property
    def is_empty(self) -> bool:
        """Whether a function needs nothing."""
        return not (self.requirements or self.modules or self.variables)

    @property
    def checksum(self) -> str:
        """Identifies its content, and the Python and packages it is built for."""
        content = {
            "requirements": self.requirements,
            "indexes": [self.indexes, self.configured_indexes],
            "modules": {name: hashlib.sha256(data).hexdigest() for name, data in self.modules.items()},
            "variables": self.variables,
            "python": [sys.platform, *sys.version_info[:2]],
            "pins": _pins(),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def install(self, target: Path, check: Check = never) -> None:
        """Install everything into a new folder; the check can cancel that."""
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
            pip = subprocess.Popen(  # noqa: S603 (requirements were checked not to be options)
                [sys.executable, "-I", _PIP, "install", *options, "--", *self.requirements, *wheels],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=home,  # an empty folder, so that no requirement names a file
                env=environment,
            )
            output, _ = run_cancellable(pip.communicate, check, pip.kill).result()
        if pip.returncode:
            lines = "\n".join(output.strip().splitlines()[-_LAST_LINES:])
            names = ", ".join([*self.requirements, *(wheel.name for wheel in wheels)])
            raise BuildError(f"The packages {names} could not be installed from wheels:\n{lines}")


@dataclass(frozen=True)
class DeployedEnvironment:
    """An environment on the executors, and the tenant that its Python workers belong to."""

    #: Identifies the environment; None if there is nothing to install or set.
    checksum: str | None
    variables: dict[str, str]
    #: Where its files are: a folder that the executor can see, or the name of an archive that Spark unpacked.
    folder: str | None = None
    archive: str | None = None
    tenant: str = ""

    @property
    def identity(self) -> tuple[str, str]:
        """The tenant and the environment that a Python worker serves."""
        return self.tenant, self.checksum or ""

    @property
    def marks(self) -> dict[str, str]:
        """The variables that Python workers of this tenant and environment are started with."""
        tenant, checksum = self.identity
        return {**self.variables, **({MARK: checksum} if checksum else {}), **({TENANT: tenant} if tenant else {})}


def activate(deployed: DeployedEnvironment) -> None:
    """Bind this Python worker to a tenant and an environment, for the rest of its life."""
    global _active  # noqa: PLW0603 (set once per process)
    if _active == deployed.identity:
        return
    if _active is not None:
        raise RuntimeError(
            "This Python worker belongs to another tenant or environment; Spark should not have shared it."
        )
    os.environ.update(deployed.variables)
    folder = _find(deployed)
    if folder is not None:
        if not folder.is_dir():
            raise FileNotFoundError(f"The environment of the function is not on this executor: {folder} is missing.")
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
    _active = deployed.identity


_active: tuple[str, str] | None = None


def _find(deployed: DeployedEnvironment) -> Path | None:
    if deployed.archive is None:
        return Path(deployed.folder) if deployed.folder else None
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory(), deployed.archive).absolute()


def _pins() -> list[str]:
    """Return the versions of packages that a Python worker loads before a function."""
    return [f"{name}=={version}" for name in _LOADED if (version := _version_of(name)) is not None]


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _index_options(named: tuple[str, ...], configured: tuple[str, ...]) -> list[str]:
    """Return the options for package indexes: the configured ones, and those that a manifest names."""
    first, more = configured[:1], [*configured[1:], *(index for index in named if index not in configured)]
    main = [part for index in first for part in ("--index-url", index)]
    return main + [part for index in more for part in ("--extra-index-url", index)]


def _pip_environment(home: Path, *, configured: bool) -> dict[str, str]:
    """Return pip's variables; its home is empty, so that it reads no user's configuration."""
    kept = _PIP_VARIABLES if configured else _PIP_VARIABLES | _PIP_INDEXES
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    known = {name: value for name, value in os.environ.items() if name in kept}
    own = {"HOME": str(home), "PATH": os.defpath, "XDG_CACHE_HOME": cache, "PYTHON_KEYRING_BACKEND": _NO_KEYRING}
    return known | own | ({"PIP_CONFIG_FILE": os.devnull} if configured else {})
