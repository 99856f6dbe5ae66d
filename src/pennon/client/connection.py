"""Connections to a Pennon server: LanceDB's connection, with materialized views and jobs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypedDict, cast

from pennon.client.job import Job, JobFields
from pennon.client.maintenance import policy_values
from pennon.client.table import Table
from pennon.client.transport import Transport, new_key, object_path, without_none
from pennon.client.views import ViewConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lancedb.remote import ClientConfig
    from lancedb.remote.db import RemoteDBConnection

    from pennon.client.maintenance import Value
    from pennon.client.transport import TlsFiles

DEFAULT_URL = "http://127.0.0.1:2333"
_API_KEY_VARIABLES = ("PENNON_API_KEY", "LANCEDB_API_KEY")
#: The root namespace: no database can have this name, so it always stands for the whole catalog.
_ROOT = "$"


def connect(
    url: str = DEFAULT_URL, *, api_key: str | None = None, database: str | None = None, **lancedb_options: Any
) -> Connection:
    """Connect to a Pennon server.

    Args:
        url: The URL that ``pennon serve`` prints.
        api_key: An API key, if the server requires one; by default the environment variable ``PENNON_API_KEY`` or
            ``LANCEDB_API_KEY``.
        database: A top-level namespace to work in, as if it were the whole catalog.
        lancedb_options: Further options of ``lancedb.connect``, such as ``client_config``.
    """
    try:
        import lancedb
    except ImportError as error:
        raise ImportError("pennon.connect needs LanceDB's client: pip install lancedb") from error
    key = api_key if api_key is not None else next(filter(None, map(os.environ.get, _API_KEY_VARIABLES)), "")
    name = database or _ROOT
    inner = cast(
        "RemoteDBConnection",
        lancedb.connect(f"db://{name}", api_key=key, host_override=url.rstrip("/"), **lancedb_options),
    )
    return Connection(inner, Transport(url, key, database=name, **_transport_options(inner.client_config)))


class Connection(ViewConnection):
    """A connection of LanceDB's client, with feature columns in its tables, materialized views and jobs."""

    def __init__(self, inner: RemoteDBConnection, transport: Transport) -> None:
        super().__init__(inner)
        self._transport = transport

    def __repr__(self) -> str:
        return f"<Connection to {self._transport.url}>"

    def __getitem__(self, name: str) -> Table:
        return self.open_table(name)

    def open_table(self, name: str, *, namespace_path: Sequence[str] | None = None, **options: Any) -> Table:
        """Open a table; the options are those of LanceDB's client."""
        path = list(namespace_path or [])
        return Table(self._inner.open_table(name, namespace_path=path, **options), self._transport, path)

    def create_table(
        self, name: str, *arguments: Any, namespace_path: Sequence[str] | None = None, **options: Any
    ) -> Table:
        """Create a table; the arguments are those of LanceDB's client."""
        path = list(namespace_path or [])
        inner = self._inner.create_table(name, *arguments, namespace_path=path, **options)
        return Table(inner, self._transport, path)

    def clone_table(
        self, name: str, *arguments: Any, target_namespace_path: Sequence[str] | None = None, **options: Any
    ) -> Table:
        """Clone a table; the arguments are those of LanceDB's client."""
        path = list(target_namespace_path or [])
        inner = self._inner.clone_table(name, *arguments, target_namespace_path=path, **options)
        return Table(inner, self._transport, path)

    def drop_table(self, name: str, namespace_path: Sequence[str] | None = None, *, cascade: bool = False) -> None:
        """Drop a table; with ``cascade`` also the materialized views over it."""
        path = list(namespace_path or [])
        if cascade:
            route = object_path("table", [*path, name], "drop")
            self._transport.post(route, {"cascade": True}, idempotency_key=new_key())
        else:
            self._inner.drop_table(name, namespace_path=path)

    def maintenance_policy(self, namespace_path: Sequence[str] | None = None) -> dict[str, Value]:
        """Return the maintenance policy that the tables of a namespace inherit."""
        route = object_path("namespace", namespace_path or [], "maintenance_policy/describe")
        return policy_values(self._transport.read(route))

    def alter_maintenance_policy(
        self, namespace_path: Sequence[str] | None = None, **values: Value | None
    ) -> dict[str, Value]:
        """Set values of the policy that the tables of a namespace inherit, or reset them with None."""
        route = object_path("namespace", namespace_path or [], "maintenance_policy/alter")
        return policy_values(self._transport.post(route, {"policy": values}, idempotency_key=new_key()))

    def job(self, job_id: str) -> Job:
        """Return a job by its id."""
        return Job(self._transport, job_id).refresh()

    def jobs(
        self,
        *,
        table: str | None = None,
        state: str | None = None,
        kind: str | None = None,
        include_maintenance: bool = False,
        limit: int | None = None,
    ) -> list[Job]:
        """Return jobs, the newest first: all, those of a table, in a state or of a kind.

        Automatic maintenance is left out, unless it is included or a kind is named.
        """
        body = without_none({"table": table, "state": state, "kind": kind})
        if include_maintenance:
            body["include_maintenance"] = True
        found = cast(list[JobFields], self._transport.read_all("/v1/jobs/list", body, "jobs", limit))
        return [Job(self._transport, fields["job_id"], fields) for fields in found]


class _TransportOptions(TypedDict, total=False):
    headers: Mapping[str, str] | None
    header_provider: Callable[[], Mapping[str, str]]
    tls: TlsFiles


def _transport_options(config: ClientConfig) -> _TransportOptions:
    """Return the headers and certificates of LanceDB's client, for the requests that Pennon sends itself."""
    options: _TransportOptions = {"headers": config.extra_headers}
    if config.header_provider is not None:
        options["header_provider"] = config.header_provider.get_headers
    if config.tls_config is not None:
        tls = config.tls_config
        files = {"cert_file": tls.cert_file, "key_file": tls.key_file, "ca_certs": tls.ssl_ca_cert}
        options["tls"] = cast("TlsFiles", without_none(files))
        if not tls.assert_hostname:
            options["tls"]["assert_hostname"] = False
    return options
