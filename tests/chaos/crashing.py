"""A server that dies at a chosen step, and its successor on the same data."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from tests.clients.lakes import Lake
from tests.support.rest import RestClient
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.s3 import S3Server

ROOT = Path(__file__).resolve().parents[2]
DEATH_SECONDS = 60.0
KILLED = -9


class FaultyProcess(PennonProcess):
    """The real server, with a step at which it dies."""

    program = "tests.chaos.faulty_server"


class Crash:
    """One server that is to die, then another in its place."""

    def __init__(
        self,
        directory: Path,
        fault: str,
        arguments: Sequence[str] = (),
        *,
        s3: S3Server | None = None,
        lease_millis: int = 0,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pennon-fault-")
        self._armed = Path(self._folder.name) / "armed"
        # One process: the one that dies is the one that answers.
        arguments = ["--processes", "1", *arguments]
        env = {
            "FAULT": fault,
            "FAULT_ARMED": str(self._armed),
            "FAULT_LEASE_MILLIS": str(lease_millis),
            "PYTHONPATH": str(ROOT),
        }
        self.dying = FaultyProcess(directory, *arguments, env=env)
        self.successor = PennonProcess(directory, *arguments)
        self._s3 = s3

    def start(self) -> Lake:
        """Start the server that is to die; until it is armed it works as any other."""
        return Lake(self.dying.start(), s3=self._s3)

    def arm(self, times: int = 1) -> None:
        """Let the step be the last when it is reached for this many times from now on."""
        self._armed.write_text(str(times), encoding="utf-8")

    def post(self, path: str, body: object) -> httpx.Response | None:
        """Send a request during which the server dies; none when it did not answer before that."""
        with RestClient(self.dying.url) as http:
            try:
                answer: httpx.Response | None = http.raw.post(path, json=body)
            except httpx.TransportError:
                answer = None
        self.wait_until_dead()
        return answer

    def wait_until_dead(self) -> None:
        """Wait for the server's end, and insist that it was the fault that ended it."""
        self.dying._running().wait(timeout=DEATH_SECONDS)
        assert self.dying.returncode == KILLED

    def recover(self) -> Lake:
        """Start the successor, at the same address."""
        self.successor._port = self.dying._port
        return Lake(self.successor.start(), s3=self._s3)

    def close(self) -> None:
        self.dying.close()
        self.successor.close()
        self._folder.cleanup()
