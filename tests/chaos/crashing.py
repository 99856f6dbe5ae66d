"""A server that dies at a chosen step, and lives again on the same data."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from tests.clients.lakes import ClientTable, Lake
from tests.support.rest import RestClient
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from tests.support.s3 import S3Server

ROOT = Path(__file__).resolve().parents[2]
DEATH_SECONDS = 60.0
KILLED = -9


class FaultyProcess(PennonProcess):
    """The real server, with steps at which it can be made to die."""

    program = "tests.chaos.faulty_server"


class Mortal:
    """A server that the tests kill from within, as often as they like."""

    def __init__(self, directory: Path, *arguments: str, s3: S3Server | None = None, lease_millis: int = 0) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pennon-fault-")
        self._armed = Path(self._folder.name) / "armed"
        env = {
            "FAULT_ARMED": str(self._armed),
            "FAULT_LEASE_MILLIS": str(lease_millis),
            "PYTHONPATH": str(ROOT),
        }
        # One process: the one that dies is the one that answers.
        self.server = FaultyProcess(directory, "--processes", "1", *arguments, env=env)
        self.lake = Lake(self.server, s3=s3)

    def arm(self, step: str, times: int = 1) -> None:
        """Let a step be the last when it is reached for this many times from now on."""
        self._armed.write_text(f"{times} {step}", encoding="utf-8")

    def post(self, path: str, body: object) -> httpx.Response | None:
        """Send a request during which the server dies; none when it did not answer before that."""
        with RestClient(self.server.url) as http:
            try:
                answer: httpx.Response | None = http.raw.post(path, json=body)
            except httpx.TransportError:
                answer = None
        self.wait_until_dead()
        return answer

    def wait_until_dead(self) -> None:
        """Wait for the server's end, and insist that it was the fault that ended it."""
        self.server._running().wait(timeout=DEATH_SECONDS)
        assert self.server.returncode == KILLED

    def recover(self) -> None:
        """Start the server again, at the same address."""
        self._armed.unlink()
        self.server.start()

    def table(self, *identifier: str) -> ClientTable:
        """Return a table, as a client sees it that has just connected."""
        return ClientTable(self.lake, self.lake.connect(), *identifier)

    def status(self, path: str, body: object = None) -> int:
        """Send a request and return the status of its answer."""
        with RestClient(self.server.url) as http:
            return http.raw.post(path, json=body or {}).status_code

    def close(self) -> None:
        self.server.close()
        self._folder.cleanup()
