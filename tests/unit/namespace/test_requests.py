"""What the operations share: choices in any spelling, and requests that merely look like requests."""

from __future__ import annotations

from typing import Any

import pytest
from lance_namespace import DescribeTableRequest
from lance_namespace.errors import InvalidInputError, PermissionDeniedError

from pennon.core.caller import Caller, Grant, Principal, Role, current_caller, set_caller
from pennon.core.identifiers import common_namespace
from pennon.namespace.requests import namespace_id, object_id, parse_choice, request_as, require_unscoped, table_id

CHOICES = ("create", "exist_ok", "overwrite")


class TestChoices:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (None, "create"),
            ("create", "create"),
            ("Create", "create"),
            ("exist_ok", "exist_ok"),
            ("ExistOk", "exist_ok"),
            ("EXIST_OK", "exist_ok"),
            ("existok", "exist_ok"),
            ("OVERWRITE", "overwrite"),
        ],
    )
    def test_a_choice_may_be_spelled_in_several_ways(self, value: str | None, expected: str) -> None:
        assert parse_choice("mode", value, CHOICES) == expected

    @pytest.mark.parametrize("value", ["", "_", "creat", "exist-ok", "exist ok", "create,overwrite", "ü", "\0"])
    def test_anything_else_is_refused_with_the_choices(self, value: str) -> None:
        with pytest.raises(InvalidInputError, match=r"mode is .*create, exist_ok, overwrite"):
            parse_choice("mode", value, CHOICES)


class TestRequests:
    def test_a_map_and_what_can_be_dumped_are_requests(self) -> None:
        class Lookalike:
            def model_dump(self) -> dict[str, Any]:
                return {"id": ["t"], "version": 3}

        expected = DescribeTableRequest(id=["t"], version=3)
        assert request_as(DescribeTableRequest, {"id": ["t"], "version": 3}) == expected
        assert request_as(DescribeTableRequest, Lookalike()) == expected
        assert request_as(DescribeTableRequest, expected) is expected

    def test_a_wrong_field_is_named_and_its_value_is_not_repeated(self) -> None:
        with pytest.raises(InvalidInputError, match="'version'") as caught:
            request_as(DescribeTableRequest, {"id": ["t"], "version": "hush"})
        assert "hush" not in str(caught.value)

    def test_ids_are_checked_wherever_they_are_used(self) -> None:
        for read in (object_id, namespace_id, table_id):
            with pytest.raises(InvalidInputError):
                read(DescribeTableRequest(id=["a/b"]))
        assert namespace_id(DescribeTableRequest()) == ()
        with pytest.raises(InvalidInputError):
            table_id(DescribeTableRequest(id=[]))


class TestCallers:
    def test_roles_are_the_strongest_of_all_grants(self) -> None:
        principal = Principal("ada", (Grant(Role.READER), Grant(Role.ADMIN, ("a",)), Grant(Role.WRITER, ("a", "b"))))
        assert principal.role_on(()) == Role.READER
        assert principal.role_on(("b",)) == Role.READER
        assert principal.role_on(("a", "b", "c")) == Role.ADMIN

    def test_objects_without_a_grant_are_hidden_except_ancestors(self) -> None:
        principal = Principal("ada", (Grant(Role.ADMIN, ("a", "b")),))
        assert principal.role_on(("a",)) is None
        assert [principal.may_traverse(path) for path in [(), ("a",), ("a", "b"), ("a", "b", "c")]] == [True] * 4
        assert [principal.may_traverse(path) for path in [("b",), ("a", "c"), ("ab",)]] == [False] * 3

    @pytest.mark.parametrize(
        ("grant", "free"),
        [
            (Grant(Role.ADMIN), True),
            (Grant(Role.WRITER), True),
            (Grant(Role.READER), False),
            (Grant(Role.ADMIN, ("a",)), False),
        ],
    )
    def test_only_who_is_not_confined_may_name_locations(self, grant: Grant, free: bool) -> None:
        before = current_caller()
        set_caller(Caller(Principal("ada", (grant,))))
        try:
            if free:
                require_unscoped()
            else:
                with pytest.raises(PermissionDeniedError):
                    require_unscoped()
        finally:
            set_caller(before)


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([("t",)], ()),
        ([("a", "t")], ("a",)),
        ([("a", "b", "t"), ("a", "c", "t")], ("a",)),
        ([("a", "b", "t"), ("a", "b", "c", "t")], ("a", "b")),
        ([("ab", "t"), ("ac", "t")], ()),
        ([("a", "t"), ("a",)], ()),
        ([("a", "b", "t"), ("a", "b")], ("a",)),
    ],
)
def test_the_namespace_that_tables_share_holds_them_all(
    tables: list[tuple[str, ...]], expected: tuple[str, ...]
) -> None:
    assert common_namespace(tables) == expected
