"""A server without keys: open to who sits at the machine, and to nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.server import PennonError, PennonProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.rest.wire import Wire


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]:7", "LocalHost:1", "10.0.0.1"])
def test_who_addresses_the_machine_is_answered(wire: Wire, host: str) -> None:
    assert wire.get("/v1/table", {"host": host}).status == 200


@pytest.mark.parametrize("host", ["example.com", "127.0.0.1.example.com", "localhost.example.com", "[::1", "[", "a b"])
def test_who_uses_another_name_is_refused(wire: Wire, host: str) -> None:
    assert wire.get("/v1/table", {"host": host}).outcome == (403, 15)
    assert wire.post("/v1/namespace/x/create", {}, {"host": host}).outcome == (403, 15)


@pytest.mark.parametrize("origin", ["http://example.com", "https://localhost", "null", "http://[", "file://"])
def test_pages_of_other_sites_are_refused(wire: Wire, origin: str) -> None:
    answer = wire.post("/v1/namespace/stranger/create", {}, {"origin": origin})
    assert answer.outcome == (403, 15)
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert wire.post("/v1/namespace/stranger/exists").outcome == (404, 1)


def test_pages_of_the_server_itself_are_answered(wire: Wire) -> None:
    own = f"http://{wire.address.netloc}"
    assert wire.get("/v1/table", {"origin": own}).status == 200


def test_a_preflight_request_of_a_foreign_origin_is_refused(wire: Wire) -> None:
    headers = {"origin": "http://example.com", "access-control-request-method": "POST"}
    answer = wire.send("OPTIONS", "/v1/namespace/x/create", b"", headers)
    assert answer.status in {403, 405}
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_it_does_not_listen_beyond_the_machine(tmp_path: Path) -> None:
    server = PennonProcess(tmp_path, "--host", "0.0.0.0")  # noqa: S104 (it is refused)
    try:
        with pytest.raises(PennonError, match="Refusing to listen") as caught:
            server.start()
        assert "exit code 2" in str(caught.value)
        assert "--insecure" in str(caught.value)
        assert "Traceback" not in str(caught.value)
    finally:
        server.close()
