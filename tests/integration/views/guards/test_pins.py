"""Versions that views and jobs need are kept by every kind of cleanup, which gives the reason."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)

from pennon.catalog import views
from pennon.catalog.views import Watermark
from pennon.core.job_model import JobKind
from pennon.jobs.pin_sweep import PinSweep
from pennon.namespace.models.views import CreateViewRequest
from pennon.storage.root import StorageRoot
from pennon.views import pins
from pennon.views.pins import Pin
from tests.integration.catalog.lakes import parts
from tests.support.jobs import change_job

if TYPE_CHECKING:
    from pennon.catalog.jobs import Job
    from pennon.storage.file_io import FileIO
    from tests.integration.views.guards.services import ViewLake
    from tests.support.s3 import S3Root


@pytest.fixture
def view_id(lake: ViewLake) -> str:
    """The id of the view, whose source has got two more versions."""
    for _ in range(2):
        lake("InsertIntoTable", "t", data=pa.table({"a": [4], "b": ["w"], "c": [3.5]}))
    return lake.ns.find_table(("v",)).id


def source(lake: ViewLake) -> FileIO:
    return lake.ns.services.storage_root.folder(str(lake.folder("t")))


def test_a_version_that_a_view_needs_is_kept(lake: ViewLake, view_id: str) -> None:
    pins.pin(source(lake), view_id, 1)
    pins.pin(source(lake), view_id, 1)
    with pytest.raises(InvalidTableStateError, match=r"still needed: 1 \(view 'v'\)"):
        lake("BatchDeleteTableVersions", "t", ranges=[{"start_version": 1, "end_version": 3}])
    lake.open("t").cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert lake.numbers("t") == [1, 3]
    pins.release(source(lake), view_id)
    lake("BatchDeleteTableVersions", "t", ranges=[{"start_version": 1, "end_version": 2}])
    assert lake.numbers("t") == [3]


def test_a_view_releases_pins_that_it_no_longer_needs(lake: ViewLake, view_id: str) -> None:
    pins.pin(source(lake), view_id, 1)
    pins.pin(source(lake), "another", 1)
    pins.pin(source(lake), view_id, 3)
    pins.release(source(lake), view_id, keep=[3])
    assert sorted(pins.pins(source(lake)), key=lambda pin: pin.version) == [Pin("another", 1), Pin(view_id, 3)]


def test_a_version_that_is_gone_cannot_be_kept(lake: ViewLake, view_id: str) -> None:
    lake("BatchDeleteTableVersions", "t", ranges=[{"start_version": 1, "end_version": 2}])
    with pytest.raises(TableVersionNotFoundError, match="cleaned up"):
        pins.pin(source(lake), view_id, 1)
    assert pins.pins(source(lake)) == []


def test_pins_are_not_shown_and_not_touched(lake: ViewLake, view_id: str) -> None:
    pins.pin(source(lake), view_id, 1)
    name = Pin(view_id, 1).tag
    assert lake("ListTableTags", "t").tags == {}
    with pytest.raises(TableTagNotFoundError):
        lake("GetTableTagVersion", "t", tag=name)
    for operation, more in (
        ("CreateTableTag", {"version": 1}),
        ("UpdateTableTag", {"version": 2}),
        ("DeleteTableTag", {}),
    ):
        with pytest.raises(InvalidInputError, match=r"the prefix 'pennon\.' is reserved"):
            lake(operation, "t", tag=name, **more)
    assert lance.dataset(lake.folder("t")).tags.list()[name]["version"] == 1


@pytest.mark.usefixtures("view_id")
def test_a_fixed_source_version_is_pinned_from_the_start(lake: ViewLake) -> None:
    query = json.dumps({"source": "t", "version": 2})
    lake.ns.create_materialized_view(
        CreateViewRequest(id=["fixed"], kind="query", source_query=query, output_schema=None)
    )
    with pytest.raises(InvalidTableStateError, match=r"still needed: 2 \(view 'fixed'\)"):
        lake("BatchDeleteTableVersions", "t", ranges=[{"start_version": 1, "end_version": 3}])
    lake("DropTable", "fixed")
    assert pins.pins(source(lake)) == []


def test_a_dropped_view_needs_nothing(lake: ViewLake, view_id: str) -> None:
    pins.pin(source(lake), view_id, 1)
    pins.pin(source(lake), "0123456789abcdef", 2)  # of a view whose process died after it dropped it
    lake("DropTable", "v")
    assert pins.pins(source(lake)) == [Pin("0123456789abcdef", 2)]
    lake("BatchDeleteTableVersions", "t", ranges=[{"start_version": 1, "end_version": 3}])
    assert lake.numbers("t") == [3]


def test_pins_keep_versions_on_an_object_store(s3_root: S3Root) -> None:
    location = f"{s3_root.url}/t.lance"
    for number in range(3):
        lance.write_dataset(
            pa.table({"a": [number]}),
            location,
            mode="append" if number else "create",
            storage_options=s3_root.options,
        )
    folder = StorageRoot(s3_root.url, s3_root.options).folder(location)
    pins.pin(folder, "abc", 2)
    dataset = lance.dataset(location, storage_options=s3_root.options)
    dataset.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert [version["version"] for version in dataset.versions()] == [2, 3]
    pins.release(folder, "abc")
    assert pins.pins(folder) == []


def submit(lake: ViewLake, kind: str, table: str, **spec: Any) -> Job:
    """Submit a job on a table."""
    found = lake.ns.find_table(tuple(parts(table)))
    return lake.ns.services.database.write(
        lambda connection: lake.ns.services.queue.submit(
            connection,
            JobKind(kind),
            found,
            spec,  # type: ignore[arg-type]
            target=kind,
            submitted_by="",
            context={},
        )
    )


def test_a_version_that_a_job_reads_is_kept_until_the_job_ends_in_any_way(lake: ViewLake, view_id: str) -> None:
    services, folder = lake.ns.services, source(lake)
    job, other = submit(lake, "backfill", "t"), submit(lake, "backfill", "t")
    for owner in (job, other):
        pins.pin(folder, owner.id, 1, kind="job")
    pins.pin(folder, view_id, 2)
    lake("CreateTableTag", "t", tag="mine", version=1)
    lake("DeleteTableTag", "t", tag="mine")
    with pytest.raises(InvalidTableStateError, match=rf"still needed: 1 .*job '{job.id}'"):
        lake("BatchDeleteTableVersions", "t", ranges=[{"start_version": 1, "end_version": 2}])
    sweep = PinSweep(services.database, services.storage_root)
    change_job(services.queue, "cancel", job.id)  # its worker was lost, and gave up nothing
    sweep.tick()
    assert pins.pins(folder, "job") == [Pin(other.id, 1, "job")]
    assert pins.pins(folder) == [Pin(view_id, 2)]
    change_job(services.queue, "cancel", other.id)
    lake("BatchDeleteTableVersions", "t", ranges=[{"start_version": 1, "end_version": 2}])


def test_the_pins_of_a_lost_maintenance_job_are_removed(lake: ViewLake, view_id: str) -> None:
    services, folder = lake.ns.services, source(lake)
    lost, done = submit(lake, "compact", "t"), submit(lake, "cleanup", "t")
    for owner in (lost, done):
        pins.pin(folder, owner.id, 1, kind="job")
    change_job(services.queue, "cancel", lost.id)  # while its lease had expired
    PinSweep(services.database, services.storage_root).tick()
    assert pins.pins(folder, "job") == [Pin(done.id, 1, "job")]


def test_what_a_lost_refresh_pinned_is_given_up_but_not_what_the_view_holds(lake: ViewLake, view_id: str) -> None:
    services, folder, source_id = lake.ns.services, source(lake), lake.ns.find_table(("t",)).id
    services.database.write(
        lambda connection: views.advance(connection, view_id, None, Watermark({source_id: 1}), 1, 0)
    )
    for version in (1, 3):
        pins.pin(folder, view_id, version)
    change_job(services.queue, "cancel", submit(lake, "refresh", "v").id)
    running = submit(lake, "refresh", "v")
    PinSweep(services.database, services.storage_root).tick()
    assert len(pins.pins(folder)) == 2
    change_job(services.queue, "cancel", running.id)
    PinSweep(services.database, services.storage_root).tick()
    assert pins.pins(folder) == [Pin(view_id, 1)]
