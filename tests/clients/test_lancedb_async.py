"""``lancedb.connect_namespace_async("rest")``: the same, without blocking."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import lance_namespace as ln
import lancedb
import pytest
from lancedb.index import FTS, BTree, IvfFlat

from tests.clients.lakes import ClientTable, Lake, rows

Run = Callable[[Callable[[Any], Awaitable[None]]], None]


@pytest.fixture
def run(lake: Lake) -> Run:
    """Run a coroutine function that takes a connection."""

    def start(work: Callable[[Any], Awaitable[None]]) -> None:
        async def with_connection() -> None:
            await work(lancedb.connect_namespace_async("rest", {"uri": lake.url}))

        asyncio.run(with_connection())

    return start


def test_namespaces_are_created_described_listed_and_dropped(run: Run, space: str) -> None:
    async def work(db: Any) -> None:
        await db.create_namespace([space, "child"], properties={"a": "b"})
        assert (await db.describe_namespace([space, "child"])).properties == {"a": "b"}
        assert (await db.list_namespaces([space])).namespaces == ["child"]
        await db.drop_namespace([space, "child"])
        assert (await db.list_namespaces([space])).namespaces == []

    run(work)


def test_tables_are_created_listed_opened_renamed_and_dropped(run: Run, space: str) -> None:
    async def work(db: Any) -> None:
        created = await db.create_table("a", rows(3), namespace_path=[space])
        assert await created.count_rows() == 3
        await db.rename_table("a", "b", cur_namespace_path=[space], new_namespace_path=[space])
        assert (await db.list_tables([space])).tables == ["b"]
        assert await (await db.open_table("b", namespace_path=[space])).count_rows() == 3
        await db.drop_table("b", namespace_path=[space])
        with pytest.raises(ln.TableNotFoundError):
            await db.open_table("b", namespace_path=[space])

    run(work)


def test_rows_are_added_updated_deleted_and_merged(run: Run, table: ClientTable) -> None:
    async def work(db: Any) -> None:
        opened = await db.create_table("table", rows(10), namespace_path=[table.id[0]])
        await opened.add(rows(10, 20))
        await opened.update({"text": "changed"}, where="id = 1")
        await opened.delete("id < 5")
        merge = opened.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        await merge.execute(rows(15, 30))
        assert await opened.version() == 5

    run(work)
    table.check(version=5, ids=range(5, 30))


def test_indices_are_made_and_used(run: Run, table: ClientTable) -> None:
    async def work(db: Any) -> None:
        opened = await db.create_table("table", rows(300), namespace_path=[table.id[0]])
        await opened.create_index("id", config=BTree())
        await opened.create_index("text", config=FTS())
        await opened.create_index("vector", config=IvfFlat(num_partitions=1))
        wanted = (await opened.query().where("id = 9").to_list())[0]["vector"]
        nearest = await opened.vector_search(wanted).limit(1).to_list()
        assert nearest[0]["_distance"] == 0.0
        found = await opened.query().nearest_to_text("word3").limit(1000).to_list()
        assert sorted(row["id"] for row in found) == list(range(3, 300, 5))
        await opened.optimize()

    run(work)
    table.check(version=table.open().version, ids=range(300))


def test_versions_tags_and_branches(run: Run, table: ClientTable) -> None:
    async def work(db: Any) -> None:
        opened = await db.create_table("table", rows(10), namespace_path=[table.id[0]])
        await opened.add(rows(10, 20))
        assert [version["version"] for version in await opened.list_versions()] == [1, 2]
        await opened.tags.create("first", 1)
        await opened.checkout("first")
        assert await opened.count_rows() == 10
        await opened.checkout_latest()
        branch = await opened.branches.create("dev")
        await branch.add(rows(100, 110))
        assert (await branch.count_rows(), await opened.count_rows()) == (30, 20)
        await opened.restore(1)

    run(work)
    table.check(version=3, ids=[*range(20), *range(100, 110)], branch="dev")
    table.check(version=3, ids=range(10))


def test_tasks_that_add_at_once_all_succeed(run: Run, table: ClientTable) -> None:
    async def work(db: Any) -> None:
        await db.create_table("table", rows(1), namespace_path=[table.id[0]])

        async def add(number: int) -> None:
            opened = await db.open_table("table", namespace_path=[table.id[0]])
            await opened.add(rows(number, number + 1))

        await asyncio.gather(*(add(number) for number in range(1, 9)))

    run(work)
    table.check(version=9, ids=range(9))
