"""Describing tables: by version, tag and branch, with and without details."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceNotFoundError,
    TableBranchNotFoundError,
    TableNotFoundError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
)

from tests.integration.catalog.lakes import rows

if TYPE_CHECKING:
    from tests.integration.catalog.conftest import OpenLake
    from tests.integration.catalog.lakes import Lake

BEYOND = [2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30]


@pytest.fixture
def written(lake: Lake) -> Lake:
    """A lake with a table of three versions; the first is tagged, the second is where a branch starts."""
    dataset = lake.write("t")
    dataset.tags.create("first", 1)
    lake.write("t", mode="append")
    lake.open("t").create_branch("dev", 2)
    lake.write("t", mode="append")
    return lake


class TestVersions:
    def test_without_a_version_the_newest_is_described(self, written: Lake) -> None:
        described = written("DescribeTable", "t")
        assert described.version == 3
        assert described.managed_versioning
        assert described.location == str(written.root / "t.lance")

    def test_any_version_can_be_described(self, written: Lake) -> None:
        assert [written("DescribeTable", "t", version=number).version for number in (1, 2, 3)] == [1, 2, 3]

    def test_a_version_that_does_not_exist_is_said_to_be_missing(self, written: Lake) -> None:
        for number in (0, 4, 99, *BEYOND):
            for detailed in (False, True):
                with pytest.raises(TableVersionNotFoundError, match=f"no version {number}"):
                    written("DescribeTable", "t", version=number, load_detailed_metadata=detailed)
            with pytest.raises(TableVersionNotFoundError, match=f"no version {number}"):
                written("TableExists", "t", version=number)
            with pytest.raises(TableVersionNotFoundError, match=f"no version {number}"):
                written("DescribeTableVersion", "t", version=number)

    def test_a_tag_names_its_version(self, written: Lake) -> None:
        assert written("DescribeTable", "t", tag="first").version == 1

    def test_an_unknown_tag_is_said_to_be_missing(self, written: Lake) -> None:
        with pytest.raises(TableTagNotFoundError, match=r"'frist'.*Did you mean 'first'"):
            written("DescribeTable", "t", tag="frist")
        with pytest.raises(TableTagNotFoundError):
            written("DescribeTable", "t", tag="../../_versions/x")

    def test_a_branch_has_versions_of_its_own(self, written: Lake) -> None:
        assert written("DescribeTable", "t", branch="dev").version == 2
        assert written("DescribeTable", "t", branch="dev", version=2).version == 2
        with pytest.raises(TableVersionNotFoundError, match="branch 'dev'"):
            written("DescribeTable", "t", branch="dev", version=3)

    def test_the_main_branch_may_be_spelled_out(self, written: Lake) -> None:
        assert [written("DescribeTable", "t", branch=branch).version for branch in ("main", "")] == [3, 3]

    def test_an_unknown_branch_is_said_to_be_missing(self, written: Lake) -> None:
        for fields in ({}, {"version": 1}, {"load_detailed_metadata": True}):
            with pytest.raises(TableBranchNotFoundError, match=r"'devv'.*Did you mean 'dev'"):
                written("DescribeTable", "t", branch="devv", **fields)

    def test_a_branch_name_reaches_nothing_outside_the_table(self, written: Lake) -> None:
        written.write("other")
        for branch in ("../../other.lance", "..", "dev/../..", "/dev", "dev/", "a//b", "a\0b", "a b", "x" * 201, "."):
            with pytest.raises(InvalidInputError, match="Invalid branch name"):
                written("DescribeTable", "t", branch=branch)

    def test_a_tag_goes_with_nothing_else(self, written: Lake) -> None:
        for more in ({"version": 1}, {"branch": "dev"}, {"version": 1, "branch": "dev"}):
            with pytest.raises(InvalidInputError, match="tag cannot be combined"):
                written("DescribeTable", "t", tag="first", **more)

    def test_a_tag_on_a_branch_names_the_version_there(self, written: Lake) -> None:
        lance.write_dataset(rows(), written.open("t").checkout_version(("dev", None)), mode="append")
        lance.dataset(written.folder("t")).tags.create("there", ("dev", 3))
        described = written("DescribeTable", "t", tag="there", load_detailed_metadata=True)
        assert described.version == 3
        assert described.stats.num_fragments == 3


class TestDetails:
    def test_details_have_schema_statistics_and_names(self, lake: Lake) -> None:
        lake("CreateNamespace", "a")
        schema = pa.schema(
            [pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.list_(pa.float32(), 2), metadata={"k": "v"})],
            metadata={"about": "it"},
        )
        lake.write("a$t", pa.table({"id": [1, 2], "v": [[1.0, 2.0], [3.0, 4.0]]}, schema=schema))
        lake.open("a$t").delete("id = 1")
        described = lake("DescribeTable", "a$t", load_detailed_metadata=True)
        assert (described.table, described.namespace, described.version) == ("t", ["a"], 2)
        assert (described.stats.num_fragments, described.stats.num_deleted_rows) == (1, 1)
        assert described.is_only_declared is False
        answered = described.var_schema.model_dump(exclude_none=True, by_alias=True)
        assert answered["metadata"] == {"about": "it"}
        assert answered["fields"][0] == {"name": "id", "nullable": False, "type": {"type": "int64"}}
        assert answered["fields"][1]["metadata"] == {"k": "v"}
        assert answered["fields"][1]["type"]["length"] == 2

    def test_details_of_an_old_version_are_those_it_had(self, lake: Lake) -> None:
        lake.write("t")
        lake.open("t").add_columns({"twice": "number * 2"})
        names = {
            version: [
                field.name
                for field in lake("DescribeTable", "t", version=version, load_detailed_metadata=True).var_schema.fields
            ]
            for version in (1, 2, 1)
        }
        assert names == {1: ["number"], 2: ["number", "twice"]}

    def test_a_table_without_data_has_no_fields(self, lake: Lake) -> None:
        lake("DeclareTable", "t")
        described = lake("DescribeTable", "t", load_detailed_metadata=True)
        assert described.is_only_declared
        assert described.version == 0
        assert described.var_schema.fields == []
        assert described.stats.num_fragments == 0

    def test_a_table_made_again_has_the_schema_it_was_made_with(self, lake: Lake) -> None:
        lake.write("t", pa.table({"old": [1]}))
        assert lake("DescribeTable", "t", load_detailed_metadata=True).var_schema.fields[0].name == "old"
        lake("DropTable", "t")
        lake.write("t", pa.table({"new": ["x"]}))
        assert lake("DescribeTable", "t", load_detailed_metadata=True).var_schema.fields[0].name == "new"

    def test_a_table_that_others_made_again_has_the_schema_they_made_it_with(self, lake: Lake) -> None:
        folder = lake.root / "t.lance"
        lance.write_dataset(pa.table({"old": [1]}), folder)
        assert lake("DescribeTable", "t", load_detailed_metadata=True).var_schema.fields[0].name == "old"
        folder.rename(lake.root / "away")
        lance.write_dataset(pa.table({"new": ["x"]}), folder)
        described = lake("DescribeTable", "t", load_detailed_metadata=True)
        assert (described.version, described.var_schema.fields[0].name) == (1, "new")

    def test_a_table_whose_data_were_lost_is_an_error_that_says_so(self, lake: Lake) -> None:
        lake.write("t")
        lake.folder("t").rename(lake.root / "away")
        with pytest.raises((TableNotFoundError, TableVersionNotFoundError)):
            lake("DescribeTable", "t", load_detailed_metadata=True)


class TestOptions:
    def test_the_address_is_a_uri_only_when_asked_for(self, open_lake: OpenLake, tmp_path: Path) -> None:
        lake = open_lake(tmp_path / "odd % name ü#?")
        lake.write("t")
        assert lake("DescribeTable", "t").table_uri is None
        uri = urlsplit(lake("DescribeTable", "t", with_table_uri=True).table_uri)
        assert uri.scheme == "file"
        assert unquote(uri.path) == str(lake.folder("t"))
        assert lance.dataset(lake("DescribeTable", "t", with_table_uri=True).table_uri).count_rows() == 2

    def test_is_only_declared_is_returned_only_on_request(self, lake: Lake) -> None:
        lake("DeclareTable", "t")
        assert lake("DescribeTable", "t").is_only_declared is None
        assert lake("DescribeTable", "t", check_declared=True).is_only_declared is True
        lake.write("t", mode="append")
        assert lake("DescribeTable", "t", check_declared=True).is_only_declared is False
        assert lake("DescribeTable", "t", check_declared=True, version=1).is_only_declared is False

    def test_storage_options_come_without_secrets_unless_the_settings_hand_them_out(self, open_lake: OpenLake) -> None:
        options = {"region": "eu", "aws_secret_access_key": "hush", "google_service_account_key": "hush"}
        lake = open_lake(storage_options=options)
        assert lake("DeclareTable", "t").storage_options == {"region": "eu"}
        assert lake("CreateEmptyTable", "u").storage_options == {"region": "eu"}
        assert lake("DescribeTable", "t", vend_credentials=True).storage_options == {"region": "eu"}
        vending = open_lake(storage_options=options, vend_credentials=True)
        assert vending("DescribeTable", "t").storage_options == options
        assert vending("DescribeTable", "t", vend_credentials=False).storage_options == {"region": "eu"}


class TestMissing:
    @pytest.mark.parametrize(
        "operation",
        ["DescribeTable", "TableExists", "DropTable", "DeregisterTable", "ListTableVersions", "DescribeTableVersion"],
    )
    def test_what_is_missing_is_named(self, lake: Lake, operation: str) -> None:
        lake("CreateNamespace", "a")
        lake("DeclareTable", "a$orders")
        with pytest.raises(TableNotFoundError, match=r"'a\$order' does not exist. Did you mean 'orders'\?"):
            lake(operation, "a$order")
        with pytest.raises(TableNotFoundError, match="'orders' does not exist"):
            lake(operation, "orders")
        with pytest.raises(NamespaceNotFoundError, match=r"'a\$b'"):
            lake(operation, "a$b$orders")
        with pytest.raises(InvalidInputError, match="not a table"):
            lake(operation, "$")
        with pytest.raises(InvalidInputError, match="'id' is missing"):
            lake(operation)

    def test_a_table_exists_also_when_it_is_only_declared(self, lake: Lake) -> None:
        lake("DeclareTable", "t")
        lake("TableExists", "t")
        with pytest.raises(TableVersionNotFoundError):
            lake("TableExists", "t", version=1)
        with pytest.raises(TableVersionNotFoundError, match="no version yet"):
            lake("DescribeTableVersion", "t")
        assert lake("ListTableVersions", "t").versions == []
