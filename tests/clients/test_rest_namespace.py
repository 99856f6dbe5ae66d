"""``lance_namespace.connect("rest")``: every catalog operation, and the class of every error."""

from __future__ import annotations

from typing import Any

import lance
import lance_namespace as ln
import pytest
from lance_namespace_urllib3_client.models import AlterTransactionAction, AlterTransactionSetProperty

from tests.clients.lakes import ClientTable, Lake, rows
from tests.clients.staging import Stager


@pytest.fixture
def written(table: ClientTable) -> ClientTable:
    """A table with versions 1 to 3."""
    table.write(rows(10), "create")
    table.write(rows(10, 20))
    table.write(rows(20, 30))
    return table


def all_pages(call: Any, request: Any, field: str) -> list[list[Any]]:
    """Follow a listing to its end."""
    pages = []
    while True:
        answer = call(request)
        pages.append(getattr(answer, field))
        if not answer.page_token:
            return pages
        request = request.model_copy(update={"page_token": answer.page_token})


def plain(table: ClientTable) -> Any:
    """Return the client as one that takes and gives dictionaries: that is how it has these three operations."""
    return table.client


class TestNamespaces:
    def test_one_is_created_described_and_listed(self, client: ln.LanceNamespace, space: str) -> None:
        properties = {"owner": "Zoë", "empty": ""}
        created = client.create_namespace(ln.CreateNamespaceRequest(id=[space, "child"], properties=properties))
        assert created.properties == properties
        assert client.describe_namespace(ln.DescribeNamespaceRequest(id=[space, "child"])).properties == properties
        assert client.list_namespaces(ln.ListNamespacesRequest(id=[space])).namespaces == ["child"]
        assert space in client.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces

    def test_a_listing_comes_in_pages(self, client: ln.LanceNamespace, space: str) -> None:
        for name in "edcba":
            client.create_namespace(ln.CreateNamespaceRequest(id=[space, name]))
        pages = all_pages(client.list_namespaces, ln.ListNamespacesRequest(id=[space], limit=2), "namespaces")
        assert pages == [["a", "b"], ["c", "d"], ["e"]]

    def test_one_that_exists_can_be_kept_or_replaced(self, client: ln.LanceNamespace, space: str) -> None:
        request = ln.CreateNamespaceRequest(id=[space, "child"], properties={"a": "1"})
        client.create_namespace(request)
        with pytest.raises(ln.NamespaceAlreadyExistsError):
            client.create_namespace(request)
        kept = client.create_namespace(ln.CreateNamespaceRequest(id=[space, "child"], mode="ExistOk"))
        assert kept.properties == {"a": "1"}
        client.declare_table(ln.DeclareTableRequest(id=[space, "child", "t"]))
        client.create_namespace(ln.CreateNamespaceRequest(id=[space, "child"], mode="Overwrite", properties={"b": "2"}))
        assert client.describe_namespace(ln.DescribeNamespaceRequest(id=[space, "child"])).properties == {"b": "2"}
        assert client.list_tables(ln.ListTablesRequest(id=[space, "child"])).tables == []

    def test_one_exists_or_does_not(self, client: ln.LanceNamespace, space: str) -> None:
        client.namespace_exists(ln.NamespaceExistsRequest(id=[space]))
        with pytest.raises(ln.NamespaceNotFoundError):
            client.namespace_exists(ln.NamespaceExistsRequest(id=[space, "missing"]))
        with pytest.raises(ln.NamespaceNotFoundError):
            client.describe_namespace(ln.DescribeNamespaceRequest(id=[space, "missing"]))
        with pytest.raises(ln.NamespaceNotFoundError):
            client.list_namespaces(ln.ListNamespacesRequest(id=[space, "missing"]))
        with pytest.raises(ln.NamespaceNotFoundError):
            client.create_namespace(ln.CreateNamespaceRequest(id=[space, "missing", "child"]))

    def test_one_is_dropped_when_it_is_empty(self, client: ln.LanceNamespace, space: str) -> None:
        client.declare_table(ln.DeclareTableRequest(id=[space, "t"]))
        with pytest.raises(ln.NamespaceNotEmptyError):
            client.drop_namespace(ln.DropNamespaceRequest(id=[space]))
        client.drop_table(ln.DropTableRequest(id=[space, "t"]))
        client.drop_namespace(ln.DropNamespaceRequest(id=[space]))
        with pytest.raises(ln.NamespaceNotFoundError):
            client.drop_namespace(ln.DropNamespaceRequest(id=[space]))
        client.drop_namespace(ln.DropNamespaceRequest(id=[space], mode="Skip"))

    def test_a_cascade_takes_tables_and_their_files(self, written: ClientTable) -> None:
        client, space = written.client, written.id[0]
        client.create_namespace(ln.CreateNamespaceRequest(id=[space, "child"]))
        deeper = ClientTable(written.lake, client, space, "child", "t")
        deeper.write(rows(1), "create")
        places = [written.location, deeper.location]
        client.drop_namespace(ln.DropNamespaceRequest(id=[space], behavior="Cascade"))
        assert [written.lake.is_empty(place) for place in places] == [True, True]
        with pytest.raises(ln.NamespaceNotFoundError):
            client.describe_table(ln.DescribeTableRequest(id=[space, "child", "t"]))


class TestTables:
    def test_one_is_declared_and_has_no_data_yet(self, client: ln.LanceNamespace, space: str) -> None:
        declared = client.declare_table(ln.DeclareTableRequest(id=[space, "t"], properties={"a": "b"}))
        assert (declared.managed_versioning, declared.properties) == (True, {"a": "b"})
        described = client.describe_table(ln.DescribeTableRequest(id=[space, "t"], check_declared=True))
        assert (described.location, described.is_only_declared) == (declared.location, True)
        with pytest.raises(ln.TableAlreadyExistsError):
            client.declare_table(ln.DeclareTableRequest(id=[space, "t"]))
        with pytest.raises(ln.NamespaceNotFoundError):
            client.declare_table(ln.DeclareTableRequest(id=[space, "missing", "t"]))

    def test_one_is_described_in_detail(self, written: ClientTable) -> None:
        request = ln.DescribeTableRequest(id=written.id, load_detailed_metadata=True, with_table_uri=True)
        described = written.client.describe_table(request)
        assert (described.table, described.namespace) == ("table", [written.id[0]])
        assert described.version == 3
        assert described.var_schema is not None
        assert [field.name for field in described.var_schema.fields] == ["id", "text", "vector"]
        assert described.stats is not None
        assert (described.stats.num_fragments, described.stats.num_deleted_rows) == (3, 0)
        assert described.table_uri is not None
        uri = described.table_uri
        assert lance.dataset(uri, storage_options=written.lake.options).count_rows() == 30

    def test_an_older_version_is_described(self, written: ClientTable) -> None:
        request = ln.DescribeTableRequest(id=written.id, version=2, load_detailed_metadata=True)
        assert written.client.describe_table(request).version == 2
        with pytest.raises(ln.TableVersionNotFoundError):
            written.client.describe_table(ln.DescribeTableRequest(id=written.id, version=9))

    def test_one_exists_or_does_not(self, written: ClientTable) -> None:
        client, space = written.client, written.id[0]
        client.table_exists(ln.TableExistsRequest(id=written.id))
        client.table_exists(ln.TableExistsRequest(id=written.id, version=3))
        with pytest.raises(ln.TableVersionNotFoundError):
            client.table_exists(ln.TableExistsRequest(id=written.id, version=4))
        missing: list[tuple[Any, Any]] = [
            (client.table_exists, ln.TableExistsRequest(id=[space, "missing"])),
            (client.describe_table, ln.DescribeTableRequest(id=[space, "missing"])),
            (client.drop_table, ln.DropTableRequest(id=[space, "missing"])),
            (client.deregister_table, ln.DeregisterTableRequest(id=[space, "missing"])),
            (client.list_table_versions, ln.ListTableVersionsRequest(id=[space, "missing"])),
        ]
        for call, request in missing:
            with pytest.raises(ln.TableNotFoundError):
                call(request)

    def test_listings_come_in_pages_and_may_leave_out_what_has_no_data(self, written: ClientTable) -> None:
        client, space = written.client, written.id[0]
        for name in "cba":
            client.declare_table(ln.DeclareTableRequest(id=[space, name]))
        pages = all_pages(client.list_tables, ln.ListTablesRequest(id=[space], limit=3), "tables")
        assert pages == [["a", "b", "c"], ["table"]]
        with_data = client.list_tables(ln.ListTablesRequest(id=[space], include_declared=False))
        assert with_data.tables == ["table"]

    def test_all_tables_are_listed_by_their_full_names(self, written: ClientTable) -> None:
        pages = all_pages(written.client.list_all_tables, ln.ListTablesRequest(limit=100), "tables")
        assert "$".join(written.id) in [name for page in pages for name in page]

    def test_one_is_renamed_and_moved(self, written: ClientTable) -> None:
        client, space = written.client, written.id[0]
        client.create_namespace(ln.CreateNamespaceRequest(id=[space, "child"]))
        client.declare_table(ln.DeclareTableRequest(id=[space, "taken"]))
        with pytest.raises(ln.TableAlreadyExistsError):
            client.rename_table(ln.RenameTableRequest(id=written.id, new_table_name="taken"))
        moved = ln.RenameTableRequest(id=written.id, new_table_name="t", new_namespace_id=[space, "child"])
        client.rename_table(moved)
        with pytest.raises(ln.TableNotFoundError):
            client.rename_table(moved)
        ClientTable(written.lake, client, space, "child", "t").check(version=3, ids=range(30))

    def test_a_dropped_one_leaves_no_files(self, written: ClientTable) -> None:
        location = written.location
        dropped = written.client.drop_table(ln.DropTableRequest(id=written.id))
        assert (dropped.id, dropped.location) == (written.id, location)
        assert written.lake.is_empty(location)

    def test_a_deregistered_one_keeps_its_files_and_can_come_back(self, written: ClientTable) -> None:
        client, location = written.client, written.location
        client.deregister_table(ln.DeregisterTableRequest(id=written.id))
        with pytest.raises(ln.TableNotFoundError):
            client.describe_table(ln.DescribeTableRequest(id=written.id))
        registered = client.register_table(ln.RegisterTableRequest(id=written.id, location=location))
        assert registered.location == location
        assert written.open().count_rows() == 30
        with pytest.raises(ln.TableAlreadyExistsError):
            client.register_table(ln.RegisterTableRequest(id=written.id, location=location))

    def test_a_location_without_a_table_is_not_registered(self, client: ln.LanceNamespace, space: str) -> None:
        for location in ("nothing_here", "/etc", "../outside", "s3://elsewhere/t"):
            with pytest.raises(ln.InvalidInputError):
                client.register_table(ln.RegisterTableRequest(id=[space, "t"], location=location))

    def test_a_name_that_cannot_be_is_refused(self, client: ln.LanceNamespace, space: str) -> None:
        for name in ("a/b", "..", "x" * 300):
            with pytest.raises(ln.InvalidInputError):
                client.declare_table(ln.DeclareTableRequest(id=[space, name]))


class TestVersions:
    def test_they_are_listed_from_either_end_in_pages(self, written: ClientTable) -> None:
        def numbers(**options: Any) -> list[list[int]]:
            request = ln.ListTableVersionsRequest(id=written.id, **options)
            return [[v.version for v in page] for page in all_pages(call, request, "versions")]

        call = written.client.list_table_versions
        assert numbers() == [[1, 2, 3]]
        assert numbers(descending=True) == [[3, 2, 1]]
        assert numbers(limit=2) == [[1, 2], [3]]
        assert numbers(limit=2, descending=True) == [[3, 2], [1]]

    def test_one_is_described(self, written: ClientTable) -> None:
        latest = plain(written).describe_table_version({"id": written.id})["version"]
        third = plain(written).describe_table_version({"id": written.id, "version": 3})["version"]
        assert latest == third
        assert third["version"] == 3
        assert third["manifest_path"].endswith("_versions/18446744073709551612.manifest")
        with pytest.raises(ln.TableVersionNotFoundError):
            plain(written).describe_table_version({"id": written.id, "version": 4})

    def test_one_is_created_once(self, written: ClientTable, lake: Lake) -> None:
        stager = Stager(lake, written.location)
        won, lost = stager.append(rows(30, 40)), stager.append(rows(50, 60))
        answer = plain(written).create_table_version(won.request(written.id))
        assert answer["version"]["version"] == 4
        with pytest.raises(ln.ConcurrentModificationError):
            plain(written).create_table_version(lost.request(written.id))
        assert plain(written).create_table_version(won.request(written.id))["version"]["version"] == 4
        written.check(version=4, ids=range(40))

    def test_one_that_leaves_a_gap_is_refused(self, written: ClientTable, lake: Lake) -> None:
        stale = Stager(lake, written.location).append(rows(30, 40))
        request = {**stale.request(written.id), "version": 5}
        with pytest.raises(ln.InvalidInputError):
            plain(written).create_table_version(request)

    def test_old_ones_are_deleted(self, written: ClientTable) -> None:
        answer = plain(written).batch_delete_table_versions(
            {"id": written.id, "ranges": [{"start_version": 1, "end_version": 3}]}
        )
        assert answer["deleted_count"] == 2
        written.check(version=3, ids=range(30))
        assert written.recorded() == [3]
        with pytest.raises(ln.InvalidTableStateError):
            plain(written).batch_delete_table_versions(
                {"id": written.id, "ranges": [{"start_version": 3, "end_version": 4}]}
            )


class TestTransactions:
    def test_one_is_described(self, client: ln.LanceNamespace, space: str) -> None:
        declared = client.declare_table(ln.DeclareTableRequest(id=[space, "t"]))
        assert declared.transaction_id is not None
        described = client.describe_transaction(ln.DescribeTransactionRequest(id=[declared.transaction_id]))
        assert described.status.lower() == "succeeded"
        assert described.properties is not None
        assert described.properties["object"] == f"{space}$t"

    def test_actions_that_the_client_loses_alter_nothing(self, client: ln.LanceNamespace, space: str) -> None:
        declared = client.declare_table(ln.DeclareTableRequest(id=[space, "t"]))
        assert declared.transaction_id is not None
        action = AlterTransactionAction(setPropertyAction=AlterTransactionSetProperty(key="note", value="seen"))
        # This client writes the fields of an action under names that its own lower half does not read.
        with pytest.raises(ln.InvalidInputError):
            client.alter_transaction(ln.AlterTransactionRequest(id=[declared.transaction_id], actions=[action]))

    def test_one_that_does_not_exist_is_not_found(self, client: ln.LanceNamespace) -> None:
        with pytest.raises(ln.TransactionNotFoundError):
            client.describe_transaction(ln.DescribeTransactionRequest(id=["missing"]))
