"""Namespaces, tables, tags and versions by commands, on a real server."""

from __future__ import annotations

import json
import secrets
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import lance
import lance_namespace as ln
import pyarrow as pa
import pytest
import typer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartPennon
    from tests.integration.cli.conftest import Pennon
    from tests.support.command import Run
    from tests.support.server import PennonProcess

TEAS = pa.table(
    {
        "name": ["Assam", "Sencha", "Oolong"],
        "origin": ["India", "Japan", None],
        "vector": pa.array([[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]], pa.list_(pa.float32(), 2)),
    }
)


class SilentHandler(SimpleHTTPRequestHandler):
    """The files of a folder, which is what any web server has; without a word in the log."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def shop(pennon_server: PennonProcess, run: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    """A namespace of its own with a table ``teas`` of two versions; commands find its server."""
    monkeypatch.setenv("PENNON_URL", pennon_server.url)
    name = f"shop{secrets.token_hex(4)}"
    client = ln.connect("rest", {"uri": pennon_server.url})
    client.create_namespace(ln.CreateNamespaceRequest(id=[name], properties={"owner": "ada"}))
    for mode in ("create", "append"):
        lance.write_dataset(TEAS, namespace_client=client, table_id=[name, "teas"], mode=mode)
    return name


def interrupt(*_: object, **__: object) -> bool:
    raise typer.Abort


def rows(said: str) -> Any:
    return json.loads(said)


def test_namespaces_are_made_listed_shown_and_dropped(run: Run, shop: str) -> None:
    assert run("namespaces", "create", f"{shop}.old", "--property", "kept=no").code == 0
    assert run("namespaces", "create", f"{shop}.old").code == 4
    assert run("namespaces", "create", f"{shop}.old", "--exist-ok").code == 0
    assert rows(run("namespaces", "list", shop, "-o", "json").stdout) == [{"name": f"{shop}.old", "id": f"{shop}$old"}]
    assert shop in run("namespaces", "list").stdout
    assert rows(run("namespaces", "show", f"{shop}.old", "-o", "json").stdout)["properties"] == {"kept": "no"}
    assert run("namespaces", "drop", f"{shop}.old", "--yes").code == 0
    gone = run("namespaces", "show", f"{shop}.old")
    assert (gone.code, "pennon namespaces list" in gone.stderr) == (3, True)


def test_a_namespace_with_tables_goes_only_with_cascade(run: Run, shop: str) -> None:
    refused = run("namespaces", "drop", shop, "--yes")
    assert (refused.code, "--cascade" in refused.stderr) == (4, True)
    assert run("namespaces", "drop", shop, "--cascade", "--yes").code == 0
    assert run("tables", "show", f"{shop}.teas").code == 3


def test_tables_are_listed_everywhere_and_in_a_namespace(run: Run, shop: str) -> None:
    one = {"name": f"{shop}.teas", "id": f"{shop}$teas"}
    assert rows(run("tables", "list", shop, "-o", "json").stdout) == [one]
    assert one in rows(run("tables", "list", "-o", "json").stdout)
    assert len(rows(run("tables", "list", "-n", 1, "-o", "json").stdout)) == 1


def test_a_table_is_shown_with_its_columns(run: Run, shop: str) -> None:
    found = rows(run("tables", "show", f"{shop}.teas", "-o", "json").stdout)
    assert (found["version"], found["rows"], found["managed"]) == (2, 6, True)
    types = {column["name"]: column["type"] for column in found["columns"]}
    assert types == {"name": "string", "origin": "string", "vector": "fixed_size_list<item: float>[2]"}
    assert rows(run("tables", "show", f"{shop}.teas", "--version", 1, "-o", "json").stdout)["version"] == 1
    assert "fixed_size_list" in run("tables", "show", f"{shop}.teas").stdout


def test_a_table_is_renamed_and_dropped(run: Run, shop: str) -> None:
    assert run("tables", "rename", f"{shop}.teas", f"{shop}.tea").code == 0
    assert run("tables", "show", f"{shop}.teas").code == 3
    assert run("tables", "drop", f"{shop}.tea", "--yes").code == 0
    assert "No tables found" in run("tables", "list", shop).stderr


@pytest.mark.parametrize(
    "command",
    [
        ("tables", "drop", "{}.teas"),
        ("namespaces", "drop", "{}", "--cascade"),
        ("tags", "delete", "{}.teas", "first"),
        ("versions", "delete", "{}.teas", "1"),
    ],
)
def test_nothing_is_destroyed_without_a_word(
    run: Run, shop: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("tags", "create", f"{shop}.teas", "first", "--version", 1)
    words = [word.format(shop) for word in command]
    unasked = run(*words)
    assert (unasked.code, "--yes" in unasked.stderr) == (2, True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    refused = run(*words)
    assert (refused.code, "Nothing was changed" in refused.stderr) == (1, True)
    monkeypatch.setattr("typer.confirm", interrupt)
    interrupted = run(*words)
    assert (interrupted.code, "Nothing was changed" in interrupted.stderr) == (130, True)
    assert rows(run("tags", "list", f"{shop}.teas", "-o", "json").stdout) == [
        {"tag": "first", "version": 1, "branch": "main"}
    ]


def test_tags_name_versions(run: Run, shop: str) -> None:
    table = f"{shop}.teas"
    assert run("tags", "create", table, "now").code == 0
    assert run("tags", "create", table, "first", "--version", 1).code == 0
    taken = run("tags", "create", table, "now")
    assert (taken.code, "pennon tags move" in taken.stderr) == (4, True)
    assert run("tags", "move", table, "now", "--version", 1).code == 0
    listed = rows(run("tags", "list", table, "-o", "json").stdout)
    assert {tag["tag"]: tag["version"] for tag in listed} == {"first": 1, "now": 1}
    assert run("tags", "delete", table, "now", "--yes").code == 0
    assert run("tags", "delete", table, "now", "--yes").code == 3
    assert run("tags", "create", table, "none", "--version", 99).code == 3


def test_versions_are_listed_restored_and_deleted(run: Run, shop: str) -> None:
    table = f"{shop}.teas"
    assert run("versions", "restore", table, 1).code == 0
    listed = rows(run("versions", "list", table, "-o", "json").stdout)
    assert [version["version"] for version in listed] == [3, 2, 1]
    assert len(rows(run("versions", "list", table, "--limit", 1, "-o", "json").stdout)) == 1
    assert run("query", table, "--count").stdout == "3\n"
    run("tags", "create", table, "kept", "--version", 1)
    needed = run("versions", "delete", table, "1-2", "--yes")
    assert (needed.code, "kept" in needed.stderr) == (4, True)
    assert "deleted: 1" in run("versions", "delete", table, 2, "--yes").stdout
    assert [v["version"] for v in rows(run("versions", "list", table, "-o", "json").stdout)] == [3, 1]


def test_rows_are_filtered_searched_and_counted(run: Run, shop: str) -> None:
    table = f"{shop}.teas"
    found = rows(run("query", table, "-w", "origin = 'Japan'", "-c", "name,origin", "-o", "json").stdout)
    assert found == [{"name": "Sencha", "origin": "Japan"}] * 2
    nearest = rows(run("query", table, "--vector", "0.2,0.8", "-n", 1, "-c", "name", "-o", "json").stdout)
    assert nearest[0]["name"] == "Sencha"
    assert run("query", table, "--count", "-w", "origin is null").stdout == "2\n"
    assert len(rows(run("query", table, "-n", 0, "--version", 1, "-o", "json").stdout)) == 3
    assert len(rows(run("query", table, "--offset", 5, "-o", "json").stdout)) == 1
    assert "_rowid" in rows(run("query", table, "--with-row-id", "-o", "json").stdout)[0]
    assert "No rows found" in run("query", table, "-w", "name = 'none'").stderr
    assert "[0.9, 0.1]" in run("query", table).stdout


def test_values_of_every_kind_are_shown_and_are_json(run: Run, shop: str, pennon_server: PennonProcess) -> None:
    odd = pa.table(
        {
            "share": [float("nan"), float("-inf")],
            "fresh": [True, False],
            "tags": [["green", None], []],
            "origin": [{"country": "Japan"}, None],
            "leaf": [b"\x00\xff", None],
        }
    )
    client = ln.connect("rest", {"uri": pennon_server.url})
    lance.write_dataset(odd, namespace_client=client, table_id=[shop, "odd"])
    said = run("query", f"{shop}.odd", "-o", "json").stdout
    first, second = json.loads(said, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert first["leaf"] == "00ff"
    assert (first["share"], second["share"]) == ("NaN", "-Infinity")
    printed = run("query", f"{shop}.odd").stdout
    assert all(text in printed for text in ("NaN", "-Infinity", "true", "[green, null]", '{"country": "Japan"}'))


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("-w", "nope = 1"), 3, "pennon tables show"),
        (("-w", "name = = 1"), 2, "SQL cannot be parsed"),
        (("--vector", "1,2,3"), 2, "3"),
        (("--text-columns", "name"), 2, "--text"),
        (("--version", "99"), 3, "pennon versions list"),
    ],
)
def test_a_query_that_cannot_be_answered_says_why(
    run: Run, shop: str, arguments: tuple[str, ...], code: int, word: str
) -> None:
    ended = run("query", f"{shop}.teas", *arguments)
    assert (ended.code, ended.stdout) == (code, "")
    assert word in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_arrow_is_a_stream_for_programs(pennon: Pennon, shop: str, pennon_server: PennonProcess) -> None:
    url = ("--url", pennon_server.url, "-o", "arrow")
    streamed = pa.ipc.open_stream(pennon.read("query", f"{shop}.teas", "-n", 0, *url)).read_all()
    assert streamed.equals(pa.concat_tables([TEAS, TEAS]).cast(streamed.schema))
    listed = pa.ipc.open_stream(pennon.read("tables", "list", shop, *url)).read_all()
    assert listed.to_pylist() == [{"name": f"{shop}.teas", "id": f"{shop}$teas"}]


def test_arrow_is_not_written_to_a_terminal(run: Run, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    ended = run("query", f"{shop}.teas", "-o", "arrow")
    assert (ended.code, "terminal" in ended.stderr) == (2, True)


@pytest.mark.parametrize("form", ["table", "json", "arrow"])
def test_a_reader_may_go_away(pennon: Pennon, shop: str, pennon_server: PennonProcess, form: str) -> None:
    with pennon.start("query", f"{shop}.teas", "-o", form, "--url", pennon_server.url) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        assert (command.stderr.read(), command.wait()) == (b"", 1)


def test_an_unreachable_server_is_an_error(run: Run) -> None:
    ended = run("tables", "list", "--url", "http://127.0.0.1:1")
    assert ended.code == 6
    assert "pennon serve" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_foreign_server_is_reported_in_one_line(run: Run, tmp_path: Path) -> None:
    stranger = ThreadingHTTPServer(("127.0.0.1", 0), partial(SilentHandler, directory=str(tmp_path)))
    threading.Thread(target=stranger.serve_forever, daemon=True).start()
    ended = run("tables", "list", "--url", f"http://127.0.0.1:{stranger.server_port}")
    stranger.shutdown()
    stranger.server_close()
    assert (ended.code, "check the URL" in ended.stderr) == (1, True)
    assert ended.stderr.count("\n") == 1


def test_a_key_may_come_from_a_profile(run: Run, start_pennon: StartPennon, tmp_path: Any) -> None:
    server = start_pennon()
    secret = run("keys", "create", "ada", "--role", "reader", "-d", server.directory).stdout.strip()
    assert run("tables", "list", "--url", server.url).code == 5
    file = tmp_path / "config" / "pennon" / "profiles.toml"
    file.parent.mkdir(parents=True)
    file.write_text(f'[mine]\nurl = "{server.url}"\napi_key = "{secret}"\n', encoding="utf-8")
    assert run("tables", "list", "--profile", "mine").code == 0
    denied = run("namespaces", "create", "shop", "--profile", "mine")
    assert (denied.code, "--api-key" in denied.stderr) == (5, True)


class TestCompletion:
    """The completions that the shell gets for the tab key."""

    def complete(self, run: Run, monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
        monkeypatch.setenv("_PENNON_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["pennon", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        return run().stdout.split()

    def test_tables_and_namespaces_are_completed(self, run: Run, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.complete(run, monkeypatch, "query", shop[:-1]) == [f"{shop}.teas"]
        assert self.complete(run, monkeypatch, "tables", "list", shop[:-1]) == [shop]
        assert "backfill" in self.complete(run, monkeypatch, "back")

    def test_profiles_are_completed(self, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        file = tmp_path / "config" / "pennon" / "profiles.toml"
        file.parent.mkdir(parents=True)
        file.write_text('[mine]\nurl = "http://a"\n[theirs]\nurl = "http://b"\n', encoding="utf-8")
        assert self.complete(run, monkeypatch, "tables", "list", "--profile", "m") == ["mine"]
        file.write_text("[mine", encoding="utf-8")
        assert self.complete(run, monkeypatch, "tables", "list", "--profile", "m") == []

    def test_without_a_server_nothing_is_completed(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENNON_URL", "http://127.0.0.1:1")
        assert self.complete(run, monkeypatch, "query", "sh") == []
