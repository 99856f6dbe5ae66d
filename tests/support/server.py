"""The real Pennon server as a process of its own, so that tests can talk to it, stop it and kill it."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LISTENING = re.compile(r"^Pennon is listening on (?P<url>https?://\S+:(?P<port>\d+))/?\s*$", re.MULTILINE)
START_SECONDS = 120.0
STOP_SECONDS = 60.0


class PennonError(RuntimeError):
    """The server did not start or stop as it should; the message holds what it wrote."""


class PennonProcess:
    """A server on one folder; after a restart it listens on the same port, so its address stays valid."""

    #: The module that is run as the ``pennon`` command.
    program = "pennon.cli.main"

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        start_seconds: float = START_SECONDS,
        address_space_bytes: int | None = None,
    ) -> None:
        self.directory = directory
        self.url = ""
        self._arguments: Sequence[str] = arguments
        # One process without a worker is enough for most tests, and starts sooner; those that need more ask for it.
        usual = {"PYTHONUNBUFFERED": "1", "PENNON_PROCESSES": "1", "PENNON_WORKERS": "0"}
        self._env = {**os.environ, **usual, **(env or {})}
        self._start_seconds = start_seconds
        #: The limit (``ulimit -v``) of the server and of each process it starts.
        self._address_space_bytes = address_space_bytes
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryDirectory(prefix="pennon-server-")

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._running().pid

    @property
    def returncode(self) -> int | None:
        """The exit code of the server, ``None`` while it runs."""
        return self._running().poll()

    @property
    def stdout(self) -> str:
        """What the server wrote to its standard output since it was last started."""
        return self._written("stdout")

    @property
    def stderr(self) -> str:
        """What the server wrote to its standard error since it was last started."""
        return self._written("stderr")

    @property
    def peak_memory_bytes(self) -> int:
        """The most memory that the server's own process has held so far (``VmHWM``); Linux only."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        return int(peak) * 1024

    def start(self) -> Self:
        """Start the server and wait until it listens."""
        if self._process is not None and self._process.poll() is None:
            raise PennonError("The server is already running")
        command = [
            sys.executable,
            "-m",
            self.program,
            "serve",
            str(self.directory),
            "--port",
            str(self._port),
        ]
        # Files and not pipes: a pipe that nobody reads would stop the server once it is full.
        with self._file("stdout").open("wb") as stdout, self._file("stderr").open("wb") as stderr:
            self._process = subprocess.Popen(
                [*command, *self._arguments],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        if self._address_space_bytes is not None:
            limits = (self._address_space_bytes, self._address_space_bytes)
            resource.prlimit(self._process.pid, resource.RLIMIT_AS, limits)
        try:
            self._wait_until_listening(self._process)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> int:
        """Ask the server to stop (SIGTERM), wait until it has and return its exit code."""
        process = self._running()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PennonError(self._report(f"The server did not stop within {STOP_SECONDS:.0f} s")) from None

    def kill(self) -> None:
        """End the server at once, as a crash would (SIGKILL)."""
        process = self._running()
        process.kill()
        process.wait()

    def restart(self) -> Self:
        """Start the server again on the same folder, arguments and port; stop it first if it still runs."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """End the server, if it runs, and remove what it wrote to its outputs."""
        try:
            if self._process is not None and self._process.poll() is None:
                self.stop()
        finally:
            self._output.cleanup()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise PennonError("The server has not been started")
        return self._process

    def _wait_until_listening(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_seconds
        while time.monotonic() < deadline:
            ended = process.poll() is not None
            found = LISTENING.search(self.stdout)
            if found:
                self.url, self._port = found["url"], int(found["port"])
                return
            if ended:
                raise PennonError(self._report(f"The server ended with exit code {process.returncode}"))
            time.sleep(0.02)
        raise PennonError(self._report(f"The server did not listen within {self._start_seconds:.0f} s"))

    def _report(self, what: str) -> str:
        return f"{what}.\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"

    def _file(self, name: str) -> Path:
        return Path(self._output.name) / name

    def _written(self, name: str) -> str:
        return self._file(name).read_text(encoding="utf-8", errors="replace")
