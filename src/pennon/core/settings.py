"""Every setting of Pennon: its default, environment variable, key in ``pennon.toml`` and meaning.

The first of these that names a setting wins: a flag, ``PENNON_<NAME>``, the file given by ``--config`` (or
``PENNON_CONFIG``), the default. Flags, environment variables and the reference page are made from this one class.
"""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Self, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as SourceError

from pennon.core.errors import suggest
from pennon.core.maintenance_settings import MaintenanceSettings

logger = logging.getLogger("pennon.settings")

ENV_PREFIX = "PENNON_"
#: The same as pydantic-settings writes it: it compares the names of variables in lower case.
_ENV = ENV_PREFIX.lower()

Value = TypeVar("Value")

#: Settings that were renamed. The old names are still read, with a warning, until the release after the next one.
RENAMED: Mapping[str, str] = {
    "auto_backfill_rows": "auto_backfill_min_rows",
    "auto_backfill_seconds": "auto_backfill_every_seconds",
    "auto_refresh_rows": "auto_refresh_min_rows",
    "auto_refresh_seconds": "auto_refresh_every_seconds",
    "cluster_seconds": "spark_start_timeout_seconds",
    "dataset_handles": "dataset_cache_entries",
    "detail_cache_entries": "schema_cache_entries",
    "discover": "discover_tables",
    "discover_seconds": "discovery_interval_seconds",
    "environment_bytes": "environment_cache_bytes",
    "group_append_bytes": "max_grouped_append_bytes",
    "idempotency_hours": "idempotency_retention_hours",
    "job_attempts": "max_job_takeovers",
    "job_days": "job_retention_days",
    "keep_alive_seconds": "keep_alive_timeout_seconds",
    "manage_registered": "manage_registered_tables",
    "query_process_seconds": "query_timeout_seconds",
    "recreate_apart": "isolate_recreated_tables",
    "shutdown_seconds": "shutdown_timeout_seconds",
    "stall_seconds": "stall_timeout_seconds",
    "threads": "metadata_threads",
    "transaction_days": "transaction_retention_days",
    "worker_poll_seconds": "worker_poll_interval_seconds",
    "worker_warm": "spark_prestart",
}


class SettingsError(ValueError):
    """A setting is unknown or has an invalid value; the message names the setting."""


class ClusterSettings(BaseModel):
    """A Spark cluster that jobs may name: a master or the URL of a Spark Connect server, and its configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    master: str | None = None
    remote: str | None = None
    conf: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if (self.master is None) == (self.remote is None):
            raise ValueError("a cluster needs either a master or a remote URL (sc://…)")
        return self


class Settings(MaintenanceSettings):
    """The settings of a Pennon process."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="forbid", frozen=True, env_ignore_empty=True, allow_inf_nan=False
    )

    directory: Path = Field(
        Path("pennon-data"), description="Folder of the embedded catalog and, without --root, of the tables."
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(2333, ge=0, le=65535, description="Port to listen on; 0 picks a free port.")
    processes: int | None = Field(
        None, ge=1, le=64, description="Number of API processes; by default one per core, at most 4."
    )
    database: str | None = Field(
        None,
        description="Catalog database: sqlite:///PATH or postgresql://…; by default a SQLite file in the folder.",
    )
    database_pool_size: int = Field(16, ge=1, description="Maximum number of PostgreSQL connections per process.")
    root: str | None = Field(
        None,
        description="Storage root of the tables: a folder or an s3://, gs:// or az:// URL; by default the folder.",
    )
    storage_options: dict[str, str] = Field(
        default_factory=dict, description="Storage options of the root, by the names that Lance uses (JSON)."
    )
    vend_credentials: bool = Field(
        False, description="Send the secrets in storage_options to clients that may read or write a table."
    )
    allowed_locations: list[str] = Field(
        default_factory=list,
        description="Location prefixes outside the root where tables may be registered (JSON).",
    )
    manage_registered_tables: bool = Field(
        False, description="Manage the commits of registered tables, as for tables that Pennon creates."
    )
    isolate_recreated_tables: bool = Field(
        True,
        description="Give a root table that is created again after a drop a new folder, which writers that still have "
        "the dropped table open cannot reach.",
    )
    durable_writes: bool = Field(
        True,
        description="Flush the files of a commit to disk before the commit is recorded, or keep their content in the "
        "embedded catalog until they are flushed, so that it survives a power failure. Applies to local disks; object "
        "stores are always durable.",
    )
    discover_tables: bool = Field(True, description="Show *.lance folders in the root as tables.")
    discovery_interval_seconds: float = Field(
        5.0, ge=0, description="Minimum interval between two scans of an object store for new *.lance folders."
    )
    insecure: bool = Field(False, description="Allow listening on a non-loopback address without any API key.")
    page_limit: int = Field(10_000, ge=1, description="Maximum number of items in a page of a listing.")
    max_json_bytes: int = Field(16 * 1024 * 1024, ge=1024, description="Maximum size of a JSON request body.")
    body_memory_bytes: int = Field(
        512 * 1024 * 1024,
        ge=8 * 1024 * 1024,
        description="Memory per process for request bodies: while they are received and, for JSON, until the response "
        "is sent. When it is used up, clients wait.",
    )
    metadata_threads: int = Field(32, ge=2, description="Maximum number of concurrent metadata operations.")
    schema_cache_entries: int = Field(
        4096, ge=1, description="Number of table versions whose schema and statistics are cached."
    )
    manifest_cache_bytes: int = Field(
        64 * 1024 * 1024, ge=0, description="Memory for the commit authority's cache of latest manifests."
    )
    max_manifest_bytes: int = Field(
        64 * 1024 * 1024,
        ge=1,
        description="Maximum size of a manifest that a client commits; a check takes up to 32 times as much memory.",
    )
    index_cache_bytes: int = Field(
        512 * 1024 * 1024, ge=0, description="Memory for open indexes, shared by all tables."
    )
    metadata_cache_bytes: int = Field(
        256 * 1024 * 1024, ge=0, description="Memory for the metadata of data files, shared by all tables."
    )
    dataset_cache_entries: int = Field(512, ge=1, description="Number of table versions kept open for reading.")
    data_threads: int = Field(
        32, ge=2, description="Maximum number of concurrent data operations (inserts, queries, updates)."
    )
    max_expression_bytes: int = Field(
        4 * 1024 * 1024, ge=1024, description="Maximum size of an SQL expression or filter in a request."
    )
    max_expression_literals: int = Field(
        100_000,
        ge=1,
        description="Maximum number of literals in an SQL expression or filter; each takes about 1 KB to plan.",
    )
    api_process_memory_bytes: int | None = Field(
        None,
        ge=512 * 1024**2,
        description="Memory limit of each API process; by default 3/4 of the memory of the machine or container, at "
        "least 1 GiB. A process that exceeds it ends and is replaced.",
    )
    query_processes: int = Field(
        2,
        ge=0,
        le=64,
        description="Processes that each API process may start for queries whose SQL can need much memory or time; "
        "with 0, such queries are refused.",
    )
    query_process_memory_bytes: int = Field(
        3 * 1024**3,
        ge=2 * 1024**3,
        description="Memory limit of each query process: of its address space on Linux, where an idle process has "
        "1.7 GB; of its resident memory on macOS.",
    )
    query_timeout_seconds: float = Field(
        300.0, gt=0, description="Timeout of a query in a query process, including the time its client takes to read."
    )
    index_threads: int = Field(1, ge=1, description="Maximum number of indexes that are built concurrently.")
    max_grouped_append_bytes: int = Field(
        4 * 1024 * 1024, ge=0, description="Maximum size of an append that is committed together with waiting appends."
    )
    max_upload_bytes: int | None = Field(
        None, ge=1, description="Maximum size of an Arrow request body; unlimited by default."
    )
    max_batch_bytes: int = Field(
        1024 * 1024 * 1024,
        ge=1024 * 1024,
        description="Maximum decompressed size of a batch in an Arrow request body, including its dictionaries.",
    )
    batch_memory_bytes: int = Field(
        2 * 1024 * 1024 * 1024,
        ge=1024 * 1024,
        description="Memory per process for the batches of all Arrow request bodies. When it is used up, uploads wait.",
    )
    stream_buffer_bytes: int = Field(
        16 * 1024 * 1024, ge=65536, description="Buffer per upload or download while its other end is slow."
    )
    idempotency_retention_hours: float = Field(
        24.0, gt=0, description="Hours for which the response to an Idempotency-Key is kept."
    )
    transaction_retention_days: float = Field(30.0, gt=0, description="Days for which transactions are kept.")
    job_retention_days: float = Field(30.0, gt=0, description="Days for which finished jobs are kept.")
    max_job_takeovers: int = Field(
        5,
        ge=0,
        description="How often in a row a job may be taken over after its worker or its Spark session was lost, "
        "without a commit in between, before it fails.",
    )
    job_lease_seconds: float = Field(
        30.0, gt=0, description="Lease of a job: a worker that does not renew it in this time loses the job."
    )
    shutdown_timeout_seconds: float = Field(
        10.0, gt=0, description="Time for active requests to finish when the server shuts down."
    )
    keep_alive_timeout_seconds: int = Field(
        75, ge=1, description="Keep-alive and header timeout: time a connection may wait for the headers of a request."
    )
    stall_timeout_seconds: float = Field(
        300.0, ge=1, description="Time a client may pause while it sends a body or reads a response."
    )
    spark_master: str = Field(
        "local[*,4]",
        description="Spark that runs jobs: a master (local[CORES,ATTEMPTS], spark://…, yarn, k8s://…) or a Spark "
        "Connect URL (sc://…).",
    )
    spark_conf: dict[str, str] = Field(
        default_factory=dict, description="Spark configuration of spark_master, by Spark's own names (JSON)."
    )
    clusters: dict[str, ClusterSettings] = Field(
        default_factory=dict,
        description='Further Spark clusters that a job may name, such as {"big": {"master": "spark://…", "conf": {}}} '
        'or {"far": {"remote": "sc://…"}} (JSON).',
    )
    spark_start_timeout_seconds: float = Field(
        60.0, gt=0, description="Timeout for reaching a Spark cluster, after which the waiting job fails."
    )
    spark_idle_timeout_seconds: float = Field(
        900.0,
        ge=0,
        description="Close a worker's Spark session after this time without a job, which frees its memory; 0 keeps it "
        "open. The next job starts Spark again.",
    )
    environment_folder: Path | None = Field(
        None, description="Where the packages of functions are installed; by default in the folder."
    )
    environment_cache_bytes: int = Field(
        20 * 1024**3,
        ge=0,
        description="Disk space for installed environments; the least recently used that is not in use is removed "
        "first.",
    )
    package_indexes: list[str] = Field(
        default_factory=list,
        description="URLs of the package indexes for functions, the main one first (JSON). When set, manifests may "
        "name no other index, and no wheel outside these; by default pip's own configuration, and any http(s) index or "
        "wheel that a manifest names.",
    )
    workers: int = Field(1, ge=0, le=64, description="Number of worker processes beside the server; 0 for none.")
    worker_slots: int = Field(2, ge=1, le=64, description="Maximum number of concurrent jobs per worker.")
    worker_poll_interval_seconds: float = Field(
        0.02,
        gt=0,
        description="How often a worker looks for the next job; ten times as long when idle, and with SQLite at once "
        "after a write.",
    )
    backfill_batch_rows: int = Field(32768, ge=1, description="Maximum number of rows in one call of a function.")
    backfill_batch_bytes: int = Field(
        32 * 1024 * 1024, ge=1024, description="Approximate size of the input that a backfill task holds in memory."
    )
    checkpoint_seconds: float = Field(
        0.1, ge=0, description="How often a backfill saves its results on a local disk; a crash loses no more work."
    )
    remote_checkpoint_seconds: float = Field(
        5.0, ge=0, description="The same for tables on an object store, which charges for every file."
    )
    auto_backfill_min_rows: int = Field(
        1, ge=1, description="Missing or stale rows that start an automatic backfill of a column with auto_backfill."
    )
    auto_backfill_every_seconds: float = Field(
        5.0, ge=0, description="Minimum interval between two automatic backfills of a column."
    )
    auto_refresh_min_rows: int = Field(
        1,
        ge=1,
        description="Rows written to or deleted from its sources that start a refresh of a view with auto_refresh.",
    )
    auto_refresh_every_seconds: float = Field(
        5.0, ge=0, description="Minimum interval between two automatic refreshes of a view."
    )
    spark_prestart: bool = Field(False, description="Start Spark when the worker starts, not with its first job.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Minimum severity of log lines."
    )
    recorded_headers: list[str] = Field(
        default_factory=list,
        description="Request headers that are recorded with each transaction, in addition to x-lance-ctx-* (JSON).",
    )
    log_format: Literal["text", "json"] = Field("text", description="Format of log lines.")

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str) -> str:
        plain = host.removeprefix("[").removesuffix("]")  # URLs write IPv6 addresses in brackets
        if not plain or "/" in plain or plain.count(":") == 1:
            raise ValueError("must be a host name or an address such as 127.0.0.1 or ::1; --port names the port")
        return plain

    @field_validator("package_indexes")
    @classmethod
    def _check_package_indexes(cls, indexes: list[str]) -> list[str]:
        for index in indexes:
            if urlsplit(index).scheme not in ("http", "https") or not urlsplit(index).hostname:
                raise ValueError(f"{index!r} is not an http(s) URL")
        return indexes

    @field_validator("database", "root")
    @classmethod
    def _check_url(cls, address: str | None) -> str | None:
        urlsplit(address or "")  # raises ValueError for an invalid URL
        return address

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Give flags precedence over the environment, and the environment over the file."""
        return (init_settings, _EnvironmentSource(settings_cls), _FileSource(settings_cls))

    @property
    def process_count(self) -> int:
        """Return the number of API processes."""
        return self.processes or min(os.cpu_count() or 1, 4)

    @property
    def memory_limit_bytes(self) -> int:
        """The memory limit of an API process."""
        from pennon.core.process import available_memory_bytes  # needs POSIX, which only servers do

        return self.api_process_memory_bytes or max(available_memory_bytes() // 4 * 3, 1024**3)

    @property
    def database_url(self) -> str:
        """Return the URL of the catalog database."""
        path = self.directory.absolute() / ".pennon" / "catalog.db"
        return self.database or f"sqlite:///{quote(str(path))}"

    @property
    def environments(self) -> Path:
        """Return the folder where the packages of functions are installed."""
        return self.environment_folder or self.directory.absolute() / ".pennon" / "environments"

    @property
    def root_url(self) -> str:
        """Return the storage root of the tables."""
        return self.root or str(self.directory.absolute())


class _EnvironmentSource(EnvSettingsSource):
    """Settings from ``PENNON_<NAME>`` variables, also by the old names of renamed settings."""

    def __init__(self, settings_cls: type[BaseSettings]) -> None:
        super().__init__(settings_cls)
        self.env_vars = _with_new_names(self.env_vars, spell=lambda name: f"{ENV_PREFIX}{name.upper()}", prefix=_ENV)


class _FileSource(PydanticBaseSettingsSource):
    """Settings from the TOML file that ``PENNON_CONFIG`` names."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[object, str, bool]:  # noqa: ARG002
        return None, field_name, False

    def __call__(self) -> dict[str, object]:
        path = os.environ.get(f"{ENV_PREFIX}CONFIG")
        return _with_new_names(read_config(Path(path)), spell=lambda name: f"{name!r} in {path}") if path else {}


def read_config(path: Path) -> dict[str, object]:
    """Read a ``pennon.toml``."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"The config file {path} cannot be read: {error.strerror}.") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"The config file {path} is not valid TOML: {error}.") from error


def load_settings(**flags: object) -> Settings:
    """Return the effective settings; a flag that is ``None`` was not given."""
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**_with_new_names(given, spell=lambda name: f"--{name.replace('_', '-')}"))  # type: ignore[arg-type]  # pydantic checks the values
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise SettingsError(f"Unknown setting {name!r}.{suggest(name, Settings.model_fields)}") from error
        reason = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"The setting {name!r} is invalid: {reason}.") from error
    except SourceError as error:
        field = re.search(r'field "(\w+)"', str(error))
        subject = f"The setting {field[1]!r}" if field else "A setting"
        raise SettingsError(f"{subject} is not valid JSON; write maps and lists as JSON.") from error
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _with_new_names(given: Mapping[str, Value], *, spell: Callable[[str], str], prefix: str = "") -> dict[str, Value]:
    """Return the settings of one source by their current names, with a warning for each old name.

    ``spell`` returns a name as the source writes it; ``prefix`` is what the keys of the source begin with.
    """
    renamed = dict(given)
    for old, new in RENAMED.items():
        if prefix + old not in renamed:
            continue
        if prefix + new in renamed:
            raise SettingsError(f"{spell(old)} is the old name of {spell(new)}: remove it, and keep {spell(new)}.")
        logger.warning("%s is deprecated and will be removed: use %s instead", spell(old), spell(new))
        renamed[prefix + new] = renamed.pop(prefix + old)
    return renamed
