"""A real PostgreSQL server, made in a temporary folder and stopped at the end."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psycopg
from scripts.postgres_binaries import find_postgres

from tests.support.components import unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
USER = "pennon"
START_SECONDS = 60.0
ATTEMPTS = 3

# Nothing here has to survive a crash of the machine; pools would soon use up the default of 100 connections.
CONFIGURATION = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "300",
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "logging_collector": "off",
}


class PostgresError(RuntimeError):
    """The server did not start; the message holds what it logged."""


@dataclass(frozen=True)
class Account:
    """The account that the server runs under."""

    uid: int
    gid: int


def server_account() -> Account | None:
    """Return the account to switch to: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise PostgresError("PostgreSQL does not run as root, and there is neither an account postgres nor nobody")


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Run a server; without PostgreSQL the test cannot be run."""
    binaries = find_postgres()
    if binaries is None:
        unavailable("PostgreSQL")
    with PostgresServer(binaries) as server:
        yield server


class PostgresServer:
    """A running server; `create_database` makes a database that a test has for itself."""

    def __init__(self, binaries: Path) -> None:
        self.port = 0
        self.binaries = binaries
        self._password = secrets.token_hex(8)
        # pytest's own temporary folders are closed to the account that the server runs under.
        self.folder = Path(tempfile.mkdtemp(prefix="pennon-postgres-"))
        self._log = self.folder / "log.txt"
        self._account = server_account()
        self._process: subprocess.Popen[bytes] | None = None
        self._icu = False

    def __enter__(self) -> Self:
        try:
            self._initialise()
            self._start()
            self._icu = self._has_icu()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of the server."""
        if self._process is None:
            raise PostgresError("The server is not running")
        return self._process.pid

    def url(self, database: str) -> str:
        """Return the address of a database."""
        return f"postgresql://{USER}:{self._password}@{HOST}:{self.port}/{database}"

    def create_database(self) -> str:
        """Create an empty database and return its name."""
        name = f"test_{secrets.token_hex(6)}"
        # Most servers sort text as a language does, and not by bytes as SQLite does: the tests should see it.
        collation = " TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'" if self._icu else ""
        self._administer(f"CREATE DATABASE {name}{collation}")
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, and any connection that was left open to it."""
        self._administer(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def interrupt(self) -> None:
        """Stop the server and keep its files."""
        if self._process is not None:
            _end(self._process)

    def resume(self) -> None:
        """Start an interrupted server again, where it was."""
        self._process = self._spawn(self._command())
        self._wait(self._process)

    def stop(self) -> None:
        """Stop the server and remove its files."""
        if self._process is not None:
            _end(self._process)
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _has_icu(self) -> bool:
        """Tell whether a database can sort as a language does (since version 15, if built with it)."""
        with psycopg.connect(self.url("postgres")) as connection:
            found = connection.execute("SELECT 1 FROM pg_collation WHERE collname = 'en-US-x-icu'").fetchone()
            return found is not None and connection.info.server_version >= 150000

    def _administer(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    def _initialise(self) -> None:
        """Make the folder of the database cluster."""
        secret = self.folder / "password.txt"
        secret.write_text(self._password, encoding="utf-8")
        self._log.touch()
        if self._account:
            for path in (self.folder, secret, self._log):
                os.chown(path, self._account.uid, self._account.gid)
        command = [str(self.binaries / "initdb"), "-D", str(self.folder / "data"), "-U", USER, "--no-sync"]
        options = ["--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--locale=C"]
        made = self._spawn([*command, *options])
        if made.wait(timeout=START_SECONDS) != 0:
            raise PostgresError(self._logged())

    def _start(self) -> None:
        """Start the server on a free port; another program may take the port first, so try again then."""
        for attempt in range(1, ATTEMPTS + 1):
            self.port = free_port()
            self._process = self._spawn(self._command())
            try:
                self._wait(self._process)
                break
            except PostgresError:
                _end(self._process)
                if attempt == ATTEMPTS:
                    raise

    def _command(self) -> list[str]:
        settings = [f"--{name}={value}" for name, value in CONFIGURATION.items()]
        return [str(self.binaries / "postgres"), "-D", str(self.folder / "data"), f"--port={self.port}", *settings]

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return
        raise PostgresError(self._logged())

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        account = self._account
        with self._log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )

    def _logged(self) -> str:
        return f"PostgreSQL did not start:\n{self._log.read_text(encoding='utf-8', errors='replace')}"


def free_port() -> int:
    """Return a port of the loopback address that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server at once but cleanly, and wait for it."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown: it does not wait for its clients
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGQUIT)  # the immediate one; SIGKILL would leave its children behind
        process.wait(timeout=30)
