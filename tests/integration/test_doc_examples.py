"""Every example in the documentation runs, in order, and prints what the page says it prints.

A page is followed to the letter: ``python`` blocks share one namespace, ``console`` blocks are typed into a shell in
an empty folder, and ``pennon serve`` is a real server that goes on running. The ``text`` block after a ``python``
block is what it prints; the lines after a ``$`` line are what that command prints. In both, ``…`` stands for anything.
A block after ``<!-- not run: why -->`` is skipped; ``<!-- needs: s3 -->`` puts a real server behind the page's example
address, ``<!-- needs: cluster -->`` a Spark cluster, and ``<!-- needs: worker -->`` a worker with Spark beside Pennon.
``pennon worker`` is a real one, too. Pages that need a worker and give ``pennon serve`` no options take turns with one
server, whose Spark is warm: each finds it empty.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.rest import RestClient
from tests.support.server import PennonProcess
from tests.support.spark import QUICK_DRIVER, STANDALONE
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import StartPennon

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("tutorial/*.md")),
    *sorted((ROOT / "docs").glob("how-to/*.md")),
]

#: What pages say, and what stands for it here.
URL = "http://127.0.0.1:2333"
DATABASE = "postgresql://pennon:secret@db.example.com/pennon"
MASTER = "spark://127.0.0.1:7077"
BUCKET = "s3://my-bucket/lake"
BUCKET_OPTIONS = '{"aws_region": "eu-central-1"}'

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]+) -->\n+)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_NEEDS = re.compile(r"^<!-- needs: (\w+) -->$", re.MULTILINE)
_SERVE = re.compile(r"(?:\S*/)?pennon (?P<what>serve|worker)\b(?P<arguments>.*)")
_EXPORT = re.compile(r"export (?P<name>\w+)=")
SECONDS = 180
STOP_SECONDS = 60
ENDED = {"done", "failed", "cancelled", "timed_out"}
WITH_WORKER = {
    "PENNON_WORKERS": "1",
    "PENNON_SPARK_PRESTART": "true",
    "PENNON_SPARK_CONF": json.dumps(QUICK_DRIVER),
}
ON_CLUSTER = {"PENNON_WORKERS": "1", "PENNON_SPARK_CONF": json.dumps(STANDALONE)}


@dataclass(frozen=True)
class Block:
    """A block of a page that is run: code or commands, and what it should print."""

    kind: str
    text: str
    line: int
    expected: str | None = None


def blocks_of(page: str) -> list[Block]:
    found = [
        (m["kind"], m["text"], page[: m.start("kind")].count("\n") + 1, m["why"], m.end())
        for m in _BLOCK.finditer(page)
    ]
    blocks = []
    for at, (kind, text, line, why, end) in enumerate(found):
        if why or kind not in {"python", "console"}:
            continue
        following = found[at + 1] if at + 1 < len(found) else None
        beside = following is not None and page[end : page.index("```", end)].strip() == ""
        expected = following[1] if kind == "python" and following and beside and following[0] == "text" else None
        blocks.append(Block(kind, text, line, expected))
    return blocks


def commands_of(text: str) -> list[tuple[str, str | None]]:
    """Split a console block into its commands, each with the output that is shown below it."""
    commands: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        elif commands and commands[-1][0].endswith("\\") and not commands[-1][1]:
            commands[-1] = (commands[-1][0][:-1] + line.strip(), [])
        else:
            assert commands, f"a console block starts with a command, not with {line!r}"
            commands[-1][1].append(line)
    return [(command, "\n".join(shown) if shown else None) for command, shown in commands]


def matches(shown: str, printed: str) -> bool:
    lines = _tidy(shown).splitlines()
    pattern = "".join("(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + "\n" for line in lines)
    return re.fullmatch(pattern, _tidy(printed) + "\n") is not None


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


@dataclass
class Reader:
    """Someone who follows a page to the letter."""

    folder: Path
    start: StartPennon
    export: Callable[[str, str], None]
    replacements: dict[str, str] = field(default_factory=dict)
    #: Options of the server that the page does not show.
    settings: dict[str, str] = field(default_factory=dict)
    #: An empty server with these settings, which does where the page says nothing of its own.
    shared: PennonProcess | None = None
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    server: PennonProcess | None = None
    workers: list[subprocess.Popen[str]] = field(default_factory=list)

    def follow(self, block: Block) -> None:
        if block.kind == "python":
            self._check(block.expected, self._run_python(block))
            return
        for command, shown in commands_of(block.text):
            self._check(shown, self._run_command(command))

    def _check(self, shown: str | None, printed: str) -> None:
        if self.server is not None:
            printed = printed.replace(self.server.url, URL)
        if shown is not None:
            assert matches(shown, printed), f"the page shows\n{shown}\nbut this was printed\n{printed}"

    def _run_python(self, block: Block) -> str:
        if self.server is None and URL in block.text:
            self._serve("")
        # The line numbers of a traceback are those of the page.
        code = compile("\n" * block.line + self._here(block.text), "<page>", "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("default")
            exec(code, self.names)  # noqa: S102 (the documentation's own code)
        return printed.getvalue()

    def _run_command(self, command: str) -> str:
        serve = _SERVE.fullmatch(command)
        if serve:
            return self._serve(serve["arguments"]) if serve["what"] == "serve" else self._work(serve["arguments"])
        export = _EXPORT.match(command)
        if export:
            self.export(export["name"], self._shell(f'{command}; printf %s "${export["name"]}"'))
            return ""
        return self._shell(command)

    def _serve(self, arguments: str) -> str:
        if self.server is not None and self.server is not self.shared:
            self.server.close()
        words = shlex.split(self._here(arguments))
        directory = words.pop(0) if words and not words[0].startswith("-") else "pennon-data"
        env = {name: value for name, value in os.environ.items() if name.startswith("PENNON_") and name != "PENNON_URL"}
        if self.shared is None or words or env:
            self.server = self.start(*words, directory=self.folder / directory, env={**self.settings, **env})
        else:
            self.server = self.shared
        self.export("PENNON_URL", self.server.url)  # the page's commands need none: its server has the usual port
        return self.server.stdout

    def _work(self, arguments: str) -> str:
        """Start a worker, which goes on working, and return the line that says so."""
        command = [sys.executable, "-m", "pennon.cli.main", "worker", *shlex.split(self._here(arguments))]
        worker = subprocess.Popen(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.workers.append(worker)
        assert worker.stdout is not None
        return worker.stdout.readline()

    def close(self) -> None:
        """End the workers; the fixture of the server ends it."""
        for worker in self.workers:
            with worker:
                worker.terminate()
                worker.wait(STOP_SECONDS)

    def _shell(self, command: str) -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ended = subprocess.run(
            ["bash", "-c", self._here(command)],
            cwd=self.folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if "export " in command else subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        assert ended.returncode == 0, f"{command!r} ended with {ended.returncode}:\n{ended.stdout}"
        return ended.stdout

    def _here(self, text: str) -> str:
        for shown, real in self.replacements.items():
            text = text.replace(shown, real)
        return text.replace(URL, self.server.url) if self.server else text


def replacements_for(page: str, request: pytest.FixtureRequest) -> dict[str, str]:
    needs = set(_NEEDS.findall(page))
    assert needs <= {"cluster", "postgresql", "s3", "worker"}, f"the page needs what is not known: {needs}"
    replacements = {}
    if "cluster" in needs:
        replacements[MASTER] = request.getfixturevalue("standalone").url
    if "postgresql" in needs:
        replacements[DATABASE] = request.getfixturevalue("postgres_url")
    if "s3" in needs:
        root = request.getfixturevalue("s3_root")
        replacements |= {BUCKET: root.url, BUCKET_OPTIONS: json.dumps(root.options)}
    return replacements


@pytest.fixture(scope="module")
def page_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server with a worker, for one page after the other."""
    with PennonProcess(tmp_path_factory.mktemp("pages"), env=WITH_WORKER) as server:
        yield server


def empty(server: PennonProcess) -> PennonProcess:
    """Remove all that a server has, also what it tells of earlier jobs."""
    with RestClient(server.url) as rest:
        for namespace in rest.get("/v1/namespace/$/list")["namespaces"]:
            rest.post(f"/v1/namespace/{namespace}/drop", {"behavior": "Cascade"})
        while tables := rest.get("/v1/namespace/$/table/list")["tables"]:
            rest.post(f"/v1/table/{tables[0]}/drop", {"cascade": True})
        wait_until(lambda: {job["state"] for job in rest.post("/v1/jobs/list")["jobs"]} <= ENDED, "no job runs")
    with contextlib.closing(sqlite3.connect(server.directory / ".pennon" / "catalog.db")) as catalog, catalog:
        catalog.execute("DELETE FROM jobs")
    return server


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_example_of_a_page_runs(
    path: Path,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    start_pennon: StartPennon,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    page = path.read_text(encoding="utf-8")
    reader = Reader(tmp_path, start_pennon, monkeypatch.setenv, replacements_for(page, request))
    if "worker" in _NEEDS.findall(page):
        reader.settings, reader.shared = WITH_WORKER, empty(request.getfixturevalue("page_server"))
    if "cluster" in _NEEDS.findall(page):
        reader.settings = ON_CLUSTER
    with contextlib.closing(reader):
        for block in blocks_of(page):
            try:
                reader.follow(block)
            except BaseException as error:
                error.add_note(f"in the block at {path.relative_to(ROOT)}:{block.line}")
                raise


class TestThisVeryTest:
    """A page whose examples were not really run would pass, too; so the runner has tests of its own."""

    PAGE = """
```python
print("a")
```

```text
a
```

```console
$ echo one \\
    two
one two
$ true
```

<!-- not run: it never ends -->
```console
$ sleep 1000
```

```json
{}
```
"""

    def test_blocks_are_found_with_their_output(self) -> None:
        first, second = blocks_of(self.PAGE)
        assert (first.kind, first.expected, first.line) == ("python", "a\n", 2)
        assert commands_of(second.text) == [("echo one two", "one two"), ("true", None)]

    @pytest.mark.parametrize(
        ("shown", "printed", "same"),
        [
            ("a", "a\n", True),
            ("a", "b", False),
            ("a … c", "a b c", True),
            ("a\n…\nz", "a\nb\nc\nz", True),
            ("a\n…\nz", "a\nb\nc", False),
            ("a", "a\nb", False),
            ("a.", "ab", False),
        ],
    )
    def test_output_is_compared(self, shown: str, printed: str, same: bool) -> None:
        assert matches(shown, printed) is same

    def test_a_wrong_output_or_exit_code_fails(self, tmp_path: Path, start_pennon: StartPennon) -> None:
        reader = Reader(tmp_path, start_pennon, lambda name, value: None)
        for block in (
            Block("python", "print(1)", 1, "2"),
            Block("console", "$ false", 1),
            Block("console", "$ echo 1\n2", 1),
        ):
            with pytest.raises(AssertionError):
                reader.follow(block)

    def test_every_block_is_run_or_says_why_not(self) -> None:
        for path in PAGES:
            page = path.read_text(encoding="utf-8")
            fences = re.findall(r"^```(\w+)$", page, re.MULTILINE)
            assert len(fences) == len(_BLOCK.findall(page)), path
            assert not {"sh", "bash", "shell"} & set(fences), f"{path}: write commands as console blocks"
            assert not re.search(r"^[ \t]+```", page, re.MULTILINE), f"{path}: an indented block would not be run"
