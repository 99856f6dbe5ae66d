"""The supervisor of the server processes on one port, and of the workers."""

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
from pennon.core.process import MEMORY_LIMIT_EXIT_CODE, READY, exit_with_parent
from pennon.core.settings import Settings, SettingsError
from pennon.server.metrics import SHARED_FOLDER, forget_process
from pennon.server.process import address_of, bind, can_share_port, print_line, serve_requests

logger = logging.getLogger("pennon.server")

_START_SECONDS = 120.0
_RESTART_SECONDS = 1.0
_WORKER_RESTART_SECONDS = 5.0
_SERVER, _WORKER = "pennon.server.supervisor", "pennon.pipeline.worker.process"


def supervise(settings: Settings) -> None:
    """Run the processes of a server until SIGTERM or SIGINT; restart those that die."""
    port = _reserve(settings)
    settings_with_port = settings.model_copy(update={"port": port})
    with tempfile.TemporaryDirectory(prefix="pennon-metrics-") as metrics_folder:
        supervisor = _Supervisor(settings_with_port, metrics_folder)
        if supervisor.start():
            print_line(f"Pennon is listening on {address_of(settings.host, port)}")
            supervisor.watch()


def _reserve(settings: Settings) -> int:
    """Return the port to share; binding it exclusively first fails if another program has it."""
    with bind(settings.host, settings.port) as exclusive:
        port: int = exclusive.getsockname()[1]
    return port


class _Supervisor:
    """Starts, restarts and stops the processes of one server."""

    def __init__(self, settings: Settings, metrics_folder: str) -> None:
        self._settings = settings
        self._metrics_folder = metrics_folder
        #: Keeps the port while processes restart. Where they cannot share it, they all accept from this socket.
        self._socket = bind(settings.host, settings.port, shared=can_share_port())
        self._children: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        self._worker_died_at = 0.0
        self._stopping = threading.Event()
        for ending in (signal.SIGTERM, signal.SIGINT):
            signal.signal(ending, lambda *_: self._stopping.set())

    def start(self) -> bool:
        """Start all processes, and tell whether they are ready; false if the supervisor was stopped meanwhile."""
        self._children = [self._spawn(_SERVER) for _ in range(self._settings.process_count)]
        for child in self._children:
            if not self._wait_until_ready(child):
                self._stop()
                if self._stopping.is_set():
                    return False
                raise SettingsError("A server process ended during startup; its log above has the cause.")
        self._workers = [self._spawn(_WORKER) for _ in range(count_workers(self._settings))]
        return True

    def watch(self) -> None:
        """Restart processes that die, until stopped; then stop all."""
        while not self._stopping.wait(_RESTART_SECONDS):
            for index, child in enumerate(self._children):
                if child.poll() is not None and not self._stopping.is_set():
                    reason = describe_exit(child.returncode)
                    logger.error("API process %d ended: %s; starting another", child.pid, reason)
                    forget_process(child.pid, self._metrics_folder)
                    self._children[index] = self._spawn(_SERVER)
            self._restart_workers()
        self._stop()

    def _restart_workers(self) -> None:
        """Restart workers that died, with a delay in case they die again."""
        for index, child in enumerate(self._workers):
            if child.poll() is None or time.monotonic() - self._worker_died_at < _WORKER_RESTART_SECONDS:
                continue
            logger.error("worker %d ended: %s; starting another", child.pid, describe_exit(child.returncode))
            self._worker_died_at = time.monotonic()
            self._workers[index] = self._spawn(_WORKER)

    def _spawn(self, module: str) -> subprocess.Popen[bytes]:
        inherited = [] if module == _WORKER or can_share_port() else [self._socket.fileno()]
        child = subprocess.Popen(  # noqa: S603 (this very program)
            [sys.executable, "-m", module, str(os.getpid()), *map(str, inherited)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, SHARED_FOLDER: self._metrics_folder},
            start_new_session=True,  # Ctrl-C in the terminal reaches the supervisor only, which stops its children
            pass_fds=inherited,
        )
        assert child.stdin is not None  # noqa: S101 (a pipe, see above)
        child.stdin.write(self._settings.model_dump_json().encode() + b"\n")
        child.stdin.flush()
        return child

    def _wait_until_ready(self, child: subprocess.Popen[bytes]) -> bool:
        assert child.stdout is not None  # noqa: S101 (a pipe, see _spawn)
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            deadline = time.monotonic() + _START_SECONDS
            while time.monotonic() < deadline and not self._stopping.is_set():
                if selector.select(timeout=0.5):
                    return child.stdout.readline() == READY
        return False

    def _stop(self) -> None:
        self._socket.close()  # otherwise connections would wait in its backlog for a process that is gone
        children = [*self._children, *self._workers]
        for child in children:
            child.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self._settings.shutdown_timeout_seconds + 5.0
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


def describe_exit(code: int) -> str:
    """Return how a process ended and, where it is known, why."""
    if code == MEMORY_LIMIT_EXIT_CODE:
        return "it reached its memory limit (api_process_memory_bytes)"
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    reasons = {"SIGKILL": "; the machine may be out of memory", "SIGABRT": "; an allocation may have failed"}
    return f"{name}{reasons.get(name, '')}"


def count_workers(settings: Settings) -> int:
    """Return the number of workers to run: 0 where Spark is not installed."""
    if settings.workers and importlib.util.find_spec("pyspark") is None:
        logger.warning(
            "no worker started: Spark is not installed (pennon[spark]); jobs wait for a worker on another host"
        )
        return 0
    return settings.workers


def run_child() -> None:
    """Run one server process, with its settings from standard input.

    The arguments are the process id of the supervisor and, where processes cannot share a port, the inherited socket.
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

    serve_requests(settings, bound, announce)


if __name__ == "__main__":
    run_child()
