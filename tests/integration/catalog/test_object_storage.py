"""The same catalog with its tables on an object store."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import lance
import lance_namespace as ln
import obstore
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    TableNotFoundError,
    TableVersionNotFoundError,
)
from obstore.exceptions import GenericError
from obstore.store import S3Store

from pennon.storage.layout import manifest_name
from pennon.storage.object_store import ObjectStoreFileIO
from tests.integration.catalog.cleanups import clean, values
from tests.integration.catalog.lakes import Lake, rows
from tests.integration.data.tables import stream_of
from tests.support.manifest_edits import edit_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.s3 import S3Root


class Bucket:
    """What is in the bucket of a lake."""

    def __init__(self, root: S3Root) -> None:
        self.root = root
        options = {key.removeprefix("aws_"): value for key, value in root.options.items() if key != "allow_http"}
        config: Any = options  # the stub lists each option
        self.store = S3Store(root.bucket, config=config, client_options={"allow_http": True})

    def listing(self, prefix: str = "") -> set[str]:
        found = obstore.list(self.store, prefix=f"{self.root.prefix}/{prefix}" if prefix else self.root.prefix)
        return {entry["path"].removeprefix(f"{self.root.prefix}/") for batch in found for entry in batch}

    def write(self, name: str, mode: str = "create") -> Any:
        return lance.write_dataset(rows(), f"{self.root.url}/{name}", mode=mode, storage_options=self.root.options)

    def stage(self, location: str, content: bytes, version: int) -> str:
        key = location.removeprefix(f"s3://{self.root.bucket}/")
        key = f"{key}/_versions/{manifest_name(version, 'V2')}-{uuid.uuid4()}"
        obstore.put(self.store, key, content)
        return key


@pytest.fixture
def bucket(s3_root: S3Root) -> Bucket:
    return Bucket(s3_root)


@pytest.fixture
def lake(s3_root: S3Root, tmp_path: Path) -> Iterator[Lake]:
    settings = {"root": s3_root.url, "storage_options": s3_root.options, "vend_credentials": True}
    opened = Lake(tmp_path / "catalog", discovery_interval_seconds=0.0, **settings)
    yield opened
    opened.close()


def test_tables_are_written_read_and_dropped(lake: Lake, bucket: Bucket) -> None:
    lake("CreateNamespace", "a")
    for name in ("t", "a$t"):
        lake.write(name)
        lake.write(name, mode="append")
        assert lake.open(name).count_rows() == 4
        described = lake("DescribeTable", name, load_detailed_metadata=True, with_table_uri=True)
        assert described.location.startswith(f"{bucket.root.url}/")
        assert described.table_uri == described.location
        assert (described.version, described.stats.num_fragments) == (2, 2)
        assert lake.numbers(name, descending=True) == [2, 1]
    assert not [key for key in bucket.listing() if ".manifest-" in key]
    lake("DropTable", "t")
    assert not [key for key in bucket.listing() if key.startswith("t.lance/")]
    lake("DropNamespace", "a", behavior="cascade")
    assert bucket.listing() == {".pennon-root"}


def test_a_replayed_commit_succeeds_and_a_lost_one_is_refused(lake: Lake, bucket: Bucket) -> None:
    lake.write("t")
    location = lake("DescribeTable", "t").location
    bucket.write("copy")
    content = bytes(obstore.get(bucket.store, f"{bucket.root.prefix}/copy/_versions/{manifest_name(1, 'V2')}").bytes())
    lost = bucket.stage(location, content, 1)
    with pytest.raises(ConcurrentModificationError):
        lake("CreateTableVersion", "t", version=1, manifest_path=lost)
    own = bytes(obstore.get(bucket.store, f"{bucket.root.prefix}/t.lance/_versions/{manifest_name(1, 'V2')}").bytes())
    same = bucket.stage(location, own, 1)
    assert lake("CreateTableVersion", "t", version=1, manifest_path=same).version.version == 1
    assert not [key for key in bucket.listing("t.lance") if ".manifest-" in key]


def test_a_path_leads_nowhere_else(lake: Lake, bucket: Bucket) -> None:
    lake.write("t")
    lake.write("other")
    before = bucket.listing()
    stem = f"{bucket.root.prefix}/t.lance/_versions/{manifest_name(2, 'V2')}-{uuid.uuid4()}"
    other = stem.replace("t.lance", "other.lance")
    for path in (other, f"s3://{bucket.root.bucket}/{stem}", f"{bucket.root.bucket}/{stem}", f"x/../{stem}", "", stem):
        with pytest.raises(InvalidInputError):
            lake("CreateTableVersion", "t", version=2, manifest_path=path)
    assert bucket.listing() == before


@pytest.mark.parametrize("spelling", ["s3:{}", "s3:{}/", "s3:{}/tree/../../other.lance", "s3:{}%2F", "s3a:{}"])
def test_a_manifest_names_no_files_of_another_table(lake: Lake, bucket: Bucket, spelling: str) -> None:
    lake("CreateNamespace", "a")
    for name in ("a$t", "other"):
        lake.write(name)
    other = lake("DescribeTable", "other").location
    bucket.write("copy").shallow_clone(f"{bucket.root.url}/clone", 1, storage_options=bucket.root.options)
    path = f"{bucket.root.prefix}/clone/_versions/{manifest_name(1, 'V2')}"

    def lead_to_other(manifest: Any) -> None:
        manifest.version = 2
        manifest.base_paths[0].path = spelling.format(other.removeprefix("s3:"))

    content = edit_manifest(bytes(obstore.get(bucket.store, path).bytes()), lead_to_other)
    staged = bucket.stage(lake("DescribeTable", "a$t").location, content, 2)
    with pytest.raises(InvalidInputError, match="base path"):
        lake("CreateTableVersion", "a$t", version=2, manifest_path=staged)
    assert lake.open("a$t").create_branch("dev").count_rows() == 2
    assert lake("CountTableRows", "a$t", branch="dev").count == 2


def test_folders_of_others_are_found_followed_and_let_go(lake: Lake, bucket: Bucket) -> None:
    bucket.write("found.lance")
    assert lake("ListTables", "$").tables == ["found"]
    bucket.write("found.lance", "append")
    assert lake.latest("found") == 2
    lake("DeregisterTable", "found")
    assert "found.lance/.lance-deregistered" in bucket.listing()
    assert lake("ListTables", "$").tables == []
    lake("RegisterTable", "again", location="found.lance")
    assert lake.numbers("again") == [1, 2]
    lake("DropTable", "again")
    assert bucket.listing() == {".pennon-root"}
    with pytest.raises(TableNotFoundError):
        lake("TableExists", "found")


def test_versions_are_deleted_but_not_those_that_are_needed(lake: Lake, bucket: Bucket) -> None:
    for mode in ("create", "append", "append", "append"):
        lake.write("t", mode=mode)
    lake.open("t").tags.create("kept", 2)
    with pytest.raises(InvalidTableStateError, match="tag 'kept'"):
        lake("BatchDeleteTableVersions", "t", ranges=[{"start_version": 1, "end_version": 3}])
    answer = lake("BatchDeleteTableVersions", "t", ranges=[{"start_version": 3, "end_version": 4}])
    assert answer.deleted_count == 1
    assert lake.numbers("t") == [1, 2, 4]
    assert len([key for key in bucket.listing("t.lance/_versions") if key.endswith(".manifest")]) == 3


def test_stale_writers_are_refused(lake: Lake) -> None:
    lake.write("t")
    appending, deleting, overwriting = (lake.open("t") for _ in range(3))
    lake("DropTable", "t")
    lake.write("t", rows(1, 7))
    with pytest.raises((OSError, ValueError, RuntimeError)):
        appending.insert(rows())
    with pytest.raises((OSError, ValueError, RuntimeError)):
        deleting.delete("true")
    with pytest.raises((OSError, ValueError, RuntimeError)):
        lance.write_dataset(rows(), overwriting, mode="overwrite")
    assert lake.numbers("t") == [1]
    assert lake.open("t").to_table()["number"].to_pylist() == [7]
    assert lake("DescribeTable", "t").location.endswith("_t"), "it has a folder of its own"


def test_a_commit_that_a_drop_overtakes_leaves_nothing_behind(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write("t")
    publish_if_absent = ObjectStoreFileIO.publish_if_absent

    def slow(folder: ObjectStoreFileIO, *arguments: Any) -> Any:
        monkeypatch.undo()
        lake("DropTable", "t")
        return publish_if_absent(folder, *arguments)

    monkeypatch.setattr(ObjectStoreFileIO, "publish_if_absent", slow)
    with pytest.raises(OSError, match=r"version 2|not found|dropped"):
        lake.write("t", mode="append")
    assert not [key for key in bucket.listing("t.lance") if key.endswith(".manifest")]
    assert lake("ListTables", "$").tables == []


def test_a_commit_that_storage_keeps_from_its_place_happened_nevertheless(
    lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise GenericError("not now")

    writes: list[Callable[[], Any]] = [
        lambda: lake.ns.insert_into_table(ln.InsertIntoTableRequest(id=["t"]), stream_of(rows())),
        lambda: lake.write("t", mode="append"),
    ]
    lake.write("t")
    for version, write in enumerate(writes, 2):
        with monkeypatch.context() as failing:
            failing.setattr(ObjectStoreFileIO, "publish_if_absent", fail)
            write()
        assert lake.latest("t") == version
        assert lake.open("t").count_rows() == 2 * version
    assert not [key for key in bucket.listing("t.lance") if ".manifest-" in key]


def test_a_folder_that_has_no_address_is_no_table(lake: Lake, bucket: Bucket) -> None:
    bucket.write("t.lance")
    manifest = f"_versions/{manifest_name(1, 'V2')}"
    content = bytes(obstore.get(bucket.store, f"{bucket.root.prefix}/t.lance/{manifest}").bytes())
    for name in ("t.lance#x.lance", "t.lance?x.lance", "t%2elance.lance"):
        obstore.put(bucket.store, f"{bucket.root.prefix}/{name}/{manifest}", content)
    assert lake("ListTables", "$").tables == ["t"]


def test_secrets_are_handed_out_only_where_the_settings_say_so(s3_root: S3Root, tmp_path: Path) -> None:
    reticent = Lake(tmp_path / "catalog", root=s3_root.url, storage_options=s3_root.options)
    try:
        options = reticent("DeclareTable", "t").storage_options
    finally:
        reticent.close()
    assert not any("key" in name or "secret" in name for name in options)
    assert options["aws_region"] == s3_root.options["aws_region"]


def test_old_versions_go_with_their_files(lake: Lake, bucket: Bucket) -> None:
    lake.write("t", rows(4))
    for number in range(4):
        lake.write("t", rows(2, 10 * number), "overwrite")
    lake("CreateTableTag", "t", tag="good", version=2)
    before = values(lake.open("t", version=2))
    home = lake("DescribeTable", "t").location.rsplit("/", 1)[1]
    data = {name for name in bucket.listing() if f"{home}/data/" in name}
    cleaned = clean(lake, "t", max_versions=1)
    left = bucket.listing()
    assert (cleaned.versions, lake.numbers("t")) == (3, [2, 5])
    assert len({name for name in left if f"{home}/data/" in name}) == len(data) - 3 == 2
    assert len({name for name in left if f"{home}/_versions/" in name and name.endswith(".manifest")}) == 2
    assert not {name for name in left if "_removed_versions" in name}
    assert cleaned.files >= 6
    assert values(lake.open("t", version=2)) == before
    with pytest.raises(TableVersionNotFoundError):
        lake("DescribeTableVersion", "t", version=3)
