"""The command as a whole: its help, its exit codes and its one-line errors."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import typer

from pennon import __version__
from pennon.cli import main as module
from pennon.cli.main import app

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Run


def test_the_help_groups_the_commands(run: Run) -> None:
    said = run("--help")
    positions = [said.stdout.index(panel) for panel in ("Serve", "Tables", "Derived data", "Catalog")]
    assert positions == sorted(positions)
    wanted = "serve worker demo doctor import namespaces tables query tags versions backfill jobs keys migrate"
    for name in wanted.split():
        assert f" {name} " in said.stdout


def test_every_command_says_what_it_does() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert all(command.help or command.callback.__doc__ for command in commands.values())


def test_the_version_is_shown(run: Run) -> None:
    assert run("--version").stdout == f"pennon {__version__}\n"


def test_nothing_is_coloured_where_nobody_looks(run: Run) -> None:
    said = run("keys", "revoke", "nobody")
    assert "\x1b" not in said.stdout + said.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("serve", "--port", "99999"), 2, "port"),
        (("serve", "--no-such-flag"), 2, "--no-such-flag"),
        (("keys", "list"), 2, "--directory"),
        (("migrate", "--database", "mysql://x"), 2, "postgresql://"),
        (("serve", "--config", "missing.toml"), 2, "missing.toml"),
    ],
)
def test_an_error_says_what_to_do_and_has_its_exit_code(
    run: Run, arguments: tuple[str, ...], code: int, word: str
) -> None:
    ended = run(*arguments)
    assert ended.code == code
    assert word in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_text_of_an_error_is_shown_as_it_is(run: Run) -> None:
    ended = run("migrate", "--check", "--config", "[red]x[/red].toml")
    assert "[red]x[/red].toml" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_file_that_is_no_catalog_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pennon-data" / ".pennon").mkdir(parents=True)
    (tmp_path / "pennon-data" / ".pennon" / "catalog.db").write_bytes(b"not a database" * 100)
    ended = run("keys", "list")
    assert ended.code == 1
    assert "pennon doctor" in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(("missing", "advised"), [("uvicorn", True), ("a_module_of_nobody", False)])
def test_a_missing_package_of_the_server_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, missing: str, advised: bool
) -> None:
    def fail() -> None:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(module, "app", fail)
    if not advised:
        with pytest.raises(ModuleNotFoundError):
            run("serve")
        return
    ended = run("serve")
    assert (ended.code, "pip install 'pennon[server]'" in ended.stderr) == (1, True)


def test_the_command_starts_without_the_packages_of_the_server() -> None:
    import subprocess

    hidden = ["lance", "lancedb", "obstore", "uvicorn", "starlette", "psycopg", "pyarrow", "pyspark"]
    code = f"import sys\nfor name in {hidden}: sys.modules[name] = None\nimport pennon.cli.main"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
