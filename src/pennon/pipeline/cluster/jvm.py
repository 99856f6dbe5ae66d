"""The Java process of a Spark driver.

PySpark would start it itself, but by a plain fork, which in a process with threads may never get as far as Java, and
without a handle: one could neither see that it died nor end it.
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
from pennon.functions.sandbox.child_process import end_of
from pennon.pipeline.cancellation import Check, always

_START_SECONDS = 120.0
_END_SECONDS = 10.0
#: Between the moment a process that dies loses its connections and the one it is seen to be gone.
_DYING_SECONDS = 2.0
_POLL_SECONDS = 0.02


class JvmError(Exception):
    """Java did not start."""


class Jvm:
    """A Java process that waits for PySpark, and ends with the process that started it."""

    def __init__(self, java_home: Path, conf: Mapping[str, str], check: Check = always) -> None:
        with tempfile.TemporaryDirectory(prefix="pennon-jvm-") as folder:
            told = Path(folder, "gateway")
            properties = Path(folder, "spark.conf")
            # In a file, because arguments are seen by everyone on the machine and conf may hold secrets.
            properties.write_text("".join(_property(*item) for item in conf.items()), encoding="utf-8")
            self._process = _start(java_home, properties, told)
            try:
                self._port, self._secret = self._read_gateway(told, check)
            except BaseException:
                self.kill()
                self.close()
                raise

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def find_end(self) -> str | None:
        """Return how the process ended, in words, or none if it goes on; for those who lost the connection to it."""
        try:
            return end_of(self._process.wait(_DYING_SECONDS))
        except subprocess.TimeoutExpired:
            return None

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @contextmanager
    def offered(self) -> Iterator[None]:
        """Let PySpark find this process instead of starting one."""
        told = {"PYSPARK_GATEWAY_PORT": str(self._port), "PYSPARK_GATEWAY_SECRET": self._secret}
        os.environ.update(told)
        try:
            yield
        finally:
            for name in told:
                del os.environ[name]

    def kill(self) -> None:
        """End the process at once, whatever it is about, with those it started: Java may still be one of them."""
        if self.alive:
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process: it goes when its input ends, or is made to."""
        assert self._process.stdin is not None  # noqa: S101 (asked for when it was started)
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def _read_gateway(self, told: Path, check: Check) -> tuple[int, str]:
        """Return the port and the secret that Java tells through a file, which appears whole."""
        deadline = time.monotonic() + _START_SECONDS
        while not told.exists():
            if not self.alive:
                code = self._process.returncode
                raise JvmError(f"Java ended with exit code {code} before Spark started; the log has what it said.")
            if time.monotonic() > deadline:
                raise JvmError(f"Java did not start Spark within {_START_SECONDS:.0f} s.")
            check()
            time.sleep(_POLL_SECONDS)
        content = told.read_bytes()
        port, length = struct.unpack_from(">ii", content)
        return port, content[8 : 8 + length].decode()


def _start(java_home: Path, properties: Path, told: Path) -> subprocess.Popen[bytes]:
    from pyspark.find_spark_home import _find_spark_home

    spark_home = Path(_find_spark_home())
    arguments = ["--properties-file", str(properties), "--load-spark-defaults", "pyspark-shell"]
    # Functions of users see what Java sees: not the settings, which may hold the password of the catalog.
    own = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    environment = own | {
        # Spark forks its Python workers. macOS ends a fork of a process whose system libraries have started threads,
        # unless this says otherwise; other systems ignore it.
        "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES",
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(spark_home),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
    }
    return subprocess.Popen(  # noqa: S603 (a script of the installed Spark)
        [spark_home / "bin" / "spark-submit", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,  # a Ctrl-C in the terminal is for the worker, which ends Spark in its own time
    )


def _property(name: str, value: str) -> str:
    """Write one line of a Java properties file."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{name}={escaped}\n"
