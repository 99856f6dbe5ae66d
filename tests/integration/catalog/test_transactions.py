"""Transactions: every change leaves one, which tells who asked for it and can be altered by rule."""

from __future__ import annotations

from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    TransactionNotFoundError,
)

from pennon.catalog import transactions
from pennon.core.caller import Caller, Grant, Principal, Role, set_caller
from pennon.core.clock import now_millis
from tests.integration.catalog.lakes import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.catalog.conftest import OpenLake
    from tests.integration.catalog.lakes import Lake

STATUSES = ["Queued", "Running", "Succeeded", "Failed", "Canceled"]
LEGAL = {
    ("Queued", "Running"),
    ("Queued", "Failed"),
    ("Queued", "Canceled"),
    ("Running", "Succeeded"),
    ("Running", "Failed"),
    ("Running", "Canceled"),
} | {(status, status) for status in STATUSES}


def as_caller(caller: Caller, work: Callable[[], Any]) -> Any:
    def run() -> Any:
        set_caller(caller)
        return work()

    return copy_context().run(run)


def make(lake: Lake, status: str = "Queued", **properties: str) -> str:
    return lake.ns.services.database.write(lambda c: transactions.insert(c, "Test", ("t",), properties, status))


def set_status(status: str) -> dict[str, Any]:
    return {"set_status_action": {"status": status}}


def set_property(key: str | None, value: str | None, mode: str | None = None) -> dict[str, Any]:
    return {"set_property_action": {"key": key, "value": value, "mode": mode}}


def unset(key: str | None, mode: str | None = None) -> dict[str, Any]:
    return {"unset_property_action": {"key": key, "mode": mode}}


class TestRecords:
    def test_every_change_leaves_one_that_can_be_described(self, lake: Lake) -> None:
        lance.write_dataset(rows(), lake.root / "place")
        made: dict[str, str] = {
            "CreateNamespace": lake("CreateNamespace", "a").transaction_id,
            "DeclareTable": lake("DeclareTable", "a$t").transaction_id,
        }
        lake.write("w")
        lake.write("w", mode="append")
        made["CreateTableVersion"] = lake.commit("w", lake.stage("w")).transaction_id
        made["BatchDeleteTableVersions"] = lake(
            "BatchDeleteTableVersions", "w", ranges=[{"start_version": 1, "end_version": 2}]
        ).transaction_id
        staged = lake.stage("w")
        made["BatchCreateTableVersions"] = lake(
            "BatchCreateTableVersions", entries=[{"id": ["w"], **staged.request}]
        ).transaction_id
        made["BatchCommitTables"] = lake(
            "BatchCommitTables", operations=[{"declare_table": {"id": ["b"]}}]
        ).transaction_id
        made["RegisterTable"] = lake("RegisterTable", "r", location="place").transaction_id
        made["RenameTable"] = lake("RenameTable", "r", new_table_name="s").transaction_id
        made["DeregisterTable"] = lake("DeregisterTable", "s").transaction_id
        made["DropTable"] = lake("DropTable", "w").transaction_id
        (made["DropNamespace"],) = lake("DropNamespace", "a", behavior="cascade").transaction_id
        for operation, identifier in made.items():
            described = lake("DescribeTransaction", identifier)
            assert described.status == "Succeeded"
            assert described.properties["operation"] == operation
            assert described.properties["principal"] == "anonymous"
        assert lake("DescribeTransaction", made["DeclareTable"]).properties["object"] == "a$t"
        assert len(set(made.values())) == len(made)

    def test_it_has_the_caller_and_the_context(self, lake: Lake) -> None:
        principal = Principal("ada", (Grant(Role.ADMIN),))
        caller = Caller(principal, "request-7", {"trace": "x", "nul": "\0"})
        answer = as_caller(caller, lambda: lake("DeclareTable", "t"))
        properties = lake("DescribeTransaction", answer.transaction_id).properties
        assert properties["principal"] == "ada"
        assert properties["request_id"] == "request-7"
        assert (properties["context.trace"], properties["context.nul"]) == ("x", "\0")

    def test_what_was_refused_leaves_none(self, lake: Lake) -> None:
        def count() -> Any:
            return lake.ns.services.database.read(lambda c: c.one("SELECT count(*) FROM transactions"))

        before = count()
        for work in (
            partial(lake, "DropTable", "nope"),
            partial(lake, "DeclareTable", "nope$t"),
            partial(lake, "DropNamespace", "nope"),
            partial(lake, "CreateNamespace", "$"),
        ):
            with pytest.raises(Exception, match="exist"):
                work()
        assert count() == before

    def test_an_unknown_one_is_said_to_be_missing(self, lake: Lake) -> None:
        for identifier in ("nope", "x" * 5000, "ümläut", "' OR 1=1 --", "nul\0", "0" * 32):
            with pytest.raises(TransactionNotFoundError):
                lake("DescribeTransaction", identifier)
            with pytest.raises(TransactionNotFoundError):
                lake("AlterTransaction", identifier, actions=[set_property("a", "b")])

    def test_it_is_named_by_one_id(self, lake: Lake) -> None:
        for wrong in (None, [], ["a", "b"]):
            self.refuse(lake, wrong)

    @staticmethod
    def refuse(lake: Lake, wrong: list[str] | None) -> None:
        with pytest.raises(InvalidInputError, match="exactly one part"):
            lake.ns.describe_transaction({} if wrong is None else {"id": wrong})  # type: ignore[arg-type]

    def test_old_ones_are_forgotten_and_new_ones_are_not(self, open_lake: OpenLake) -> None:
        lake = open_lake(transaction_retention_days=1.0)
        old, new = make(lake), make(lake)
        yesterday = now_millis() - 25 * 60 * 60 * 1000
        lake.ns.services.database.write(
            lambda c: c.run("UPDATE transactions SET created_at = ? WHERE id = ?", yesterday, old)
        )
        lake.ns.maintain()
        with pytest.raises(TransactionNotFoundError):
            lake("DescribeTransaction", old)
        lake("DescribeTransaction", new)


class TestAltering:
    def test_only_legal_transitions_are_made(self, lake: Lake) -> None:
        for before in STATUSES:
            for after in STATUSES:
                identifier = make(lake, before)
                if (before, after) in LEGAL:
                    answer = lake("AlterTransaction", identifier, actions=[set_status(after)])
                    assert answer.status == after
                else:
                    with pytest.raises(InvalidTableStateError, match=f"{before} cannot become {after}"):
                        lake("AlterTransaction", identifier, actions=[set_status(after)])
                expected = after if (before, after) in LEGAL else before
                assert lake("DescribeTransaction", identifier).status == expected

    def test_a_change_that_happened_cannot_be_canceled(self, lake: Lake) -> None:
        identifier = lake("DeclareTable", "t").transaction_id
        with pytest.raises(InvalidTableStateError):
            lake("AlterTransaction", identifier, actions=[set_status("Canceled")])
        assert lake("DescribeTransaction", identifier).status == "Succeeded"

    def test_a_status_may_be_spelled_in_any_case(self, lake: Lake) -> None:
        for spelling in ("running", "RUNNING", "Running"):
            assert lake("AlterTransaction", make(lake), actions=[set_status(spelling)]).status == "Running"

    def test_properties_are_set_and_unset(self, lake: Lake) -> None:
        identifier = make(lake, a="1", b="2")
        actions = [set_property("a", "9"), set_property("c", "3", "Overwrite"), unset("b"), unset("nope")]
        answer = lake("AlterTransaction", identifier, actions=actions)
        assert answer.properties == {"a": "9", "c": "3"}
        assert lake("DescribeTransaction", identifier).properties == {"a": "9", "c": "3"}

    def test_modes_decide_about_what_is_there_already(self, lake: Lake) -> None:
        identifier = make(lake, a="1")
        assert lake("AlterTransaction", identifier, actions=[set_property("a", "2", "Skip")]).properties == {"a": "1"}
        with pytest.raises(InvalidTableStateError, match="already has"):
            lake("AlterTransaction", identifier, actions=[set_property("a", "2", "fail")])
        with pytest.raises(InvalidTableStateError, match="no property"):
            lake("AlterTransaction", identifier, actions=[unset("b", "FAIL")])
        assert lake("AlterTransaction", identifier, actions=[unset("b", "skip")]).properties == {"a": "1"}

    def test_one_bad_action_leaves_all_undone(self, lake: Lake) -> None:
        wrong: list[dict[str, Any]] = [
            set_status("Succeeded"),
            set_status("Sleeping"),
            {"set_status_action": {}},
            set_property(None, "x"),
            set_property("x", None),
            set_property("x", "y", "sometimes"),
            set_property("old", "y", "fail"),
            unset(None),
            unset("new", "fail"),
            unset("old", "sometimes"),
            {},
            {**set_status("Running"), **unset("old")},
        ]
        for bad in wrong:
            identifier = make(lake, old="1")
            good = [set_property("other", "1"), unset("old", "skip")]
            for actions in ([*good[:1], bad], [bad, *good]):
                with pytest.raises((InvalidInputError, InvalidTableStateError)):
                    lake("AlterTransaction", identifier, actions=actions)
                described = lake("DescribeTransaction", identifier)
                assert (described.status, described.properties) == ("Queued", {"old": "1"})

    def test_a_request_without_actions_is_refused(self, lake: Lake) -> None:
        with pytest.raises(InvalidInputError, match="actions"):
            lake.ns.alter_transaction({"id": [make(lake)], "actions": []})  # type: ignore[arg-type]


class TestVisibility:
    def test_a_confined_key_sees_only_transactions_of_its_namespace(self, lake: Lake) -> None:
        for name in ("a", "b"):
            lake("CreateNamespace", name)
        confined = Caller(Principal("ada", (Grant(Role.WRITER, ("a",)),)))
        own = [
            lake("DeclareTable", "a$t").transaction_id,
            lake("CreateNamespace", "a$inner").transaction_id,
            lake("BatchCommitTables", operations=[{"declare_table": {"id": ["a", "u"]}}]).transaction_id,
        ]
        foreign = [
            lake("DeclareTable", "b$t").transaction_id,
            lake("DeclareTable", "a").transaction_id,
            lake("CreateNamespace", "c").transaction_id,
            lake(
                "BatchCommitTables",
                operations=[{"declare_table": {"id": ["a", "v"]}}, {"declare_table": {"id": ["b", "v"]}}],
            ).transaction_id,
        ]
        for identifier in own:
            described = as_caller(confined, partial(lake, "DescribeTransaction", identifier))
            assert described.status == "Succeeded"
        for identifier in foreign:
            with pytest.raises(TransactionNotFoundError):
                as_caller(confined, partial(lake, "DescribeTransaction", identifier))
            with pytest.raises(TransactionNotFoundError):
                as_caller(confined, partial(lake, "AlterTransaction", identifier, actions=[unset("x")]))
