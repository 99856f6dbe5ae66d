"""``lance_namespace.connect("pennon.namespace.PennonNamespace")``: Pennon without a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import lance_namespace as ln
import pytest

from pennon.namespace import PennonNamespace
from tests.clients.lakes import ids_of, rows
from tests.support.server import PennonProcess

IMPLEMENTATION = "pennon.namespace.PennonNamespace"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[PennonNamespace]:
    namespace = ln.connect(IMPLEMENTATION, {"directory": str(tmp_path)})
    assert isinstance(namespace, PennonNamespace)
    yield namespace
    namespace.close()


def versions_of(client: Any, *identifier: str, branch: str | None = None) -> list[int]:
    request = ln.ListTableVersionsRequest(id=list(identifier), branch=branch)
    return [version.version for version in client.list_table_versions(request).versions]


def test_pylance_writes_and_reads_through_it(client: PennonNamespace) -> None:
    client.create_namespace(ln.CreateNamespaceRequest(id=["space"]))
    target: dict[str, Any] = {"namespace_client": client, "table_id": ["space", "t"]}
    lance.write_dataset(rows(10), mode="create", **target)
    lance.write_dataset(rows(10, 20), mode="append", **target)
    lance.dataset(**target).delete("id < 5")
    lance.dataset(**target).create_scalar_index("id", "BTREE")
    lance.dataset(**target).optimize.compact_files()
    dataset = lance.dataset(**target)
    assert ids_of(dataset.to_table()) == list(range(5, 20))
    assert versions_of(client, "space", "t") == [version["version"] for version in dataset.versions()]
    assert lance.dataset(version=1, **target).count_rows() == 10


def test_branches_are_made_through_it(client: PennonNamespace) -> None:
    target: dict[str, Any] = {"namespace_client": client, "table_id": ["t"]}
    lance.write_dataset(rows(10), mode="create", **target)
    branch = lance.dataset(**target).create_branch("dev")
    lance.write_dataset(rows(10, 20), branch, mode="append")
    assert versions_of(client, "t", branch="dev") == [1, 2]
    assert lance.dataset(**target).checkout_version(("dev", None)).count_rows() == 20
    assert lance.dataset(**target).count_rows() == 10


def test_errors_have_their_classes(client: PennonNamespace) -> None:
    with pytest.raises(ln.TableNotFoundError):
        client.describe_table(ln.DescribeTableRequest(id=["missing"]))
    with pytest.raises(ln.NamespaceNotFoundError):
        client.declare_table(ln.DeclareTableRequest(id=["missing", "t"]))
    with pytest.raises(ln.TableNotFoundError):
        lance.dataset(namespace_client=client, table_id=["missing"])


def test_it_shares_a_folder_with_a_server(client: PennonNamespace, tmp_path: Path) -> None:
    target: dict[str, Any] = {"table_id": ["t"]}
    lance.write_dataset(rows(10), namespace_client=client, mode="create", **target)
    with PennonProcess(tmp_path, "--processes", "1") as server:
        remote = ln.connect("rest", {"uri": server.url})
        assert lance.write_dataset(rows(10, 20), namespace_client=remote, mode="append", **target).version == 2
        assert lance.write_dataset(rows(20, 30), namespace_client=client, mode="append", **target).version == 3
        assert ids_of(lance.dataset(namespace_client=remote, **target).to_table()) == list(range(30))
        assert versions_of(client, "t") == versions_of(remote, "t") == [1, 2, 3]
