"""Starting and stopping: nothing that was asked for in time is left without an answer."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from pennon.catalog import open_database
from pennon.catalog.schema import migrate
from pennon.core.settings import load_settings
from tests.integration.rest.wire import Wire
from tests.support.server import PennonError, PennonProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartPennon

HEAD = b"POST /v1/namespace/late/create HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n"
BODY = b'{"properties": {"late": "yes"}}'
PATIENCE = 60.0


def begin_request(server: PennonProcess, wire: Wire) -> socket.socket:
    """Send half a request, and return when the server is busy with it."""
    assert wire.address.hostname is not None
    raw = socket.create_connection((wire.address.hostname, wire.address.port or 0), timeout=PATIENCE)
    raw.sendall(HEAD % len(BODY) + BODY[:5])
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = re.search(rb"pennon_requests_in_flight(?:\{[^}]*\})? ([0-9.]+)", wire.get("/metrics").content)
        if found and float(found[1]) >= 2:  # this one, and the question about it
            return raw
    raise AssertionError("the server did not take the request")


def wait_until_closed(server: PennonProcess, wire: Wire) -> None:
    """Return when the server takes no more connections."""
    wire.close()
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((wire.address.hostname or "", wire.address.port or 0), timeout=5):
                pass
        except OSError:
            return
    raise AssertionError("the server still takes connections")


class TestStopping:
    def test_a_request_under_way_is_answered(self, start_pennon: StartPennon) -> None:
        server = start_pennon("--shutdown-timeout-seconds", "30")
        with closing(Wire(server.url)) as wire, begin_request(server, wire) as raw:
            os.kill(server.pid, signal.SIGTERM)
            wait_until_closed(server, wire)
            raw.sendall(BODY[5:])
            assert raw.recv(65536).startswith(b"HTTP/1.1 200 ")
            assert server.stop() == 0
        server.start()
        with closing(Wire(server.url)) as wire:
            described = wire.post("/v1/namespace/late/describe").json
        assert described["properties"] == {"late": "yes"}

    def test_a_request_that_never_ends_does_not_keep_it_from_stopping(self, start_pennon: StartPennon) -> None:
        server = start_pennon("--shutdown-timeout-seconds", "1", "--processes", "1")
        with closing(Wire(server.url)) as wire, begin_request(server, wire):
            assert server.stop() == 0
        server.start()
        with closing(Wire(server.url)) as wire:
            assert wire.post("/v1/namespace/late/exists").outcome == (404, 1)

    def test_half_a_request_is_not_carried_out(self, start_pennon: StartPennon) -> None:
        server = start_pennon("--processes", "1")
        with closing(Wire(server.url)) as wire:
            begin_request(server, wire).close()
            deadline = time.monotonic() + PATIENCE
            while b"pennon_requests_in_flight 1.0" not in wire.get("/metrics").content:
                assert time.monotonic() < deadline
            assert wire.post("/v1/namespace/late/exists").outcome == (404, 1)
        assert "Traceback" not in server.stderr

    def test_an_idle_server_stops_when_interrupted(self, start_pennon: StartPennon) -> None:
        server = start_pennon("--processes", "1")
        with closing(Wire(server.url)) as wire:
            assert wire.get("/healthz").status == 200
            os.kill(server.pid, signal.SIGINT)
            assert server.stop() == 0
        assert server.stdout == f"Pennon is listening on {server.url}\n"
        assert "Traceback" not in server.stderr


class TestStarting:
    def test_what_was_answered_is_there_after_a_restart(self, start_pennon: StartPennon) -> None:
        server = start_pennon("--processes", "1")
        with closing(Wire(server.url)) as wire:
            assert wire.post("/v1/namespace/kept/create", {"properties": {"a": "b"}}).status == 200
        server.restart()
        with closing(Wire(server.url)) as wire:
            assert wire.post("/v1/namespace/kept/describe").json == {"properties": {"a": "b"}}

    def test_a_port_that_is_taken_is_an_error_of_one_line(self, tmp_path: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            server = PennonProcess(tmp_path)
            server._port = taken.getsockname()[1]
            self.fails(server, "Cannot listen on http://127.0.0.1:")

    def test_a_setting_that_is_wrong_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        self.fails(PennonProcess(tmp_path, env={"PENNON_METADATA_THREADS": "0"}), "'metadata_threads'")

    def test_storage_that_cannot_be_used_is_an_error_of_one_line(self, tmp_path: Path) -> None:
        self.fails(PennonProcess(tmp_path, "--root", "az://container", "--processes", "2"), "Account must be specified")

    def test_a_catalog_of_a_newer_pennon_is_refused(self, tmp_path: Path) -> None:
        with closing(open_database(load_settings(directory=tmp_path).database_url)) as database:
            migrate(database)
            database.write(lambda c: c.run("UPDATE pennon_schema SET version = version + 1"))
        self.fails(PennonProcess(tmp_path), "Upgrade Pennon")

    @staticmethod
    def fails(server: PennonProcess, message: str) -> None:
        try:
            with pytest.raises(PennonError) as caught:
                server.start()
        finally:
            server.close()
        assert message in str(caught.value)
        assert "Traceback" not in str(caught.value)
