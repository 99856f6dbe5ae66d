"""``pennon doctor``: check that this machine has what a server needs, and how to fix what it lacks."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from lance_namespace.errors import LanceNamespaceError
from rich.markup import escape
from rich.table import Table

from pennon.catalog import keys, open_database
from pennon.catalog.schema import latest_version, schema_version
from pennon.cli.catalog import connection_error, describe_database, is_missing
from pennon.cli.maintenance_checks import find_overdue
from pennon.cli.options import STORAGE_SETTINGS, with_settings
from pennon.cli.output import OutputFormat, OutputOption, print_result
from pennon.cli.storage_checks import (
    adopt_root,
    describe_lost_versions,
    name_some,
    repair_versions,
    storage_root_of,
    unreadable_versions,
)
from pennon.core.clock import now_millis
from pennon.core.identifiers import format_identifier
from pennon.core.settings import Settings, SettingsError

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.storage.file_io import FileIO, StoredFile

Status = Literal["OK", "WARN", "FAIL"]

_STYLE = {"OK": "green", "WARN": "yellow", "FAIL": "red"}
_MIN_PYTHON = (3, 11)
_SPARK_SERIES = "4"
_SPARK_PACKAGES = ("pandas", "pyarrow", "pylance")
_CONNECT_PACKAGES = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
_SERVER_PACKAGES = ("pylance", "obstore", "uvicorn", "starlette", "psycopg")
_MAX_SKEW_SECONDS = 5.0
_NOT_CHECKED = "not checked: the catalog does not exist yet, or has another schema version"
_CLOCK_FIX = "turn on time synchronization (on Linux: timedatectl set-ntp true; on macOS: in System Settings)"
_MAX_REASON_LENGTH = 240


@dataclass(frozen=True)
class Check:
    """The result of a check, and the command or change that fixes a problem."""

    name: str
    status: Status
    detail: str
    fix: str | None = None


@dataclass(frozen=True)
class DoctorContext:
    """The input of the checks; the catalog is opened once for all of them."""

    settings: Settings
    database: Database | None = None
    #: Why the database cannot be opened; None if it only does not exist yet.
    database_error: str | None = None

    @cached_property
    def has_current_schema(self) -> bool:
        """Whether the catalog exists with the schema of this Pennon."""
        return self.database is not None and schema_version(self.database) == latest_version()


def check_python(_: DoctorContext) -> Check:
    """Check the version of Python."""
    version = platform.python_version()
    if sys.version_info < _MIN_PYTHON:
        return Check("Python", "FAIL", f"{version} is too old", "install Python 3.11 or newer")
    return Check("Python", "OK", version)


def check_packages(_: DoctorContext) -> Check:
    """Check that the packages of the server are installed."""
    found = {name: _version_of(name) for name in _SERVER_PACKAGES}
    missing = [name for name, version in found.items() if version is None]
    if missing:
        return Check("Packages", "FAIL", f"not installed: {', '.join(missing)}", "pip install 'pennon[server]'")
    return Check("Packages", "OK", ", ".join(f"{name} {version}" for name, version in found.items()))


def check_java(_: DoctorContext) -> Check:
    """Start the Java that Spark would use: the system's, or the one from a wheel."""
    from pennon.pipeline.cluster.java import JavaNotFoundError, choose_java

    try:
        java = choose_java()
    except JavaNotFoundError as error:
        return Check("Java", "WARN", f"{error.found}; needed for jobs only", "pip install 'pennon[spark]'")
    return Check("Java", "OK", f"Java {java.version} from {java.origin} ({java.program})")


def check_spark(context: DoctorContext) -> Check:
    """Check that Spark and its Python packages are installed, without starting it."""
    fix = "pip install 'pennon[spark]'"
    version = _version_of("pyspark")
    if version is None:
        return Check("Spark", "WARN", "not installed; needed for jobs only", fix)
    if version.split(".")[0] != _SPARK_SERIES:
        return Check("Spark", "WARN", f"pyspark {version} is installed; series {_SPARK_SERIES} is needed", fix)
    remote = context.settings.spark_master.startswith("sc://") or any(
        cluster.remote for cluster in context.settings.clusters.values()
    )
    needed = (*_SPARK_PACKAGES, *_CONNECT_PACKAGES) if remote else _SPARK_PACKAGES
    missing = [name for name in needed if _version_of(name) is None]
    if missing:
        return Check("Spark", "WARN", f"pyspark {version} is installed, but not {', '.join(missing)}", fix)
    return Check("Spark", "OK", f"pyspark {version} at {context.settings.spark_master}")


def check_database(context: DoctorContext) -> Check:
    """Check that the catalog can be opened and has the current schema."""
    name = describe_database(context.settings.database_url)
    if context.database_error is not None:
        fix = "correct --database, or start the database"
        return Check("Database", "FAIL", f"{name}: {context.database_error}", fix)
    if context.database is None:
        return _check_new_folder("Database", Path(name).parent, f"{name} does not exist yet; the server creates it")
    version, known = schema_version(context.database), latest_version()
    if version > known:
        detail = f"{name} has schema version {version}, newer than {known}, which this Pennon supports"
        return Check("Database", "FAIL", detail, "pip install --upgrade pennon")
    if version < known:
        detail = f"{name} has schema version {version} of {known}; the server migrates it when it starts"
        return Check("Database", "WARN", detail, "pennon migrate")
    return Check("Database", "OK", f"{name}, schema version {version}")


def check_storage(context: DoctorContext) -> Check:
    """Write a file to the storage root twice; the second write must be refused, because commits rely on that."""
    root = _root(context.settings)
    folder = Path(root.location)
    if "://" not in root.location and not folder.exists():
        return _check_new_folder("Storage", folder, f"{folder} does not exist yet; the first table creates it")
    with _probe(root) as (first, second):
        if first is None:
            return Check(
                "Storage",
                "FAIL",
                f"{root.location}: a new file was refused",
                "check the permissions of the storage root",
            )
        if second is not None:
            detail = f"{root.location}: an existing file was overwritten, so two writers could both commit"
            return Check("Storage", "FAIL", detail, "use an object store with conditional writes (If-None-Match)")
    return Check("Storage", "OK", f"{root.location}: writable, with conditional writes")


def check_port(context: DoctorContext) -> Check:
    """Check that the server can listen on its port."""
    from pennon.server.process import address_of, bind

    host, port = context.settings.host, context.settings.port
    try:
        bind(host, port).close()
    except SettingsError as error:
        return Check("Port", "FAIL", str(error), "choose another --host or --port; --port 0 picks a free port")
    return Check("Port", "OK", f"{address_of(host, port)} is free" if port else f"any free port on {host}")


def check_clock(context: DoctorContext) -> Check:
    """Compare the clock with the monotonic clock, and with those of the database and the object store."""
    elapsed, passed = time.time(), time.monotonic()
    time.sleep(0.05)
    drift = abs((time.time() - elapsed) - (time.monotonic() - passed))
    if drift > 1:
        return Check("Clock", "WARN", f"jumped by {drift:.1f} s during the check", _CLOCK_FIX)
    skews: dict[str, float] = {}
    with contextlib.suppress(Exception):  # what is unreachable fails its own check
        skews.update(_skews(context))
    off = [f"{skew:+.1f} s off the {name}'s" for name, skew in skews.items() if abs(skew) > _MAX_SKEW_SECONDS]
    if off:
        return Check("Clock", "WARN", f"this machine's clock is {' and '.join(off)}", _CLOCK_FIX)
    compared = f"agrees with the {' and the '.join(skews)}" if skews else "no jumps"
    return Check("Clock", "OK", compared)


def check_keys(context: DoctorContext) -> Check:
    """Check that API keys protect the server."""
    from pennon.server.process import is_loopback

    settings, version = context.settings, schema_version(context.database) if context.database else 0
    if version not in {0, latest_version()}:
        return Check("Keys", "WARN", "not checked: the catalog has another schema version", "pennon migrate")
    known = context.database.read(keys.listing) if context.database and version else []
    create = "pennon keys create NAME --role admin"
    if known:
        working = sum(key.is_active for key in known)
        if not working:
            return Check("Keys", "WARN", "all API keys are expired or revoked: no request is accepted", create)
        return Check("Keys", "OK", f"every request needs an API key; {working} of {len(known)} are active")
    if is_loopback(settings.host):
        return Check("Keys", "OK", f"no API keys: the server accepts requests from this machine only ({settings.host})")
    if settings.insecure:
        return Check(
            "Keys",
            "WARN",
            f"no API keys, and --insecure accepts every request that reaches {settings.host}",
            create,
        )
    return Check("Keys", "FAIL", f"no API keys: the server refuses to listen on {settings.host}", create)


def check_ownership(context: DoctorContext) -> Check:
    """Check that this catalog owns the storage root and every managed table."""
    from pennon.commits.ownership import Ownership

    if context.database is None or not context.has_current_schema:
        return Check("Ownership", "OK", _NOT_CHECKED)
    ownership = Ownership(context.database, storage_root_of(context.settings))
    refusal = ownership.find_refusal(claim=False)
    if refusal is not None:
        return Check("Ownership", "FAIL", f"{refusal} The server is read-only", "pennon doctor --adopt")
    strayed = [format_identifier(table.identifier) for table in ownership.managed_outside()]
    if strayed:
        detail = f"{len(strayed)} tables are outside the storage root and read-only: {name_some(strayed)}"
        return Check("Ownership", "FAIL", detail, "pennon doctor --adopt, or allow their prefix in allowed_locations")
    return Check("Ownership", "OK", "this catalog owns the storage root")


def check_versions(context: DoctorContext) -> Check:
    """Check that the newest version of every managed table can be read, and whether any was lost."""
    if context.database is None or not context.has_current_schema:
        return Check("Versions", "OK", _NOT_CHECKED)
    broken = unreadable_versions(context.database, storage_root_of(context.settings))
    if broken:
        names = [format_identifier(table.identifier) for table, _ in broken]
        detail = f"{len(broken)} tables have a newest version that cannot be read: {name_some(names)}"
        return Check("Versions", "FAIL", detail, "pennon doctor --repair")
    lost = describe_lost_versions(context.database)
    if lost:
        detail = f"{len(lost)} versions were lost on storage; the versions before them are served: {name_some(lost)}"
        return Check("Versions", "WARN", detail, "write their rows again, or restore the tables from a backup")
    return Check("Versions", "OK", "the newest version of every table can be read")


def check_maintenance(context: DoctorContext) -> Check:
    """Check that maintenance keeps up, and name the tables that need it most."""
    if context.database is None or not context.has_current_schema:
        return Check("Maintenance", "OK", _NOT_CHECKED)
    return Check("Maintenance", *find_overdue(context.database, context.settings))


CHECKS: tuple[Callable[[DoctorContext], Check], ...] = (
    check_python,
    check_packages,
    check_java,
    check_spark,
    check_database,
    check_storage,
    check_ownership,
    check_versions,
    check_maintenance,
    check_port,
    check_clock,
    check_keys,
)


@with_settings("host", "port", *STORAGE_SETTINGS, "allowed_locations", "insecure", directory="option")
def doctor(
    settings: Settings,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="First take ownership of the storage root, with a new catalog id."),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="First recover newest versions that cannot be read, or fall back to older ones."),
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Check that this machine has what a server with these settings needs; exit with code 1 if not."""
    if adopt:
        adopt_root(settings)
    if repair:
        repair_versions(settings)
    found = run_checks(settings)
    print_result(output, [asdict(check) for check in found], _layout(found))
    if any(check.status == "FAIL" for check in found):
        raise typer.Exit(1)


def run_checks(settings: Settings, checks: Sequence[Callable[[DoctorContext], Check]] = CHECKS) -> list[Check]:
    """Run checks; an exception is a failed check."""
    context = _open_context(settings)
    try:
        return [_attempt(check, context) for check in checks]
    finally:
        if context.database is not None:
            context.database.close()


def _attempt(check: Callable[[DoctorContext], Check], context: DoctorContext) -> Check:
    name = check.__name__.removeprefix("check_").capitalize()
    try:
        return check(context)
    except ModuleNotFoundError as error:
        return Check(name, "FAIL", f"the package {error.name} is not installed", "pip install 'pennon[server]'")
    except Exception as error:  # noqa: BLE001 (any error is a finding)
        return Check(name, "FAIL", _reason(error), "correct the settings, then run pennon doctor again")


def _open_context(settings: Settings) -> DoctorContext:
    """Open the catalog, unless that would create it."""
    if is_missing(settings):
        return DoctorContext(settings)
    try:
        reason = connection_error(settings.database_url)
        if reason is not None:
            return DoctorContext(settings, database_error=reason)
        return DoctorContext(settings, open_database(settings.database_url, pool_size=1, root=_root_location(settings)))
    except Exception as error:  # noqa: BLE001 (every driver has its own errors)
        return DoctorContext(settings, database_error=_reason(error))


def _root(settings: Settings) -> FileIO:
    return storage_root_of(settings).root


def _root_location(settings: Settings) -> str:
    try:
        return storage_root_of(settings).root_location
    except LanceNamespaceError:
        return ""  # the storage check reports what is wrong with it


@contextlib.contextmanager
def _probe(root: FileIO) -> Iterator[tuple[StoredFile | None, StoredFile | None]]:
    """Write a file twice, each time only if absent, and remove it; no table can have its name."""
    path = f".pennon-probe-{secrets.token_hex(8)}"
    first = root.put_if_absent(path, b"first")
    try:
        yield first, root.put_if_absent(path, b"second")
    finally:
        root.remove(path)


def _skews(context: DoctorContext) -> Iterator[tuple[str, float]]:
    """Yield the clocks of other systems, and how many seconds this clock is ahead of each."""
    if context.database is not None and context.database.dialect == "postgresql":
        before = now_millis()
        row = context.database.read(
            lambda c: c.one("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)")
        )
        if row is not None:
            yield "database", ((before + now_millis()) / 2 - row[0]) / 1000
    if "://" in context.settings.root_url:
        with _probe(_root(context.settings)) as (stored, _):
            now = now_millis()
        if stored is not None:
            yield "object store", (now - stored.modified_millis) / 1000


def _check_new_folder(name: str, folder: Path, detail: str) -> Check:
    """Check that a missing folder can be created."""
    parent = next(existing for existing in (folder, *folder.parents) if existing.exists())
    try:
        # By trying: permissions do not tell whether a file system is read-only, full or virtual.
        with tempfile.TemporaryDirectory(dir=parent, prefix=".pennon-probe-"):
            return Check(name, "OK", detail)
    except OSError as error:
        detail = f"{folder} cannot be created: {parent} is not writable ({error.strerror})"
        return Check(name, "FAIL", detail, "choose another folder with --directory, or make this one writable")


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _reason(error: Exception) -> str:
    # The object store repeats the error for debugging, at length.
    text = " ".join(str(error).partition("Debug source:")[0].split()) or type(error).__name__
    short = text if len(text) <= _MAX_REASON_LENGTH else text[:_MAX_REASON_LENGTH] + "…"
    return short if isinstance(error, LanceNamespaceError | SettingsError) else f"{type(error).__name__}: {short}"


def _layout(checks: Sequence[Check]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for check in checks:
        detail = escape(check.detail)
        if check.fix is not None:
            detail += f"\nfix: [bold]{escape(check.fix)}[/bold]"
        grid.add_row(f"[{_STYLE[check.status]}]{check.status}[/]", check.name, detail)
    return grid
