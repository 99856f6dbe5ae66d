"""The Java process of a Spark driver.

PySpark could start it, but with a plain fork, which may hang in a process with threads, and without a handle, so that
the worker could neither see that it died nor end it.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pennon.core.settings import ENV_PREFIX
from pennon.functions.sandbox.child_process import describe_exit
from pennon.pipeline.cancellation import Check, never

# Timeouts; none was measured.
_START_SECONDS = 120.0
_EXIT_SECONDS = 10.0
#: A process that dies loses its connections before it has exited.
_DYING_SECONDS = 2.0
_POLL_SECONDS = 0.02


class JvmError(Exception):
    """Java did not start."""


class Jvm:
    """A Java process that waits for PySpark, and exits with the process that started it."""

    def __init__(self, java_home: Path, conf: Mapping[str, str], check: Check = never) -> None:
        with tempfile.TemporaryDirectory(prefix="pennon-jvm-") as folder:
            gateway = Path(folder, "gateway")
            properties = Path(folder, "spark.conf")
            # In a file, because every user of the machine can see arguments, and conf may contain secrets.
            properties.write_text("".join(_property(*item) for item in conf.items()), encoding="utf-8")
            self._process = _start(java_home, properties, gateway)
            try:
                self._port, self._secret = self._read_gateway(gateway, check)
            except BaseException:
                self.kill()
                self.close()
                raise

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def describe_exit(self) -> str | None:
        """Describe how the process ended, after its connection was lost; None if it still runs."""
        try:
            return describe_exit(self._process.wait(_DYING_SECONDS))
        except subprocess.TimeoutExpired:
            return None

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @contextmanager
    def as_gateway(self) -> Iterator[None]:
        """Make PySpark connect to this process instead of starting one."""
        variables = {"PYSPARK_GATEWAY_PORT": str(self._port), "PYSPARK_GATEWAY_SECRET": self._secret}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name in variables:
                del os.environ[name]

    def kill(self) -> None:
        """Kill the process and its children: the launcher script may not have become Java yet."""
        if self.is_alive:
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process: it exits when its input ends, or is killed."""
        assert self._process.stdin is not None  # noqa: S101 (it was started with a pipe)
        self._process.stdin.close()
        try:
            self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def _read_gateway(self, gateway: Path, check: Check) -> tuple[int, str]:
        """Return the port and the secret from the file that Java writes; it appears complete."""
        deadline = time.monotonic() + _START_SECONDS
        while not gateway.exists():
            if not self.is_alive:
                code = self._process.returncode
                raise JvmError(f"Java ended with exit code {code} before Spark started; see the worker's log.")
            if time.monotonic() > deadline:
                raise JvmError(f"Java did not start Spark within {_START_SECONDS:.0f} s.")
            check()
            time.sleep(_POLL_SECONDS)
        content = gateway.read_bytes()
        port, length = struct.unpack_from(">ii", content)
        return port, content[8 : 8 + length].decode()


def _start(java_home: Path, properties: Path, gateway: Path) -> subprocess.Popen[bytes]:
    from pyspark.find_spark_home import _find_spark_home

    spark_home = Path(_find_spark_home())
    arguments = ["--properties-file", str(properties), "--load-spark-defaults", "pyspark-shell"]
    # Functions of users can read the environment of Java, so it must not contain settings, such as a password.
    own = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    environment = own | {
        # Spark forks its Python workers. Without this, macOS kills a fork of a process whose system libraries have
        # started threads; other systems ignore it.
        "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES",
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(spark_home),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(gateway),
    }
    return subprocess.Popen(  # noqa: S603 (a script of the installed Spark)
        [spark_home / "bin" / "spark-submit", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,  # Ctrl-C in the terminal is for the worker, which ends Spark itself
    )


def _property(name: str, value: str) -> str:
    """Write one line of a Java properties file."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{name}={escaped}\n"
