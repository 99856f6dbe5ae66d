"""Connections to a server: LanceDB's, with functions and jobs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pennon.client.job import Job
from pennon.client.table import Table
from pennon.client.transport import Transport, new_key
from pennon.client.views import ViewConnection

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_URL = "http://127.0.0.1:2333"
_KEYS = ("PENNON_API_KEY", "LANCEDB_API_KEY")
#: The root namespace: a database of this name cannot exist, so it always stands for all there is.
_ROOT = "$"


def connect(
    url: str = DEFAULT_URL,
    *,
    api_key: str | None = None,
    database: str | None = None,
    **lancedb_options: Any,
) -> Connection:
    """Connect to a server.

    Args:
        url: The address that ``pennon serve`` prints.
        api_key: A key, if the server asks for one; else ``PENNON_API_KEY`` or ``LANCEDB_API_KEY`` of the environment.
        database: A root namespace to work in, as if it were all there is.
        lancedb_options: What else ``lancedb.connect`` takes, such as ``client_config``.
    """
    try:
        import lancedb
    except ImportError as error:
        raise ImportError("pennon.connect needs LanceDB's client: pip install lancedb") from error
    key = api_key if api_key is not None else next(filter(None, map(os.environ.get, _KEYS)), "")
    name = database or _ROOT
    inner = lancedb.connect(f"db://{name}", api_key=key, host_override=url.rstrip("/"), **lancedb_options)
    return Connection(inner, Transport(url, key, database=name, **_transport_options(inner.client_config)))


class Connection(ViewConnection):
    """All that a connection of LanceDB's client can do, views and jobs; its tables have columns that functions fill."""

    def __init__(self, inner: Any, transport: Transport) -> None:
        super().__init__(inner)
        self._transport = transport

    def __repr__(self) -> str:
        return f"<Connection to {self._transport.url}>"

    def __getitem__(self, name: str) -> Table:
        return self.open_table(name)

    def open_table(self, name: str, *, namespace_path: Sequence[str] | None = None, **options: Any) -> Table:
        """Open a table, as LanceDB's client does."""
        path = list(namespace_path or [])
        return Table(self._inner.open_table(name, namespace_path=path, **options), self._transport, path)

    def create_table(
        self, name: str, *arguments: Any, namespace_path: Sequence[str] | None = None, **options: Any
    ) -> Table:
        """Create a table, as LanceDB's client does."""
        path = list(namespace_path or [])
        inner = self._inner.create_table(name, *arguments, namespace_path=path, **options)
        return Table(inner, self._transport, path)

    def clone_table(
        self, name: str, *arguments: Any, target_namespace_path: Sequence[str] | None = None, **options: Any
    ) -> Table:
        """Clone a table, as LanceDB's client does."""
        path = list(target_namespace_path or [])
        inner = self._inner.clone_table(name, *arguments, target_namespace_path=path, **options)
        return Table(inner, self._transport, path)

    def drop_table(self, name: str, namespace_path: Sequence[str] | None = None, *, cascade: bool = False) -> None:
        """Drop a table, as LanceDB's client does; with ``cascade`` also the views over it."""
        path = list(namespace_path or [])
        if cascade:
            route = f"/v1/table/{quote('$'.join([*path, name]), safe='$')}/drop"
            self._transport.post(route, {"cascade": True}, idempotency_key=new_key())
        else:
            self._inner.drop_table(name, namespace_path=path)

    def job(self, job_id: str) -> Job:
        """Return a job by its id."""
        return Job(self._transport, job_id).refresh()

    def jobs(self, *, table: str | None = None, state: str | None = None, limit: int | None = None) -> list[Job]:
        """Return jobs, the latest first: all, those of a table, or those in a state."""
        body = {name: value for name, value in (("table", table), ("state", state)) if value is not None}
        found = self._transport.ask_all("/v1/jobs/list", body, "jobs", limit)
        return [Job(self._transport, known["job_id"], known) for known in found]


def _transport_options(config: Any) -> dict[str, Any]:
    """Return what LanceDB's client was told about headers and certificates, for requests beside it."""
    options: dict[str, Any] = {"headers": config.extra_headers}
    if config.header_provider is not None:
        options["more_headers"] = config.header_provider.get_headers
    if config.tls_config is not None:
        tls = config.tls_config
        files = {"cert_file": tls.cert_file, "key_file": tls.key_file, "ca_certs": tls.ssl_ca_cert}
        options["tls"] = {name: value for name, value in files.items() if value is not None}
        if not tls.assert_hostname:
            options["tls"]["assert_hostname"] = False
    return options
