"""``pennon demo``: a real server, the published clients and Spark, walked through in less than a minute."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from lance_namespace.errors import ServiceUnavailableError
from rich.markup import escape

from pennon.cli.output import complain, console
from pennon.core.settings import ENV_PREFIX, Settings

_LISTENING = re.compile(r"listening on (\S+)")
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0


def demo(
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder for the sample tables.", show_default="a new one")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running until Ctrl-C.")] = False,
) -> None:
    """Start a server with sample tables and walk through it: the published clients, and what is computed on Spark."""
    _require_clients()
    folder = (directory or Path(tempfile.mkdtemp(prefix="pennon-demo-"))).absolute()
    out = console()
    # Rust's part of Lance logs on its own, and what it notes here is expected.
    os.environ.setdefault("LANCE_LOG", "error")
    from pennon.cli.demo.steps import walk_through, walk_through_features
    from pennon.cli.demo.view_steps import walk_through_views

    lacking = _lacking_for_jobs()
    # Spark starts while the clients are walked through.
    with _server(folder, port, *(["--worker-warm"] if lacking is None else ["--workers", "0"])) as url:
        out.print(f"A server was started on [bold]{url}[/bold]; its tables and catalog are in {escape(str(folder))}.")
        walk_through(url, out)
        if lacking is None:
            walk_through_features(url, out)
            walk_through_views(url, out)
        else:
            out.print(f"\nColumns and views that functions fill are left out: {escape(lacking)}", soft_wrap=True)
        if keep:
            places = f"\nServer  {url}\nConsole {url}/console/\nData    {escape(str(folder))}"
            out.print(f"{places}\nJobs    {escape(_called('jobs', 'list', '--url', url))}", soft_wrap=True)
            out.print("The server runs until Ctrl-C.")
            _wait_for_interrupt()
    again = f"[bold]{escape(_called('serve', str(folder)))}[/bold]"
    usual = {name: Settings.model_fields[name].default for name in ("host", "port")}
    then = "serves its tables again,\nand the console at http://{host}:{port}/console/.".format(**usual)
    out.print(f"\nThe server has ended. {again} {then}", soft_wrap=True)


def _called(*arguments: str) -> str:
    """Return a command as it is typed here: with the program's path where the shell does not know its name."""
    program, name = Path(sys.argv[0]), "pennon"
    found = shutil.which(name)
    known = program.name != name or (found is not None and Path(found).resolve() == program.resolve())
    return shlex.join([name if known else str(program), *arguments])


def _require_clients() -> None:
    if any(importlib.util.find_spec(name) is None for name in ("lancedb", "lance")):
        complain("The demo uses the clients that people have: run pip install 'pennon[server]' first.")
        raise typer.Exit(1)


def _lacking_for_jobs() -> str | None:
    """Say what this machine lacks to run jobs, if anything."""
    if importlib.util.find_spec("pyspark") is None:
        return "they are computed on Spark, which is not installed. Run pip install 'pennon[spark]' to see them."
    from pennon.pipeline.cluster.java import JavaNotFoundError, choose_java

    try:
        choose_java()
    except JavaNotFoundError as error:
        return str(error)
    return None


@contextmanager
def _server(folder: Path, port: int, *flags: str) -> Iterator[str]:
    """Run ``pennon serve`` on a folder as a process of its own; the settings of this shell do not reach it."""
    command = [sys.executable, "-m", "pennon.cli.main", "serve", str(folder), "--port", str(port), *flags]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 (this very program)
            [*command, "--log-level", "warning"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield _address(process)
        except ServiceUnavailableError as error:
            log.seek(0)
            raise ServiceUnavailableError(f"{error} {log.read().decode(errors='replace').strip()}") from None
        finally:
            _stop(process)


def _address(process: subprocess.Popen[str]) -> str:
    """Return the address a server says it listens on."""
    assert process.stdout is not None  # noqa: S101 (it was started with a pipe)
    line = process.stdout.readline()
    found = _LISTENING.search(line)
    if found is None:
        process.wait(_START_SECONDS)
        raise ServiceUnavailableError("The server did not start.")
    return found[1]


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _wait_for_interrupt() -> None:
    try:
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        pass
