"""``pennon demo``: a tour of a real server, the published clients and Spark, in less than a minute."""

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

from pennon.cli.output import console, print_error
from pennon.core.settings import ENV_PREFIX, Settings

_LISTENING = re.compile(r"listening on (\S+)")
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0


def demo(
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder for the sample tables.", show_default="a new one")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the server running until Ctrl-C.")] = False,
) -> None:
    """Start a server with sample tables and show what it does: catalog, UDF columns and materialized views."""
    _require_clients()
    folder = (directory or Path(tempfile.mkdtemp(prefix="pennon-demo-"))).absolute()
    out = console()
    # The Rust part of Lance has its own log, and its messages here are expected.
    os.environ.setdefault("LANCE_LOG", "error")
    from pennon.cli.demo.steps import show_catalog, show_features
    from pennon.cli.demo.view_steps import show_views

    missing = _missing_for_jobs()
    # Spark starts during the first steps.
    with _server(folder, port, *(["--spark-prestart"] if missing is None else ["--workers", "0"])) as url:
        out.print(f"Server started at [bold]{url}[/bold]; its catalog and tables are in {escape(str(folder))}.")
        show_catalog(url, out)
        if missing is None:
            show_features(url, out)
            show_views(url, out)
        else:
            out.print(f"\nSkipping feature columns and materialized views: {escape(missing)}", soft_wrap=True)
        if keep:
            links = f"\nServer  {url}\nConsole {url}/console/\nData    {escape(str(folder))}"
            out.print(f"{links}\nJobs    {escape(_command_line('jobs', 'list', '--url', url))}", soft_wrap=True)
            out.print("The server runs until Ctrl-C.")
            _wait_for_interrupt()
    again = f"[bold]{escape(_command_line('serve', str(folder)))}[/bold]"
    usual = {name: Settings.model_fields[name].default for name in ("host", "port")}
    console_url = "http://{host}:{port}/console/".format(**usual)
    out.print(
        f"\nThe server has stopped. Start it again with {again};\nits console is at {console_url}", soft_wrap=True
    )


def _command_line(*arguments: str) -> str:
    """Return a command line that works in this shell: with the program's path if it is not on the PATH."""
    program, name = Path(sys.argv[0]), "pennon"
    found = shutil.which(name)
    known = program.name != name or (found is not None and Path(found).resolve() == program.resolve())
    return shlex.join([name if known else str(program), *arguments])


def _require_clients() -> None:
    if any(importlib.util.find_spec(name) is None for name in ("lancedb", "lance")):
        print_error("The demo needs the published clients: pip install 'pennon[server]'.")
        raise typer.Exit(1)


def _missing_for_jobs() -> str | None:
    """Return what this machine lacks to run jobs, if anything."""
    if importlib.util.find_spec("pyspark") is None:
        return "they need Spark, which is not installed. To see them: pip install 'pennon[spark]'."
    from pennon.pipeline.cluster.java import JavaNotFoundError, choose_java

    try:
        choose_java()
    except JavaNotFoundError as error:
        return str(error)
    return None


@contextmanager
def _server(folder: Path, port: int, *flags: str) -> Iterator[str]:
    """Run ``pennon serve`` on a folder in a child process, without the settings in this shell's environment."""
    command = [sys.executable, "-m", "pennon.cli.main", "serve", str(folder), "--port", str(port), *flags]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 (this program)
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
    """Return the URL that a server prints when it listens."""
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
