"""Refreshing views and keeping them up to date: jobs, plans and reported freshness."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import lance_namespace.errors as errors
import pyarrow as pa
import pytest

from pennon.catalog import views
from pennon.namespace.models.views import (
    AlterViewRequest,
    DescribeViewRequest,
    DropViewRequest,
    ListViewsRequest,
    RefreshPlan,
)
from tests.integration.views.api.view_catalog import ViewCatalog
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewCatalog]:
    """A catalog with a view ``v`` over one table, one ``joined`` over two, and one ``fixed`` to a version."""
    opened = ViewCatalog(tmp_path_factory.mktemp("hung")).fill()
    opened.create("v", {"source": "t", "columns": ["id"], "where": "id > 1"})
    opened.create("joined", "SELECT t.id FROM t JOIN shop.orders o ON t.id = o.id")
    opened.create("fixed", "SELECT id FROM t VERSION AS OF 1")
    yield opened
    opened.close()


class TestSubmitting:
    def test_the_job_has_the_options_of_the_request(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("v", {"source": "t"})
        fields = {"concurrency": 2, "max_rows_per_fragment": 10, "intra_applier_concurrency": 1, "full": True}
        answer = view_catalog.refresh(
            "v", src_version=1, priority=5, timeout_seconds=60, manifest='{"pip": []}', **fields
        )
        (job,) = view_catalog.jobs("v")
        assert (job.id, job.kind, job.branch, job.target, job.priority) == (answer.job_id, "refresh", "", "", 5)
        assert job.spec == {"src_version": 1, "timeout_seconds": 60, "manifest": '{"pip": []}', **fields}

    def test_the_clients_name_of_the_version_is_understood(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("v", {"source": "t"})
        view_catalog.refresh("v", source_version=1, full=False)
        assert view_catalog.jobs("v")[0].spec == {"src_version": 1, "full": False}

    def test_a_cascade_names_the_views_before_it_in_order(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("a", {"source": "t"})
        view_catalog.create("b", {"source": "a"})
        view_catalog.create("c", "SELECT a.id FROM b JOIN a ON a.id = b.id JOIN shop.orders o ON o.id = a.id")
        view_catalog.create("d", "SELECT id FROM c")
        view_catalog.refresh("d", cascade=True)
        ids = {view_catalog.view(name).table_id: name for name in "abc"}
        assert [ids[view] for view in view_catalog.jobs("d")[0].spec["before"]] == ["a", "b", "c"]  # type: ignore[typeddict-item]
        assert view_catalog.refresh("d", cascade=True, dry_run=True).before == ["a", "b", "c"]

    def test_a_view_that_is_read_at_a_version_is_not_refreshed_first(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("a", {"source": "t"})
        view_catalog.create("b", {"source": "a", "version": 1})
        view_catalog.refresh("b", cascade=True)
        assert "before" not in view_catalog.jobs("b")[0].spec

    @pytest.mark.parametrize(
        ("name", "fields", "described"),
        [
            ("v", {"concurrency": 0}, "concurrency is 0"),
            ("v", {"concurrency": 4097}, "concurrency is 4097; it must be at most 4096"),
            ("v", {"intra_applier_concurrency": 257}, "intra_applier_concurrency is 257"),
            ("v", {"max_rows_per_fragment": 2**31}, "max_rows_per_fragment"),
            ("v", {"source_task_size": 2**31}, "source_task_size"),
            ("v", {"max_rows_per_fragment": 0}, "max_rows_per_fragment is 0"),
            ("v", {"intra_applier_concurrency": -1}, "intra_applier_concurrency is -1"),
            ("v", {"source_task_size": 0}, "source_task_size is 0"),
            ("v", {"output_limit": 5}, "output_limit is for chunkers"),
            ("v", {"cluster": "nope"}, "no cluster 'nope'"),
            ("v", {"manifest": "name"}, "manifest is not"),
            ("v", {"src_version": 1, "source_version": 2}, "two names"),
            ("v", {"src_version": 1, "cascade": True}, "send one"),
            ("joined", {"src_version": 1}, "reads several"),
            ("fixed", {"src_version": 1}, "names version 1"),
        ],
    )
    def test_impossible_options_are_refused(
        self, hung: ViewCatalog, name: str, fields: dict[str, Any], described: str
    ) -> None:
        with pytest.raises(errors.InvalidInputError, match=described):
            hung.refresh(name, **fields)

    def test_missing_objects_are_typed_errors(self, hung: ViewCatalog) -> None:
        for version in (99, 2**70, -(2**70)):
            with pytest.raises(errors.TableVersionNotFoundError):
                hung.refresh("v", src_version=version)
        with pytest.raises(errors.TableNotFoundError, match="does not exist"):
            hung.refresh("nope")
        with pytest.raises(errors.InvalidInputError, match="is a table, not a materialized view"):
            hung.refresh("t")


class TestPlans:
    def test_the_first_refresh_computes_all(self, hung: ViewCatalog) -> None:
        plan: RefreshPlan = hung.refresh("v", dry_run=True)
        assert (plan.mode, plan.rows_to_add, plan.udf_calls) == ("rebuild", 2, 0)
        assert plan.source_versions == {"t": 1}
        assert hung.refresh("joined", dry_run=True).rows_to_add is None
        assert hung.jobs("v") == []

    def test_later_ones_follow_the_changes(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("v", {"source": "t", "columns": ["id"]})
        view_catalog.arrive("v")
        assert view_catalog.refresh("v", dry_run=True).mode == "no_op"
        view_catalog.put("t", view_catalog.open("t").to_table().slice(0, 2), "append")
        view_catalog("DeleteFromTable", "t", predicate="id = 3")
        view_catalog("UpdateTable", "t", updates=[["id", "20"]], predicate="id = 2 AND text = 'c'")
        plan = view_catalog.refresh("v", dry_run=True)
        assert (plan.mode, plan.source_version) == ("incremental", 4)
        assert (plan.rows_to_add, plan.rows_to_update, plan.rows_to_remove) == (2, 1, 1)
        full = view_catalog.refresh("v", dry_run=True, full=True)
        assert (full.mode, full.reason) == ("rebuild", "A full refresh was requested.")

    def test_functions_are_called_for_what_is_computed(self, view_catalog: ViewCatalog) -> None:
        from tests.integration.views.api.test_api_functions import chunk

        chunk(view_catalog)
        assert view_catalog.refresh("v", dry_run=True).udf_calls == 3
        view_catalog.arrive("v")
        view_catalog.put("t", view_catalog.open("t").to_table().slice(0, 1), "append")
        assert view_catalog.refresh("v", dry_run=True).udf_calls == 1

    def test_a_table_that_is_also_read_at_a_version_is_followed(self, view_catalog: ViewCatalog) -> None:
        for number, order in enumerate(["t VERSION AS OF 1 a JOIN t b", "t a JOIN t VERSION AS OF 1 b"]):
            name = f"v{number}"
            view_catalog.create(name, f"SELECT a.id FROM {order} ON a.id = b.id")
            view_catalog.arrive(name)
            assert view_catalog.refresh(name, dry_run=True).mode == "no_op"
            assert view_catalog.describe(name).state == "fresh"
        view_catalog("DeleteFromTable", "t", predicate="id = 3")
        for name in ("v0", "v1"):
            assert view_catalog.refresh(name, dry_run=True).mode == "rebuild"
            assert view_catalog.describe(name).state == "stale"

    def test_others_say_why_they_compute_all(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("v", "SELECT count(*) AS n FROM t")
        view_catalog.arrive("v")
        view_catalog("DeleteFromTable", "t", predicate="id = 3")
        plan = view_catalog.refresh("v", dry_run=True)
        assert plan.mode == "rebuild"
        assert "the aggregate count()" in plan.reason

    def test_a_source_without_stable_row_ids_is_given_as_the_rebuild_reason(self, view_catalog: ViewCatalog) -> None:
        view_catalog.write("plain", pa.table({"id": [1, 2], "n": [3, 4]}), enable_stable_row_ids=False)
        view_catalog.create("v", {"source": "plain", "columns": ["id"]})
        view_catalog.create("fixed", {"source": "plain", "columns": ["id"], "version": 1})
        view_catalog.create("counted", "SELECT count(*) AS n FROM plain")
        described = view_catalog.describe("v")
        assert (described.incremental, described.rebuild_reason) == (
            False,
            "'plain' was created without stable row ids, so a refresh after a change computes the whole view.",
        )
        assert view_catalog.describe("fixed").incremental
        view_catalog.arrive("v")
        view_catalog.arrive("counted")
        view_catalog.open("plain").create_scalar_index("id", "BTREE")
        view_catalog.open("plain").add_columns({"more": "id + 1"})
        assert view_catalog.refresh("v", dry_run=True).mode == "no_op"
        assert view_catalog.describe("v").state == "fresh"
        view_catalog.put("plain", pa.table({"id": [5], "n": [6], "more": [7]}), "append")
        view_catalog.open("plain").optimize.compact_files()
        plan = view_catalog.refresh("v", dry_run=True)
        reason = "'plain' cannot be compared row by row: the table was made without stable row ids."
        assert (plan.mode, plan.reason, plan.rows_to_add) == ("rebuild", reason, 3)
        assert view_catalog.describe("v").state == "stale"
        assert "the aggregate count()" in view_catalog.refresh("counted", dry_run=True).reason


class TestFreshness:
    def test_it_follows_what_happens(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("v", {"source": "t", "columns": ["id"]})
        view = view_catalog.view("v").table_id
        assert view_catalog.describe("v").state == "empty"
        view_catalog.arrive("v")
        fresh = view_catalog.describe("v")
        assert (fresh.state, fresh.reason, fresh.sources[0].version) == ("fresh", None, 1)
        assert fresh.refreshed_at_millis == fresh.refreshed_version == 1
        view_catalog("DeleteFromTable", "t", predicate="id = 3")
        stale = view_catalog.describe("v")
        assert stale.state == "stale"
        assert stale.reason == "'t' is at version 2; the view holds version 1."
        database = view_catalog.ns.services.database
        database.write(lambda connection: views.mark_stale(connection, view, "It broke.", "a job"))
        failed = view_catalog.describe("v")
        assert (failed.state, failed.reason, failed.failed_job) == ("failed", "It broke.", "a job")
        view_catalog.arrive("v")
        assert view_catalog.describe("v").state == "fresh"

    def test_commits_that_change_no_row_leave_it_fresh(self, view_catalog: ViewCatalog) -> None:
        for _ in range(3):
            view_catalog.put("t", view_catalog.open("t").to_table().slice(0, 1), mode="append")
        view_catalog.create("v", {"source": "t", "columns": ["id"]})
        view_catalog.create("strict", {"source": "t", "columns": ["id"]}, on_schema_change="fail")
        view_catalog.arrive("v")
        view_catalog.arrive("strict")
        view_catalog.open("t").create_scalar_index("id", "BTREE")
        view_catalog.open("t").optimize.compact_files()
        assert view_catalog.describe("v").state == "fresh"
        assert view_catalog.describe("v").sources[0].version < view_catalog.latest("t")
        view_catalog.open("t").add_columns({"more": "id + 1"})
        assert view_catalog.describe("strict").state == "stale"

    def test_a_compaction_of_rows_without_stable_ids_is_a_change(self, view_catalog: ViewCatalog) -> None:
        view_catalog.write("plain", pa.table({"id": [1, 2]}), enable_stable_row_ids=False, max_rows_per_file=1)
        view_catalog.create("v", {"source": "plain", "columns": ["id"]})
        view_catalog.arrive("v")
        view_catalog.open("plain").optimize.compact_files()
        assert view_catalog.describe("v").state == "stale"
        assert view_catalog.refresh("v", dry_run=True).mode == "rebuild"

    def test_the_description_of_a_view(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create(
            "shop$v", {"source": "t", "columns": {"n": "id"}, "limit": 3, "offset": 1}, auto_refresh=True
        )
        described = view_catalog.describe("shop$v")
        assert (described.id, described.name, described.namespace) == (["shop", "v"], "v", ["shop"])
        assert (described.kind, described.engine, described.format) == ("query", "lance", 1)
        assert described.query == "SELECT id AS `n` FROM `t` LIMIT 3 OFFSET 1"
        assert described.source_table == "t"
        assert (described.auto_refresh, described.schedule, described.on_schema_change) == (True, None, "ignore_new")
        assert described.version == 1


class TestAltering:
    def test_what_is_sent_changes_and_the_rest_stays(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("v", {"source": "t"}, schedule="0 3 * * *", on_schema_change="fail")
        view_catalog.ns.alter_materialized_view(AlterViewRequest(id=["v"], auto_refresh=True))
        described = view_catalog.describe("v")
        assert (described.auto_refresh, described.schedule, described.on_schema_change) == (True, "0 3 * * *", "fail")
        view_catalog.ns.alter_materialized_view(AlterViewRequest(id=["v"], schedule="", on_schema_change="Rebuild"))
        described = view_catalog.describe("v")
        assert (described.auto_refresh, described.schedule, described.on_schema_change) == (True, None, "rebuild")

    def test_callers_who_change_different_things_at_once_both_do(
        self, view_catalog: ViewCatalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        view_catalog.create("v", {"source": "t"})
        write = view_catalog.ns.services.database.write

        def write_after_another(work: Any) -> Any:
            monkeypatch.undo()
            view_catalog.ns.alter_materialized_view(AlterViewRequest(id=["v"], schedule="0 3 * * *"))
            return write(work)

        monkeypatch.setattr(view_catalog.ns.services.database, "write", write_after_another)
        described = view_catalog.ns.alter_materialized_view(AlterViewRequest(id=["v"], auto_refresh=True))
        assert (described.auto_refresh, described.schedule) == (True, "0 3 * * *")
        assert view_catalog.describe("v").schedule == "0 3 * * *"

    @pytest.mark.parametrize("fields", [{}, {"schedule": "daily"}, {"on_schema_change": "cry"}])
    def test_what_is_wrong_is_refused(self, hung: ViewCatalog, fields: dict[str, Any]) -> None:
        with pytest.raises(errors.InvalidInputError):
            hung.ns.alter_materialized_view(AlterViewRequest(id=["v"], **fields))


class TestListingAndDropping:
    def test_pages_of_names(self, view_catalog: ViewCatalog) -> None:
        for name in "abc":
            view_catalog.create(f"shop${name}", {"source": "t"})
        listed: list[str] = []
        token = None
        while True:
            page = view_catalog.ns.list_materialized_views(ListViewsRequest(id=["shop"], limit=2, page_token=token))
            listed += page.views
            token = page.page_token
            if token is None:
                break
        assert listed == ["a", "b", "c"]
        assert view_catalog.ns.list_materialized_views(ListViewsRequest(id=[])).views == []
        with pytest.raises(errors.NamespaceNotFoundError):
            view_catalog.ns.list_materialized_views(ListViewsRequest(id=["nowhere"]))

    def test_a_view_is_dropped_with_its_table(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("v", {"source": "t"})
        view_catalog.create("w", {"source": "v"})
        with pytest.raises(errors.InvalidTableStateError, match="view 'w'"):
            view_catalog.ns.drop_materialized_view(DropViewRequest(id=["v"]))
        view_catalog.ns.drop_materialized_view(DropViewRequest(id=["v"], cascade=True))
        assert view_catalog("ListTables", "$").tables == ["t"]
        with pytest.raises(errors.TableNotFoundError):
            view_catalog.ns.describe_materialized_view(DescribeViewRequest(id=["v"]))

    def test_a_source_is_not_dropped_while_a_view_of_it_is_being_made(
        self, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        insert = views.insert
        with closing(ViewCatalog(tmp_path, database=postgres_url)) as view_catalog, ThreadPoolExecutor(1) as threads:
            view_catalog.fill()
            waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            drops: list[Future[Any]] = []

            def insert_beside_a_drop(*arguments: Any) -> None:
                insert(*arguments)
                drops.append(threads.submit(view_catalog, "DropTable", "t"))
                wait_until(lambda: drops[-1].done() or view_catalog.ns.services.database.read(lambda c: c.one(waits)))

            monkeypatch.setattr(views, "insert", insert_beside_a_drop)
            view_catalog.create("v", {"source": "t"})
            with pytest.raises(errors.InvalidTableStateError, match="needed by view 'v'"):
                drops[-1].result(60)
            assert view_catalog("ListTables", "$").tables == ["t", "v"]

    def test_a_table_is_not_dropped_as_a_view(self, hung: ViewCatalog) -> None:
        with pytest.raises(errors.InvalidInputError, match="not a materialized view"):
            hung.ns.drop_materialized_view(DropViewRequest(id=["t"]))

    def test_a_view_can_be_made_again_and_is_another_one(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("v", {"source": "t"})
        view_catalog.arrive("v")
        first = view_catalog.view("v").table_id
        view_catalog.ns.drop_materialized_view(DropViewRequest(id=["v"]))
        view_catalog.create("v", {"source": "shop.orders"})
        assert view_catalog.view("v").table_id != first
        assert view_catalog.describe("v").state == "empty"
        assert view_catalog.schema("v").field("price").type == pa.decimal128(10, 2)
