"""The server process: its socket, startup and graceful shutdown."""

from __future__ import annotations

import errno
import gc
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn

from pennon.catalog import keys, open_database
from pennon.catalog.schema import migrate
from pennon.core.process import API_OOM_SCORE, omit_centroids, prefer_oom_kill, watch_memory
from pennon.core.settings import Settings, SettingsError
from pennon.namespace import PennonNamespace
from pennon.server.application import Application
from pennon.server.http.protocol import Protocol
from pennon.services import open_storage_root

logger = logging.getLogger("pennon.server")


def is_loopback(host: str) -> bool:
    """Tell whether an address is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket that is bound but not listening; several processes may bind a shared port."""
    bound = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        # Without this, the port stays in use for a minute after a server has ended.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
    except OSError as error:
        if bound is not None:
            bound.close()
        wrong = "port" if error.errno in {errno.EADDRINUSE, errno.EACCES} else "host"
        raise SettingsError(
            f"Cannot listen on {address_of(host, port)}: {error.strerror}. Choose another {wrong} with --{wrong}."
        ) from error
    return bound


def can_share_port() -> bool:
    """Tell whether the system distributes connections over the sockets that share a port, as Linux does.

    macOS has ``SO_REUSEPORT``, too, but passes all connections to one of the sockets.
    """
    return sys.platform == "linux"


def address_of(host: str, port: int) -> str:
    """Return the URL for clients."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """A uvicorn server that calls a function once it accepts connections."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, in this process or in child processes."""
    open_storage_root(settings)  # reports invalid settings once instead of from every process
    require_keys(settings)
    if settings.process_count > 1 or settings.workers > 0:
        from pennon.server.supervisor import supervise

        supervise(settings)
        return
    bound = bind(settings.host, settings.port)
    serve_requests(
        settings,
        bound,
        lambda: print_line(f"Pennon is listening on {address_of(settings.host, bound.getsockname()[1])}"),
    )


def serve_requests(settings: Settings, bound: socket.socket, announce: Callable[[], None]) -> None:
    """Serve requests in this process until SIGTERM or SIGINT."""
    omit_centroids()
    _limit_memory(settings.memory_limit_bytes)
    namespace = PennonNamespace(settings)
    _tune_garbage_collector()
    config = uvicorn.Config(
        Application(namespace),
        loop="uvloop",
        http=Protocol,
        ws="none",  # even if a library for it is installed
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=2048,
        timeout_keep_alive=settings.keep_alive_timeout_seconds,
        timeout_graceful_shutdown=int(settings.shutdown_timeout_seconds) or 1,
    )
    # uvicorn raises the signal again after shutdown; without a handler, the process would look crashed.
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: None)
    try:
        _Server(config, announce).run(sockets=[bound])
    finally:
        namespace.close()


def _limit_memory(limit_bytes: int) -> None:
    """End this process when it holds more memory than its limit: one request must not cost the machine its memory."""

    def report(held_bytes: int) -> None:
        logger.critical(
            "this API process ends: it holds %d MB of memory; its limit is %d MB (api_process_memory_bytes)",
            held_bytes // 1024**2,
            limit_bytes // 1024**2,
        )

    prefer_oom_kill(API_OOM_SCORE)
    watch_memory(limit_bytes, report)


def _tune_garbage_collector() -> None:
    """Run the garbage collector less often: requests leave no cycles, and loaded modules stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def require_keys(settings: Settings) -> None:
    """Migrate the catalog, and refuse to listen beyond loopback while no key is configured."""
    database = open_database(settings.database_url, pool_size=1)
    try:
        migrate(database)
        is_exposed = not is_loopback(settings.host) and not settings.insecure
        if is_exposed and not database.read(keys.any_configured):
            raise SettingsError(
                f"Refusing to listen on {settings.host} while no API key is configured: create one with `pennon keys "
                "create NAME --role admin`, or pass --insecure to allow anonymous access."
            )
    finally:
        database.close()


def print_line(line: str) -> None:
    """Print a line and flush it, because scripts wait for it."""
    print(line, flush=True)  # noqa: T201
