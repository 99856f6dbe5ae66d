"""Start, pause and stop the servers under test, each a process group of its own on a loopback port."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PEER = "peer"
PENNON = "pennon"

_HERE = Path(__file__).resolve().parent
_LISTENING = re.compile(r"listening on http://([^:/\s]+):(\d+)")
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0


class BenchmarkError(Exception):
    """A server or a tool failed, so that there is nothing to measure."""


def _command(name: str, root: Path) -> list[str]:
    if name == PEER:
        return [sys.executable, str(_HERE / "peer.py"), str(root)]
    return [sys.executable, "-m", "pennon.cli.main", "serve", str(root), "--port", "0"]


@dataclass
class Server:
    """A running server: where it listens, and the folder it serves."""

    name: str
    process: subprocess.Popen[bytes]
    root: Path
    log: Path
    host: str = ""
    port: int = 0
    api_key: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers by which the server knows its caller."""
        return {"x-api-key": self.api_key} if self.api_key else {}

    @property
    def url(self) -> str:
        """Name the server's base address."""
        return f"http://{self.host}:{self.port}"

    def pause(self) -> None:
        """Take the processor from the server, so that the other one is alone while it is measured."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the server go on."""
        self._signal(signal.SIGCONT)

    def check(self) -> None:
        """Raise if the server has ended."""
        if self.process.poll() is not None:
            code = self.process.returncode
            raise BenchmarkError(f"{self.name} ended with code {code}; its last words:\n{self.last_words()}")

    def last_words(self) -> str:
        """Quote the end of what the server printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def settle(self, limit: float = 60.0) -> None:
        """Wait until the server is idle: it may still work on requests whose client has gone."""
        deadline = time.monotonic() + limit
        before = _processor_seconds(self.process.pid)
        while time.monotonic() < deadline:
            time.sleep(0.2)
            now = _processor_seconds(self.process.pid)
            if now - before < 0.02:
                return
            before = now

    def stop(self) -> None:
        """End the server, gently first."""
        if self.process.poll() is not None:
            return
        self.resume()
        self._signal(signal.SIGTERM)
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        # Once the leader has been waited for, its number may belong to somebody else.
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)


def start(name: str, folder: Path, settings: Mapping[str, str] | None = None) -> Server:
    """Start a server on an empty folder below `folder`, with variables of its own, and wait until it listens."""
    root = folder / name
    root.mkdir(parents=True)
    log = folder / f"{name}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            _command(name, root),
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(settings or {})},
            start_new_session=True,
        )
    server = Server(name, process, root, log)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        found = _LISTENING.search(log.read_text(errors="replace"))
        if found:
            server.host, server.port = found[1], int(found[2])
            return server
        server.check()
        time.sleep(0.05)
    server.stop()
    raise BenchmarkError(f"{name} did not listen within {_START_SECONDS:.0f} s:\n{server.last_words()}")


def _processor_seconds(group: int) -> float:
    """Sum the processor time of a process group; 0 where there is no /proc."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The command's name may hold spaces and brackets: count the fields after it.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
