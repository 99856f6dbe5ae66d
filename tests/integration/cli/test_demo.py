"""The demo shows what really happens, ends by itself, and leaves no process behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.rest import RestClient

if TYPE_CHECKING:
    from tests.conftest import StartPennon
    from tests.integration.cli.conftest import Pennon


def test_it_walks_through_and_ends(pennon: Pennon, tmp_path: Path, start_pennon: StartPennon) -> None:
    said = pennon("demo", "lake").stdout
    for word in ("orders, teas", "what-if", "opening-day", "Pu-erh", "fixed_size_list"):
        assert word in said
    url = re.search(r"^Server  (\S+)$", said, re.MULTILINE)
    assert url is not None
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url[1]}/healthz", trust_env=False)
    assert f"Data    {tmp_path / 'lake'}" in said
    with RestClient(start_pennon(directory=tmp_path / "lake").url) as client:
        assert client.get("/v1/namespace/shop/table/list")["tables"] == ["orders", "teas"]
        versions = client.post("/v1/table/shop$orders/version/list", branch="what-if")["versions"]
        assert len(versions) == 2


def test_it_does_not_touch_a_folder_that_has_such_a_namespace(pennon: Pennon) -> None:
    pennon("demo", "lake")
    assert "choose another folder" in pennon("demo", "lake", expect=2).stderr


def test_it_can_be_kept_until_it_is_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pennon.cli.main", "demo", str(tmp_path / "lake"), "--keep"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = ""
        for line in process.stdout:
            url = line.split()[1] if line.startswith("Server  ") else url
            if "until Ctrl-C" in line:
                break
        assert httpx.get(f"{url}/healthz", trust_env=False).status_code == 200
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(timeout=60) == 0
    assert "has ended" in rest
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz", trust_env=False)


def test_without_lancedb_it_says_how_to_get_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['lancedb'] = None; from pennon.cli.main import main; main()"
    command = [sys.executable, "-c", code, "demo", "lake"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "pip install 'pennon[server]' lancedb" in ended.stderr
    assert not (tmp_path / "lake").exists()


def test_a_port_in_use_is_said(pennon: Pennon, start_pennon: StartPennon) -> None:
    port = start_pennon().url.rsplit(":", 1)[1]
    assert "Choose another port" in pennon("demo", "lake", "--port", port, expect=1).stderr
