"""Running the server: the socket, the line that says where it listens, and a graceful end."""

from __future__ import annotations

import errno
import gc
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn

from pennon.catalog import keys, open_database
from pennon.catalog.schema import migrate
from pennon.core.settings import Settings, SettingsError
from pennon.namespace import PennonNamespace
from pennon.server.application import Application
from pennon.server.http.protocol import Protocol
from pennon.services import open_storage_root


def is_loopback(host: str) -> bool:
    """Tell whether an address is reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket that is bound, but not yet listening; a shared port may be bound by several processes."""
    bound = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        # Connections of a server that just ended keep its address for a minute, unless its sockets had this, too.
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
    """Tell whether the system spreads connections over the sockets that are bound to one port, as Linux does.

    macOS lets several sockets have one port, too (``SO_REUSEPORT``), but gives all connections to one of them.
    """
    return sys.platform == "linux"


def address_of(host: str, port: int) -> str:
    """Return the address clients use."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """A uvicorn server that tells when it answers."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()


def serve(settings: Settings) -> None:
    """Serve until the process is told to stop: alone, or with as many processes as the settings say."""
    open_storage_root(settings)  # what is wrong with them is said here, once, and not by every process
    require_keys(settings)
    if settings.process_count > 1 or settings.workers > 0:
        from pennon.server.supervisor import supervise

        supervise(settings)
        return
    bound = bind(settings.host, settings.port)
    answer(settings, bound, lambda: say(f"Pennon is listening on {address_of(settings.host, bound.getsockname()[1])}"))


def answer(settings: Settings, bound: socket.socket, announce: Callable[[], None]) -> None:
    """Answer requests in this process until it is told to stop."""
    namespace = PennonNamespace.open(settings)
    _spare_collector()
    config = uvicorn.Config(
        Application(namespace),
        loop="uvloop",
        http=Protocol,
        ws="none",  # whatever is installed
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=2048,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=int(settings.shutdown_seconds) or 1,
    )
    # uvicorn raises the signal that ended it once more; without a handler that would look like a crash.
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: None)
    try:
        _Server(config, announce).run(sockets=[bound])
    finally:
        namespace.close()


def _spare_collector() -> None:
    """Let the garbage collector look less often: requests leave no cycles, and what was loaded stays anyway."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def require_keys(settings: Settings) -> None:
    """Bring the catalog up to date, and refuse to listen beyond loopback while no key is configured."""
    database = open_database(settings.database_url, pool_size=1)
    try:
        migrate(database)
        open_to_others = not is_loopback(settings.host) and not settings.insecure
        if open_to_others and not database.read(keys.any_configured):
            raise SettingsError(
                f"Refusing to listen on {settings.host} while no API key is configured: create one with `pennon keys "
                "create NAME --role admin`, or pass --insecure to let anyone in."
            )
    finally:
        database.close()


def say(line: str) -> None:
    """Print a line at once: scripts wait for it."""
    print(line, flush=True)  # noqa: T201
