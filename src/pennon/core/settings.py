"""Every setting of Pennon: its default, environment variable, key in ``pennon.toml`` and meaning.

The first of these that names a setting wins: a flag, ``PENNON_<NAME>``, the file given by ``--config`` (or
``PENNON_CONFIG``), the default. Flags, environment variables and the reference page are made from this one class.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as SourceError

from pennon.core.errors import suggest

ENV_PREFIX = "PENNON_"


class SettingsError(ValueError):
    """A setting has a value it cannot have; the message names the setting."""


class ClusterSettings(BaseModel):
    """A Spark that jobs may name: a master or the address of a Spark Connect server, and its configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    master: str | None = None
    remote: str | None = None
    conf: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if (self.master is None) == (self.remote is None):
            raise ValueError("a cluster has either a master or a remote address (sc://…)")
        return self


class Settings(BaseSettings):
    """What a Pennon process is told before it starts."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, extra="forbid", frozen=True, env_ignore_empty=True, allow_inf_nan=False
    )

    directory: Path = Field(
        Path("pennon-data"), description="Folder of the embedded catalog and, without --root, of the tables."
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(2333, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    processes: int | None = Field(
        None, ge=1, le=64, description="Processes that answer requests; by default one a core, at most 4."
    )
    database: str | None = Field(
        None,
        description="Catalog database: sqlite:///PATH or postgresql://…; by default a SQLite file in the folder.",
    )
    database_pool_size: int = Field(16, ge=1, description="Connections to PostgreSQL that one process may hold.")
    root: str | None = Field(
        None,
        description="Where tables live: a folder or an s3://, gs:// or az:// address; by default the folder.",
    )
    storage_options: dict[str, str] = Field(
        default_factory=dict, description="Options for the storage root, as Lance knows them (JSON)."
    )
    vend_credentials: bool = Field(
        False, description="Hand the secrets in storage_options to clients that may write or read a table."
    )
    allowed_locations: list[str] = Field(
        default_factory=list,
        description="Prefixes outside the root under which tables may be registered (JSON).",
    )
    manage_registered: bool = Field(False, description="Commit registered tables through Pennon, as those it creates.")
    recreate_apart: bool = Field(
        True,
        description="Give a root table that is made again after a drop a folder of its own, where writers that still "
        "hold the first one cannot reach it.",
    )
    durable_writes: bool = Field(
        True,
        description="Flush the files of a commit to the disk before it is recorded, so that it survives a power cut; "
        "for tables on disks, object stores are durable by themselves.",
    )
    discover: bool = Field(True, description="Show *.lance folders found in the root as tables.")
    discover_seconds: float = Field(
        5.0, ge=0, description="Least time between two looks at an object store for new *.lance folders."
    )
    insecure: bool = Field(False, description="Allow listening beyond loopback while no key is configured.")
    page_limit: int = Field(10_000, ge=1, description="Items a page of a listing holds at most.")
    max_json_bytes: int = Field(16 * 1024 * 1024, ge=1024, description="Largest JSON body of a request in bytes.")
    body_memory_bytes: int = Field(
        512 * 1024 * 1024,
        ge=8 * 1024 * 1024,
        description="Memory in bytes that request bodies may take in one process while they come in and, if they are "
        "JSON, until they are answered; beyond it, clients wait.",
    )
    threads: int = Field(32, ge=2, description="Threads that metadata operations may use at once.")
    detail_cache_entries: int = Field(4096, ge=1, description="Schemas of table versions kept in memory.")
    manifest_cache_bytes: int = Field(
        64 * 1024 * 1024,
        ge=0,
        description="Memory for what the commit authority remembers of latest manifests.",
    )
    index_cache_bytes: int = Field(
        512 * 1024 * 1024, ge=0, description="Memory for opened indexes, shared by all tables."
    )
    metadata_cache_bytes: int = Field(
        256 * 1024 * 1024, ge=0, description="Memory for metadata of data files, shared by all tables."
    )
    dataset_handles: int = Field(512, ge=1, description="Opened table versions kept for reading.")
    data_threads: int = Field(32, ge=2, description="Data operations (inserts, queries, changes) that run at once.")
    max_expression_bytes: int = Field(
        4 * 1024 * 1024, ge=1024, description="Longest SQL expression or filter of a request in bytes."
    )
    max_expression_literals: int = Field(
        100_000, ge=1, description="Literals that one SQL expression or filter may have; each takes about 1 KB to plan."
    )
    query_processes: int = Field(
        2,
        ge=0,
        le=64,
        description="Processes that each API process may start for queries whose SQL can need much memory or time; "
        "with 0 such queries are refused.",
    )
    query_process_memory_bytes: int = Field(
        3 * 1024**3,
        ge=2 * 1024**3,
        description=(
            "Memory of each of these processes in bytes. On Linux it limits their address space, of which an idle one "
            "has 1.7 GB; on macOS their resident memory."
        ),
    )
    query_process_seconds: float = Field(
        300.0, gt=0, description="Longest time that a query in such a process may take, its client included."
    )
    index_threads: int = Field(1, ge=1, description="Indexes that are built at once.")
    group_append_bytes: int = Field(
        4 * 1024 * 1024, ge=0, description="Appends up to this size are committed together with others that wait."
    )
    max_upload_bytes: int | None = Field(
        None, ge=1, description="Largest Arrow body of a request in bytes; none by default."
    )
    max_batch_bytes: int = Field(
        1024 * 1024 * 1024,
        ge=1024 * 1024,
        description="Largest batch of an Arrow body in bytes, with its dictionaries and once it is decompressed.",
    )
    batch_memory_bytes: int = Field(
        2 * 1024 * 1024 * 1024,
        ge=1024 * 1024,
        description="Memory in bytes that the batches of all Arrow bodies may take in one process; beyond it, uploads "
        "wait.",
    )
    stream_buffer_bytes: int = Field(
        16 * 1024 * 1024, ge=65536, description="Memory one stream, in or out, may hold while its other end is slow."
    )
    idempotency_hours: float = Field(24.0, gt=0, description="Hours for which an Idempotency-Key is remembered.")
    transaction_days: float = Field(30.0, gt=0, description="Days for which a transaction can be described.")
    job_days: float = Field(30.0, gt=0, description="Days for which a job that ended can be described.")
    job_attempts: int = Field(
        5, ge=0, description="Workers, or their Sparks, that may be lost in a row without a commit before a job fails."
    )
    job_lease_seconds: float = Field(
        30.0, gt=0, description="Time without a sign of life after which a worker's job is given to another."
    )
    shutdown_seconds: float = Field(
        10.0, gt=0, description="Time given to requests under way when the server is told to stop."
    )
    keep_alive_seconds: int = Field(
        75, ge=1, description="Time a connection is kept open on which no request comes, or none with all its headers."
    )
    stall_seconds: float = Field(
        300.0, ge=1, description="Time for which a client may stop sending a body, or reading an answer."
    )
    spark_master: str = Field(
        "local[*,4]",
        description="Spark that runs jobs: a master (local[CORES,ATTEMPTS], spark://…, yarn, k8s://…) or a Spark "
        "Connect address (sc://…).",
    )
    spark_conf: dict[str, str] = Field(
        default_factory=dict, description="Configuration of that Spark, by Spark's own names (JSON)."
    )
    clusters: dict[str, ClusterSettings] = Field(
        default_factory=dict,
        description='Other Sparks that a job may name, such as {"big": {"master": "spark://…", "conf": {}}} or '
        '{"far": {"remote": "sc://…"}} (JSON).',
    )
    cluster_seconds: float = Field(
        60.0, gt=0, description="Time after which a Spark that does not answer fails the job that waits for it."
    )
    environment_folder: Path | None = Field(
        None, description="Where packages that functions ask for are installed; by default in the folder."
    )
    environment_bytes: int = Field(
        20 * 1024**3,
        ge=0,
        description="Disk space for these packages; those that were used least recently go first, but none in use.",
    )
    package_indexes: list[str] = Field(
        default_factory=list,
        description="URLs of the package indexes that functions' packages come from, the main one first (JSON). When "
        "set, manifests may name no other index, and wheels only below these; by default pip's own configuration, and "
        "any http(s) index or wheel that a manifest names.",
    )
    workers: int = Field(1, ge=0, le=64, description="Processes that run jobs beside the server; 0 for none.")
    worker_slots: int = Field(2, ge=1, le=64, description="Jobs that one worker runs at once.")
    worker_poll_seconds: float = Field(
        0.02,
        gt=0,
        description="Time after which a worker looks for the next job again, ten times that when it idles; with SQLite "
        "sooner, when anything was written.",
    )
    backfill_batch_rows: int = Field(32768, ge=1, description="Rows that a function is given at once, at most.")
    backfill_batch_bytes: int = Field(
        32 * 1024 * 1024, ge=1024, description="Bytes of input that a task of a backfill holds at once, about."
    )
    checkpoint_seconds: float = Field(
        0.1, ge=0, description="Work after which a backfill keeps its results on a disk; a crash costs no more."
    )
    remote_checkpoint_seconds: float = Field(
        5.0, ge=0, description="The same where tables are on an object store, which charges for every file."
    )
    auto_backfill_rows: int = Field(
        1, ge=1, description="Rows that must be missing or stale before a column with auto_backfill is filled."
    )
    auto_backfill_seconds: float = Field(
        5.0, ge=0, description="Least time between two automatic backfills of a column."
    )
    auto_refresh_rows: int = Field(
        1,
        ge=1,
        description="Rows that must be written to or deleted from its sources before a view with auto_refresh is "
        "refreshed.",
    )
    auto_refresh_seconds: float = Field(
        5.0, ge=0, description="Least time between two automatic refreshes of a view that follows its sources."
    )
    worker_warm: bool = Field(False, description="Start Spark with the worker instead of with its first job.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe log line that is written."
    )
    recorded_headers: list[str] = Field(
        default_factory=list,
        description="Request headers that are recorded with each change beside x-lance-ctx-*, by name (JSON).",
    )
    log_format: Literal["text", "json"] = Field("text", description="Form of log lines.")

    @field_validator("host")
    @classmethod
    def _is_a_host_alone(cls, host: str) -> str:
        plain = host.removeprefix("[").removesuffix("]")  # as addresses with a port have IPv6
        if not plain or "/" in plain or plain.count(":") == 1:
            raise ValueError("name a host or an address alone, such as 127.0.0.1 or ::1; --port names the port")
        return plain

    @field_validator("package_indexes")
    @classmethod
    def _are_web_addresses(cls, indexes: list[str]) -> list[str]:
        for index in indexes:
            if urlsplit(index).scheme not in ("http", "https") or not urlsplit(index).hostname:
                raise ValueError(f"{index!r} is not an http(s) URL")
        return indexes

    @field_validator("database", "root")
    @classmethod
    def _can_be_read(cls, address: str | None) -> str | None:
        urlsplit(address or "")  # raises what is wrong with it
        return address

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let flags win over the environment, and the environment over the file."""
        return (init_settings, env_settings, _FileSource(settings_cls))

    @property
    def process_count(self) -> int:
        """How many processes answer requests."""
        return self.processes or min(os.cpu_count() or 1, 4)

    @property
    def database_url(self) -> str:
        """Where the catalog is."""
        path = self.directory.absolute() / ".pennon" / "catalog.db"
        return self.database or f"sqlite:///{quote(str(path))}"

    @property
    def environments(self) -> Path:
        """Where packages that functions ask for are installed."""
        return self.environment_folder or self.directory.absolute() / ".pennon" / "environments"

    @property
    def root_url(self) -> str:
        """Where the tables are."""
        return self.root or str(self.directory.absolute())


class _FileSource(PydanticBaseSettingsSource):
    """Settings from the TOML file that ``PENNON_CONFIG`` names."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        path = os.environ.get(f"{ENV_PREFIX}CONFIG")
        return read_config(Path(path)) if path else {}


def read_config(path: Path) -> dict[str, Any]:
    """Read a ``pennon.toml``."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"The config file {path} cannot be read: {error.strerror}.") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"The config file {path} is not valid TOML: {error}.") from error


def load_settings(**flags: Any) -> Settings:
    """Return the settings in force; flags that are ``None`` were not given."""
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise SettingsError(f"There is no setting {name!r}.{suggest(name, Settings.model_fields)}") from error
        said = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"The setting {name!r} is wrong: {said}.") from error
    except SourceError as error:
        field = re.search(r'field "(\w+)"', str(error))
        whose = f"The setting {field[1]!r}" if field else "A setting"
        raise SettingsError(f"{whose} is not valid JSON, which maps and lists are written as.") from error
    except ValueError as error:
        raise SettingsError(str(error)) from error
