"""The command as a whole: its help, its exit codes and its one-line errors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
import typer

from pennon import __version__
from pennon.cli import main as module
from pennon.cli.main import app

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run


def test_the_help_groups_the_commands(run: Run) -> None:
    said = run("--help")
    positions = [said.stdout.index(panel) for panel in ("Serve", "Tables", "Derived data", "Catalog")]
    assert positions == sorted(positions)
    wanted = "serve worker demo doctor import namespaces tables query tags versions backfill views jobs keys migrate"
    for name in wanted.split():
        assert f" {name} " in said.stdout


def test_every_command_says_what_it_does() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert all(command.help or command.callback.__doc__ for command in commands.values())


def test_the_version_is_shown(run: Run) -> None:
    assert run("--version").stdout == f"pennon {__version__}\n"


def test_output_has_no_colours_without_a_terminal(run: Run) -> None:
    said = run("keys", "revoke", "nobody")
    assert "\x1b" not in said.stdout + said.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("serve", "--port", "99999"), 2, "port"),
        (("serve", "--no-such-flag"), 2, "--no-such-flag"),
        (("keys", "list"), 2, "--directory"),
        (("worker", "no-such-folder"), 2, "No catalog found"),
        (("migrate", "--database", "mysql://x"), 2, "postgresql://"),
        (("serve", "--config", "missing.toml"), 2, "missing.toml"),
        (("serve", "--storage-options", "{x"), 2, "JSON"),
        (("tabels", "list"), 2, "'tables'"),
        (("query", "teas", "--colums", "name"), 2, "--columns"),
        (("keys", "list", "--database", "postgresql://127.0.0.1:1/x"), 6, "Start the database"),
        (("migrate", "--check", "--database", "postgresql://127.0.0.1:1/x"), 6, "Start the database"),
    ],
)
def test_an_error_says_what_to_do_and_has_its_exit_code(
    run: Run, arguments: tuple[str, ...], code: int, word: str
) -> None:
    ended = run(*arguments)
    assert ended.code == code
    assert word in ended.stderr
    assert "Traceback" not in ended.stderr


INTERRUPTED_WHILE_LOADING = """
import os, signal, sys

class Impatience:
    def find_spec(self, name, *_):
        if name == "pennon.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
sys.meta_path.insert(0, Impatience())
from pennon.cli.__main__ import start
start()
"""


def test_an_interrupt_while_it_is_loaded_is_quiet() -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED_WHILE_LOADING], capture_output=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


WITHOUT_POSIX = """
import sys
sys.modules["fcntl"] = sys.modules["resource"] = None
from pennon.cli.main import main
main()
"""


def test_where_posix_modules_are_missing_only_commands_that_need_them_are_refused(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITHOUT_POSIX, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert run("tables", "--help").returncode == 0
    refused = run("serve")
    assert refused.returncode == 1
    assert "This command needs Linux or macOS. On Windows, run it inside WSL 2." in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_interrupt_before_a_command_is_begun_is_quiet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "app", interrupt)
    ended = run("serve")
    assert (ended.code, ended.stderr) == (130, "")


def test_letters_that_the_terminal_has_not_are_spelt_out(tmp_path: Path) -> None:
    profiles = tmp_path / "pennon" / "profiles.toml"
    profiles.parent.mkdir()
    profiles.write_text('["büro"]\nurl = "http://127.0.0.1:1"\n', encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "XDG_CONFIG_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "pennon.cli", "profiles"]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60).stdout
    assert "b\\xfcro" in said


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


def test_an_unknown_missing_module_is_an_internal_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'nobody'", name="nobody")

    monkeypatch.setattr(module, "app", fail)
    with pytest.raises(ModuleNotFoundError):
        run("serve")


class TestWithoutExtras:
    """A light install, ``pip install pennon``: the packages of the extras are not there."""

    EXTRAS = ("server", "spark")
    #: Packages whose module has another name, or which a light install has by way of others.
    MODULES: ClassVar = {
        "pylance": "lance",
        "prometheus-client": "prometheus_client",
        "protobuf": "google.protobuf",
        "googleapis-common-protos": "google.rpc",
        "grpcio": "grpc",
        "grpcio-status": "grpc_status",
        "pyarrow": None,
        "pandas": None,  # Arrow looks for it, and does not bear one that is hidden in this way
    }

    def pennon(self, folder: Path, *arguments: str, extra: str | None = None) -> tuple[int, str]:
        """Run a command in a process that has the packages of one extra, or none; return its end and its errors."""
        hidden = set[str]().union(*map(self.modules_of, self.EXTRAS)) - (self.modules_of(extra) if extra else set())
        code = f"import sys\nfor name in {hidden}: sys.modules[name] = None\nfrom pennon.cli.main import main\nmain()"
        ended = subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True, timeout=60
        )
        return ended.returncode, ended.stderr

    def modules_of(self, extra: str) -> set[str]:
        content = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
        packages = [
            re.split(r"[\[<>=;]", requirement)[0] for requirement in content["project"]["optional-dependencies"][extra]
        ]
        return {name for name in (self.MODULES.get(package, package) for package in packages) if name is not None}

    @pytest.mark.parametrize(
        ("arguments", "there", "missing"),
        [
            (("serve", "--port", "0"), None, "server"),
            (("worker",), None, "all"),
            (("import", "."), None, "server"),
            (("keys", "list", "--database", "postgresql://127.0.0.1:1/x"), None, "server"),
        ],
    )
    def test_the_extra_to_install_is_named(
        self, tmp_path: Path, arguments: tuple[str, ...], there: str | None, missing: str
    ) -> None:
        code, said = self.pennon(tmp_path, *arguments, extra=there)
        assert code == 1
        assert f"pip install 'pennon[{missing}]'" in said
        assert said.count("\n") == 1

    def test_commands_that_need_no_extra_work(self, tmp_path: Path) -> None:
        assert self.pennon(tmp_path, "keys", "create", "ada", "--role", "admin")[0] == 0
        assert self.pennon(tmp_path, "tables", "list", "--url", "http://127.0.0.1:1")[0] == 6
