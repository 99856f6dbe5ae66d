"""``pennon doctor``: is everything here that a server needs, and if not, which command helps."""

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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from lance_namespace.errors import LanceNamespaceError
from rich.markup import escape
from rich.table import Table

from pennon.catalog import keys, open_database
from pennon.catalog.schema import latest_version, schema_version
from pennon.cli.catalog import is_missing, place_of, why_unreachable
from pennon.cli.options import PLACE_SETTINGS, with_settings
from pennon.cli.output import Form, FormOption, show
from pennon.cli.storage_checks import (
    adopt_root,
    lost_names,
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
_OLDEST_PYTHON = (3, 11)
_SPARK_SERIES = "4"
_SPARK_PACKAGES = ("pandas", "pyarrow", "pylance")
_CONNECT_PACKAGES = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
_SERVER_PACKAGES = ("pylance", "obstore", "uvicorn", "starlette", "psycopg")
_SKEW_SECONDS = 5.0
_CLOCK_FIX = "turn on time synchronisation (on Linux: timedatectl set-ntp true; on macOS: in System Settings)"
_LONGEST_REASON = 240


@dataclass(frozen=True)
class Check:
    """What was looked at, how it is, and the command or change that mends it."""

    name: str
    status: Status
    detail: str
    fix: str | None = None


@dataclass(frozen=True)
class Patient:
    """What the checks look at; the catalog is opened once for all of them."""

    settings: Settings
    database: Database | None = None
    #: Why there is no database to look at; none when it is only not there yet.
    trouble: str | None = None


def check_python(_: Patient) -> Check:
    """Look at the version of Python."""
    version = platform.python_version()
    if sys.version_info < _OLDEST_PYTHON:
        return Check("Python", "FAIL", f"{version} is too old", "install Python 3.11 or newer")
    return Check("Python", "OK", version)


def check_packages(_: Patient) -> Check:
    """Look for the packages of the server."""
    found = {name: _version_of(name) for name in _SERVER_PACKAGES}
    missing = [name for name, version in found.items() if version is None]
    if missing:
        return Check("Packages", "FAIL", f"not installed: {', '.join(missing)}", "pip install 'pennon[server]'")
    return Check("Packages", "OK", ", ".join(f"{name} {version}" for name, version in found.items()))


def check_java(_: Patient) -> Check:
    """Start the Java that Spark would run on: the system's, or the one that comes as a wheel."""
    from pennon.pipeline.cluster.java import JavaNotFoundError, choose_java

    try:
        java = choose_java()
    except JavaNotFoundError as error:
        return Check("Java", "WARN", f"{error.found}; only jobs need it", "pip install 'pennon[spark]'")
    return Check("Java", "OK", f"Java {java.version} from {java.origin} ({java.program})")


def check_spark(patient: Patient) -> Check:
    """Look for Spark and what it needs in Python, without starting it."""
    fix = "pip install 'pennon[spark]'"
    version = _version_of("pyspark")
    if version is None:
        return Check("Spark", "WARN", "not installed; only jobs need it", fix)
    if version.split(".")[0] != _SPARK_SERIES:
        return Check("Spark", "WARN", f"pyspark {version} is not of series {_SPARK_SERIES}", fix)
    remote = patient.settings.spark_master.startswith("sc://") or any(
        cluster.remote for cluster in patient.settings.clusters.values()
    )
    needed = (*_SPARK_PACKAGES, *_CONNECT_PACKAGES) if remote else _SPARK_PACKAGES
    missing = [name for name in needed if _version_of(name) is None]
    if missing:
        return Check("Spark", "WARN", f"pyspark {version} is there, but not {', '.join(missing)}", fix)
    return Check("Spark", "OK", f"pyspark {version} at {patient.settings.spark_master}")


def check_database(patient: Patient) -> Check:
    """Look whether the catalog can be opened and has the schema this Pennon works with."""
    place = place_of(patient.settings.database_url)
    if patient.trouble is not None:
        return Check("Database", "FAIL", f"{place}: {patient.trouble}", "correct --database, or start the database")
    if patient.database is None:
        return _check_new_folder("Database", Path(place).parent, f"{place} is not there yet; the server makes it")
    version, known = schema_version(patient.database), latest_version()
    if version > known:
        detail = f"{place} has schema version {version}, newer than {known}, which this Pennon knows"
        return Check("Database", "FAIL", detail, "pip install --upgrade pennon")
    if version < known:
        detail = f"{place} has schema version {version} of {known}; the server migrates it when it starts"
        return Check("Database", "WARN", detail, "pennon migrate")
    return Check("Database", "OK", f"{place}, schema version {version}")


def check_storage(patient: Patient) -> Check:
    """Write a file under the root twice: the second time must be refused, for that decides between writers."""
    root = _root(patient.settings)
    place = Path(root.location)
    if "://" not in root.location and not place.exists():
        return _check_new_folder("Storage", place, f"{place} is not there yet; it is made with the first table")
    with _probe(root) as (first, second):
        if first is None:
            return Check("Storage", "FAIL", f"{root.location}: a new file was refused", "check the rights of the root")
        if second is not None:
            detail = f"{root.location}: a file that was there was overwritten; two writers could both commit"
            return Check("Storage", "FAIL", detail, "use a store that has conditional writes (If-None-Match)")
    return Check("Storage", "OK", f"{root.location}: can be written, and a second write is refused")


def check_port(patient: Patient) -> Check:
    """Look whether the server could listen."""
    from pennon.server.process import address_of, bind

    host, port = patient.settings.host, patient.settings.port
    try:
        bind(host, port).close()
    except SettingsError as error:
        return Check("Port", "FAIL", str(error), "choose another --host or --port; --port 0 takes any that is free")
    return Check("Port", "OK", f"{address_of(host, port)} is free" if port else f"any free port of {host}")


def check_clock(patient: Patient) -> Check:
    """Compare the clock with itself and with those of the database and the object store."""
    fix = _CLOCK_FIX
    elapsed, passed = time.time(), time.monotonic()
    time.sleep(0.05)
    drift = abs((time.time() - elapsed) - (time.monotonic() - passed))
    if drift > 1:
        return Check("Clock", "WARN", f"jumped by {drift:.1f} s while it was watched", fix)
    skews: dict[str, float] = {}
    with contextlib.suppress(Exception):  # what is out of reach fails its own check
        skews.update(_skews(patient))
    off = [f"{skew:+.1f} s from the {name}'s" for name, skew in skews.items() if abs(skew) > _SKEW_SECONDS]
    if off:
        return Check("Clock", "WARN", f"this machine's clock is {' and '.join(off)}", fix)
    compared = f"agrees with the {' and the '.join(skews)}" if skews else "runs evenly"
    return Check("Clock", "OK", compared)


def check_keys(patient: Patient) -> Check:
    """Look whether those who should not call are kept out."""
    from pennon.server.process import is_loopback

    settings, version = patient.settings, schema_version(patient.database) if patient.database else 0
    if version not in {0, latest_version()}:
        return Check("Keys", "WARN", "not looked at: the catalog has another schema", "pennon migrate")
    known = patient.database.read(keys.listing) if patient.database and version else []
    create = "pennon keys create NAME --role admin"
    if known:
        working = sum(key.active for key in known)
        if not working:
            return Check("Keys", "WARN", "there are keys, but none works any more: nobody can call", create)
        return Check("Keys", "OK", f"every request needs one; {working} of {len(known)} work")
    if is_loopback(settings.host):
        return Check("Keys", "OK", f"none: anyone on this machine may call, nobody else ({settings.host})")
    if settings.insecure:
        return Check("Keys", "WARN", f"none, and --insecure lets anyone who reaches {settings.host} in", create)
    return Check("Keys", "FAIL", f"none: the server refuses to listen on {settings.host}", create)


def check_ownership(patient: Patient) -> Check:
    """Look whether the storage root, and every managed table, is this catalog's to write."""
    from pennon.commits.ownership import Ownership

    if patient.database is None or schema_version(patient.database) != latest_version():
        return Check("Ownership", "OK", "not looked at: the catalog is not there yet, or has another schema")
    ownership = Ownership(patient.database, storage_root_of(patient.settings))
    refusal = ownership.look(claim=False)
    if refusal is not None:
        return Check("Ownership", "FAIL", f"{refusal} The server writes nothing", "pennon doctor --adopt")
    strayed = [format_identifier(table.identifier) for table in ownership.strayed()]
    if strayed:
        detail = f"{len(strayed)} tables lie outside the storage root and are not written: {name_some(strayed)}"
        return Check("Ownership", "FAIL", detail, "pennon doctor --adopt, or allow their prefix in allowed_locations")
    return Check("Ownership", "OK", "the storage root is this catalog's to write")


def check_versions(patient: Patient) -> Check:
    """Look whether the newest version of every managed table can be read, and whether any was lost."""
    if patient.database is None or schema_version(patient.database) != latest_version():
        return Check("Versions", "OK", "not looked at: the catalog is not there yet, or has another schema")
    broken = unreadable_versions(patient.database, storage_root_of(patient.settings))
    if broken:
        names = [format_identifier(table.identifier) for table, _ in broken]
        detail = f"{len(broken)} tables have a newest version that cannot be read: {name_some(names)}"
        return Check("Versions", "FAIL", detail, "pennon doctor --repair")
    lost = lost_names(patient.database)
    if lost:
        detail = f"{len(lost)} were lost on storage, and the versions before them are served: {name_some(lost)}"
        return Check("Versions", "WARN", detail, "write their rows again, or restore the tables from a backup")
    return Check("Versions", "OK", "the newest version of every table can be read")


CHECKS: tuple[Callable[[Patient], Check], ...] = (
    check_python,
    check_packages,
    check_java,
    check_spark,
    check_database,
    check_storage,
    check_ownership,
    check_versions,
    check_port,
    check_clock,
    check_keys,
)


@with_settings("host", "port", *PLACE_SETTINGS, "allowed_locations", "insecure", directory="option")
def doctor(
    settings: Settings,
    adopt: Annotated[
        bool,
        typer.Option("--adopt", help="First take the storage root over for this catalog, which gets an id of its own."),
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="First recover newest versions that cannot be read, or fall back to older ones."),
    ] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Check that this machine has what a server with these settings needs; the exit code is 1 when it has not."""
    if adopt:
        adopt_root(settings)
    if repair:
        repair_versions(settings)
    found = examine(settings)
    show(output, [asdict(check) for check in found], _layout(found))
    if any(check.status == "FAIL" for check in found):
        raise typer.Exit(1)


def examine(settings: Settings, checks: Sequence[Callable[[Patient], Check]] = CHECKS) -> list[Check]:
    """Run all checks; one that breaks has failed."""
    patient = _admit(settings)
    try:
        return [_attempt(check, patient) for check in checks]
    finally:
        if patient.database is not None:
            patient.database.close()


def _attempt(check: Callable[[Patient], Check], patient: Patient) -> Check:
    name = check.__name__.removeprefix("check_").capitalize()
    try:
        return check(patient)
    except ModuleNotFoundError as error:
        return Check(name, "FAIL", f"the package {error.name} is missing", "pip install 'pennon[server]'")
    except Exception as error:  # noqa: BLE001 (whatever breaks here is what the doctor is asked for)
        return Check(name, "FAIL", _reason(error), "correct the settings it uses, then run pennon doctor again")


def _admit(settings: Settings) -> Patient:
    """Open the catalog, unless that would create it."""
    if is_missing(settings):
        return Patient(settings)
    try:
        trouble = why_unreachable(settings.database_url)
        if trouble is not None:
            return Patient(settings, trouble=trouble)
        return Patient(settings, open_database(settings.database_url, pool_size=1, root=_root_location(settings)))
    except Exception as error:  # noqa: BLE001 (each driver has errors of its own)
        return Patient(settings, trouble=_reason(error))


def _root(settings: Settings) -> FileIO:
    return storage_root_of(settings).root


def _root_location(settings: Settings) -> str:
    try:
        return storage_root_of(settings).root_location
    except LanceNamespaceError:
        return ""  # the check of the storage tells what is wrong with it


@contextlib.contextmanager
def _probe(root: FileIO) -> Iterator[tuple[StoredFile | None, StoredFile | None]]:
    """Write a file twice if it is absent, and remove it afterwards; the name is one that no table can have."""
    path = f".pennon-probe-{secrets.token_hex(8)}"
    first = root.put_if_absent(path, b"first")
    try:
        yield first, root.put_if_absent(path, b"second")
    finally:
        root.remove(path)


def _skews(patient: Patient) -> Iterator[tuple[str, float]]:
    """Return by how many seconds this clock is ahead of others."""
    if patient.database is not None and patient.database.dialect == "postgresql":
        before = now_millis()
        row = patient.database.read(
            lambda c: c.one("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)")
        )
        if row is not None:
            yield "database", ((before + now_millis()) / 2 - row[0]) / 1000
    if "://" in patient.settings.root_url:
        with _probe(_root(patient.settings)) as (stored, _):
            now = now_millis()
        if stored is not None:
            yield "object store", (now - stored.modified_millis) / 1000


def _check_new_folder(name: str, folder: Path, detail: str) -> Check:
    """Look whether a folder that is not there could be made."""
    parent = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        # Tried, because rights alone do not tell: file systems may be read-only, full or not real.
        with tempfile.TemporaryDirectory(dir=parent, prefix=".pennon-probe-"):
            return Check(name, "OK", detail)
    except OSError as error:
        detail = f"{folder} cannot be made: {parent} cannot be written ({error.strerror})"
        return Check(name, "FAIL", detail, "choose another folder with --directory, or make that one writable")


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _reason(error: Exception) -> str:
    # What the object store adds for its own debugging says the same again, at length.
    text = " ".join(str(error).partition("Debug source:")[0].split()) or type(error).__name__
    short = text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"
    return short if isinstance(error, LanceNamespaceError | SettingsError) else f"{type(error).__name__}: {short}"


def _layout(checks: Sequence[Check]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for check in checks:
        detail = escape(check.detail)
        if check.fix is not None:
            detail += f"\nto mend it: [bold]{escape(check.fix)}[/bold]"
        grid.add_row(f"[{_STYLE[check.status]}]{check.status}[/]", check.name, detail)
    return grid
