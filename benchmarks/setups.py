"""The set-ups that Pennon is measured in: its database, whether callers have keys, and a writer beside them."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from load import ARROW, Request, call
from operations import NAMESPACE, object_path
from servers import BenchmarkError, Server, start

if TYPE_CHECKING:
    from collections.abc import Iterator

SQLITE, SQLITE_KEYS, POSTGRES_KEYS = "sqlite", "sqlite-keys", "postgres-keys"
SETUPS = (SQLITE, SQLITE_KEYS, POSTGRES_KEYS)

_REPOSITORY = Path(__file__).resolve().parents[1]
_WRITER_TABLES = 4  # tables that the background writer inserts into; no reader asks for them


def start_setup(name: str, folder: Path, stack: contextlib.ExitStack) -> Server:
    """Start the peer, or Pennon in a set-up."""
    settings = {}
    if name == POSTGRES_KEYS:
        settings["PENNON_DATABASE"] = _start_postgres(stack)
    server = start(name, folder, settings)
    stack.callback(server.stop)
    if name in {SQLITE_KEYS, POSTGRES_KEYS}:
        server.api_key = _create_key(server.root, settings)
    return server


def _start_postgres(stack: contextlib.ExitStack) -> str:
    """Start a PostgreSQL server with an empty database, and return its URL."""
    sys.path.append(str(_REPOSITORY))
    from scripts.postgres_binaries import find_postgres
    from tests.support.postgres import PostgresServer

    binaries = find_postgres()
    if binaries is None:
        raise BenchmarkError("PostgreSQL is not installed; `make setup` installs it if it can")
    postgres = stack.enter_context(PostgresServer(binaries))
    return postgres.url(postgres.create_database())


def _create_key(root: Path, settings: dict[str, str]) -> str:
    command = [sys.executable, "-m", "pennon.cli.main", "keys", "create", "bench", "--role", "admin", "-d", str(root)]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    found = [word for word in done.stdout.split() if word.startswith("pennon_")]
    if done.returncode or not found:
        raise BenchmarkError(f"no key was created:\n{done.stdout}{done.stderr}")
    return found[0]


@contextlib.contextmanager
def background_writer(server: Server, rate: float) -> Iterator[None]:
    """Insert single rows into a few tables of their own at a rate, while the block runs."""
    if not rate:
        yield
        return
    stop = threading.Event()
    writer = threading.Thread(target=_insert_at, args=(server, rate, stop), daemon=True)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def create_writer_tables(server: Server) -> None:
    """Create the tables that the background writer inserts into."""
    for number in range(_WRITER_TABLES):
        path = object_path("table", [NAMESPACE, f"written{number}"], "create")
        status, body = call(server, Request("POST", path), _one_row(), ARROW)
        if status != 200:
            raise BenchmarkError(f"{server.name}: {path} answered {status}: {body[:300]!r}")


def _insert_at(server: Server, rate: float, stop: threading.Event) -> None:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    headers = {"Content-Type": ARROW, **server.headers}
    row, began, count = _one_row(), time.monotonic(), 0
    with contextlib.closing(connection):
        while not stop.wait(max(0.0, began + count / rate - time.monotonic())):
            path = object_path("table", [NAMESPACE, f"written{count % _WRITER_TABLES}"], "insert")
            connection.request("POST", path, body=row, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise BenchmarkError(f"{server.name}: an insert answered {answer.status}: {body[:300]!r}")
            count += 1


def _one_row() -> bytes:
    import pyarrow as pa

    sink = io.BytesIO()
    row = pa.table({"key": [1]})
    with pa.ipc.new_stream(sink, row.schema) as stream:
        stream.write_table(row)
    return sink.getvalue()
