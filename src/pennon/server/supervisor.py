"""Several processes that answer on one port, and the one that starts, watches and ends them."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from pennon.core.logs import configure_logging
from pennon.core.process import READY, exit_with_parent
from pennon.core.settings import Settings, SettingsError
from pennon.server.metrics import SHARED_FOLDER, forget_process
from pennon.server.process import address_of, answer, bind, can_share_port, say

logger = logging.getLogger("pennon.server")

_START_SECONDS = 120.0
_RESTART_SECONDS = 1.0
_WORKER_RESTART_SECONDS = 5.0
_SERVER, _WORKER = "pennon.server.supervisor", "pennon.pipeline.worker.process"


def supervise(settings: Settings) -> None:
    """Run the processes of a server until told to stop; one that dies is replaced."""
    port = _reserve(settings)
    placed = settings.model_copy(update={"port": port})
    with tempfile.TemporaryDirectory(prefix="pennon-metrics-") as counts:
        supervisor = _Supervisor(placed, counts)
        if supervisor.start():
            say(f"Pennon is listening on {address_of(settings.host, port)}")
            supervisor.watch()


def _reserve(settings: Settings) -> int:
    """Return the port to share; binding it alone first tells whether another program has it."""
    with bind(settings.host, settings.port) as alone:
        port: int = alone.getsockname()[1]
    return port


class _Supervisor:
    """Keeps the processes of one server running."""

    def __init__(self, settings: Settings, counts: str) -> None:
        self._settings = settings
        self._counts = counts
        #: Keeps the port while processes are replaced. Where they cannot share it, they all accept from this socket.
        self._held = bind(settings.host, settings.port, shared=can_share_port())
        self._children: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        self._worker_died_at = 0.0
        self._stopping = threading.Event()
        for ending in (signal.SIGTERM, signal.SIGINT):
            signal.signal(ending, lambda *_: self._stopping.set())

    def start(self) -> bool:
        """Start all processes, and tell whether they answer; they do not when told to stop before."""
        self._children = [self._spawn(_SERVER) for _ in range(self._settings.process_count)]
        for child in self._children:
            if not self._answers(child):
                self._stop()
                if self._stopping.is_set():
                    return False
                raise SettingsError("A server process ended while it was starting; its log lines above say why.")
        self._workers = [self._spawn(_WORKER) for _ in range(count_workers(self._settings))]
        return True

    def watch(self) -> None:
        """Replace processes that die, until told to stop; then end them all."""
        while not self._stopping.wait(_RESTART_SECONDS):
            for index, child in enumerate(self._children):
                if child.poll() is not None and not self._stopping.is_set():
                    logger.error("server process %d ended with %s; starting another", child.pid, child.returncode)
                    forget_process(child.pid, self._counts)
                    self._children[index] = self._spawn(_SERVER)
            self._replace_workers()
        self._stop()

    def _replace_workers(self) -> None:
        """Start a worker in the place of one that died; not at once, for it may die again."""
        for index, child in enumerate(self._workers):
            if child.poll() is None or time.monotonic() - self._worker_died_at < _WORKER_RESTART_SECONDS:
                continue
            logger.error("worker %d ended with %s; starting another", child.pid, child.returncode)
            self._worker_died_at = time.monotonic()
            self._workers[index] = self._spawn(_WORKER)

    def _spawn(self, module: str) -> subprocess.Popen[bytes]:
        inherited = [] if module == _WORKER or can_share_port() else [self._held.fileno()]
        child = subprocess.Popen(  # noqa: S603 (this very program)
            [sys.executable, "-m", module, str(os.getpid()), *map(str, inherited)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, SHARED_FOLDER: self._counts},
            start_new_session=True,  # a Ctrl-C in the terminal is for the supervisor, which passes it on
            pass_fds=inherited,
        )
        assert child.stdin is not None  # noqa: S101 (asked for above)
        child.stdin.write(self._settings.model_dump_json().encode() + b"\n")
        child.stdin.flush()
        return child

    def _answers(self, child: subprocess.Popen[bytes]) -> bool:
        assert child.stdout is not None  # noqa: S101 (asked for when it was started)
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            deadline = time.monotonic() + _START_SECONDS
            while time.monotonic() < deadline and not self._stopping.is_set():
                if selector.select(timeout=0.5):
                    return child.stdout.readline() == READY
        return False

    def _stop(self) -> None:
        self._held.close()  # no connection may wait in it for a process that is gone
        children = [*self._children, *self._workers]
        for child in children:
            child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self._settings.shutdown_seconds + 5.0
        for child in children:
            try:
                child.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def count_workers(settings: Settings) -> int:
    """Return how many workers to keep: none where Spark is not installed."""
    if settings.workers and importlib.util.find_spec("pyspark") is None:
        logger.warning("jobs wait for a worker on another host: Spark is not installed here (pennon[spark])")
        return 0
    return settings.workers


def run_child() -> None:
    """Be one of the processes of a server, with its settings on standard input.

    The arguments are the id of the supervisor and, where processes cannot share a port, the socket to accept from.
    """
    exit_with_parent(int(sys.argv[1]))
    settings = Settings.model_validate_json(sys.stdin.readline())
    configure_logging(settings.log_level, settings.log_format)
    ready = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    if len(sys.argv) > 2:
        bound = socket.socket(fileno=int(sys.argv[2]))
    else:
        bound = bind(settings.host, settings.port, shared=True)

    def announce() -> None:
        ready.write(READY)

    answer(settings, bound, announce)


if __name__ == "__main__":
    run_child()
