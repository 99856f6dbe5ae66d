"""Namespaces: creating, listing, describing and dropping them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
)

if TYPE_CHECKING:
    from tests.integration.catalog.lakes import Lake

OWNER = {"owner": "ada"}


class TestCreating:
    def test_a_new_namespace_is_listed_described_and_exists(self, lake: Lake) -> None:
        answer = lake("CreateNamespace", "a", properties=OWNER)
        assert answer.properties == OWNER
        assert answer.transaction_id
        assert lake("ListNamespaces", "$").namespaces == ["a"]
        assert lake("DescribeNamespace", "a").properties == OWNER
        lake("NamespaceExists", "a")

    def test_one_without_properties_has_none(self, lake: Lake) -> None:
        lake("CreateNamespace", "a")
        assert lake("DescribeNamespace", "a").properties == {}

    def test_properties_may_hold_any_text(self, lake: Lake) -> None:
        properties = {"quote'\"": "tab\t nul\0 ümläut 😀", "": ""}
        lake("CreateNamespace", "a", properties=properties)
        assert lake("DescribeNamespace", "a").properties == properties

    def test_they_nest_six_deep_and_deeper(self, lake: Lake) -> None:
        path = []
        for name in "abcdef":
            path.append(name)
            lake("CreateNamespace", "$".join(path))
        assert lake("ListNamespaces", "a$b$c$d$e").namespaces == ["f"]
        assert lake("ListNamespaces", "a$b$c$d$e$f").namespaces == []
        lake("DeclareTable", "a$b$c$d$e$f$table")
        assert lake("ListTables", "a$b$c$d$e$f").tables == ["table"]

    def test_the_parent_must_exist(self, lake: Lake) -> None:
        with pytest.raises(NamespaceNotFoundError, match="'a'"):
            lake("CreateNamespace", "a$b")
        with pytest.raises(NamespaceNotFoundError, match="'a'"):
            lake("CreateNamespace", "a$b", mode="exist_ok")
        with pytest.raises(NamespaceNotFoundError, match="'a'"):
            lake("CreateNamespace", "a$b", mode="overwrite")
        assert lake("ListNamespaces", "$").namespaces == []

    def test_creating_one_that_exists_is_refused(self, lake: Lake) -> None:
        lake("CreateNamespace", "a", properties=OWNER)
        for mode in (None, "create", "CREATE", "Create"):
            with pytest.raises(NamespaceAlreadyExistsError, match="'a'"):
                lake("CreateNamespace", "a", mode=mode)
        assert lake("DescribeNamespace", "a").properties == OWNER

    def test_exist_ok_keeps_what_there_is(self, lake: Lake) -> None:
        lake("CreateNamespace", "a", properties=OWNER)
        lake("CreateNamespace", "a$b")
        for mode in ("exist_ok", "ExistOk", "EXIST_OK", "existok"):
            answer = lake("CreateNamespace", "a", mode=mode, properties={"owner": "other"})
            assert answer.properties == OWNER
            assert answer.transaction_id
        assert lake("DescribeNamespace", "a").properties == OWNER
        assert lake("ListNamespaces", "a").namespaces == ["b"]

    @pytest.mark.parametrize("mode", ["exist_ok", "overwrite"])
    def test_every_mode_creates_what_is_missing(self, lake: Lake, mode: str) -> None:
        assert lake("CreateNamespace", "a", mode=mode, properties=OWNER).properties == OWNER
        assert lake("DescribeNamespace", "a").properties == OWNER

    @pytest.mark.parametrize("mode", ["overwrite", "OVERWRITE"])
    def test_overwrite_replaces_it_by_an_empty_one(self, lake: Lake, mode: str) -> None:
        for name in ("a", "a$b", "a$b$c", "other"):
            lake("CreateNamespace", name, properties=OWNER)
        lake.write("a$b$c$deep")
        lake.write("a$table")
        lake.write("other$table")
        folders = [lake.folder("a$b$c$deep"), lake.folder("a$table")]
        lake("CreateNamespace", "a", mode=mode, properties={"new": "one"})
        assert lake("DescribeNamespace", "a").properties == {"new": "one"}
        assert lake("ListNamespaces", "a").namespaces == []
        assert lake("ListTables", "a").tables == []
        assert not any(folder.exists() for folder in folders)
        assert lake.latest("other$table") == 1

    def test_an_unknown_mode_is_refused_by_its_name(self, lake: Lake) -> None:
        with pytest.raises(InvalidInputError, match=r"'sometimes'.*exist_ok"):
            lake("CreateNamespace", "a", mode="sometimes")
        assert lake("ListNamespaces", "$").namespaces == []

    def test_the_root_is_always_there(self, lake: Lake) -> None:
        for mode in ("create", "overwrite"):
            with pytest.raises(NamespaceAlreadyExistsError):
                lake("CreateNamespace", "$", mode=mode)
        assert lake("CreateNamespace", "$", mode="exist_ok").properties == {}
        lake("NamespaceExists", "$")
        assert lake("DescribeNamespace", "$").properties == {}

    def test_overwriting_the_root_empties_nothing(self, lake: Lake) -> None:
        lake("CreateNamespace", "a")
        lake("DeclareTable", "t")
        with pytest.raises(NamespaceAlreadyExistsError):
            lake("CreateNamespace", "$", mode="overwrite")
        assert lake("ListAllTables").tables == ["t"]
        assert lake("ListNamespaces", "$").namespaces == ["a"]

    def test_a_request_without_an_object_is_refused(self, lake: Lake) -> None:
        for operation in ("CreateNamespace", "DropNamespace"):
            with pytest.raises(InvalidInputError, match="'id' is missing"):
                lake(operation)

    def test_a_namespace_and_a_table_may_share_a_name(self, lake: Lake) -> None:
        lake("CreateNamespace", "a")
        lake("DeclareTable", "a")
        lake("DropTable", "a")
        lake("NamespaceExists", "a")


class TestReading:
    @pytest.mark.parametrize("operation", ["ListNamespaces", "ListTables", "DescribeNamespace", "NamespaceExists"])
    def test_a_missing_namespace_is_said_to_be_missing(self, lake: Lake, operation: str) -> None:
        with pytest.raises(NamespaceNotFoundError, match="'nope'"):
            lake(operation, "nope")
        lake("CreateNamespace", "a")
        with pytest.raises(NamespaceNotFoundError, match=r"'a\$nope'"):
            lake(operation, "a$nope")

    @pytest.mark.parametrize("below", ["DescribeTable", "DeclareTable", "CreateNamespace"])
    @pytest.mark.parametrize("operation", ["ListNamespaces", "ListTables", "DescribeNamespace", "DropNamespace"])
    def test_the_error_suggests_a_similar_name(self, lake: Lake, operation: str, below: str) -> None:
        lake("CreateNamespace", "shop")
        lake("CreateNamespace", "shop$archive")
        for given, meant in (("shpo", "shop"), ("shop$archiv", "archive")):
            with pytest.raises(NamespaceNotFoundError, match=rf"Did you mean '{meant}'\?"):
                lake(operation, given)
            with pytest.raises(NamespaceNotFoundError, match=rf"Did you mean '{meant}'\?"):
                lake(below, f"{given}$t")

    @pytest.mark.parametrize("operation", ["ListNamespaces", "ListTables", "DescribeNamespace", "NamespaceExists"])
    def test_without_an_id_the_root_is_meant(self, lake: Lake, operation: str) -> None:
        lake(operation)

    def test_names_come_in_the_order_of_their_characters(self, lake: Lake) -> None:
        names = ["b", "B", "a", "ä", "a b", "a-b", "a.b", "é", "Z", "_", "10", "9", "😀", "日本"]
        for name in names:
            lake("CreateNamespace", name)
        assert lake("ListNamespaces", "$").namespaces == sorted(names)

    def test_a_name_that_begins_like_another_is_not_below_it(self, lake: Lake) -> None:
        for name in ("a", "a b", "a!", "aa", "a\U0010ffff"):
            lake("CreateNamespace", name)
            lake("CreateNamespace", f"{name}$child")
        assert lake("ListNamespaces", "a").namespaces == ["child"]
        lake("DropNamespace", "a", behavior="cascade")
        assert lake("ListNamespaces", "$").namespaces == sorted(["a b", "a!", "aa", "a\U0010ffff"])


class TestDropping:
    def test_dropping_a_missing_one_fails(self, lake: Lake) -> None:
        for mode in (None, "fail", "FAIL", "Fail"):
            with pytest.raises(NamespaceNotFoundError):
                lake("DropNamespace", "nope", mode=mode)

    def test_skip_ignores_a_missing_namespace(self, lake: Lake) -> None:
        for mode in ("skip", "Skip", "SKIP"):
            for behavior in (None, "restrict", "cascade"):
                answer = lake("DropNamespace", "nope", mode=mode, behavior=behavior)
                assert len(answer.transaction_id) == 1

    @pytest.mark.parametrize("mode", ["fail", "skip"])
    def test_an_empty_one_goes_and_its_properties_are_answered(self, lake: Lake, mode: str) -> None:
        lake("CreateNamespace", "a", properties=OWNER)
        answer = lake("DropNamespace", "a", mode=mode)
        assert answer.properties == OWNER
        assert len(answer.transaction_id) == 1
        with pytest.raises(NamespaceNotFoundError):
            lake("NamespaceExists", "a")

    @pytest.mark.parametrize("content", ["CreateNamespace", "DeclareTable"])
    def test_restrict_keeps_one_that_holds_anything(self, lake: Lake, content: str) -> None:
        lake("CreateNamespace", "a")
        lake(content, "a$b")
        before = lake.state()
        for behavior in (None, "restrict", "Restrict"):
            with pytest.raises(NamespaceNotEmptyError, match="'a' is not empty"):
                lake("DropNamespace", "a", behavior=behavior)
        assert lake.state() == before

    def test_cascade_drops_everything_below_the_namespace_and_nothing_else(self, lake: Lake) -> None:
        for name in ("a", "a$b", "a$b$c", "b", "ab"):
            lake("CreateNamespace", name)
        for name in ("a$t", "a$b$t", "a$b$c$t", "b$t", "ab$t", "t"):
            lake.write(name)
        gone = [lake.folder(name) for name in ("a$t", "a$b$t", "a$b$c$t")]
        lake("DropNamespace", "a", behavior="Cascade")
        assert lake("ListNamespaces", "$").namespaces == ["ab", "b"]
        assert lake("ListAllTables").tables == ["t", "ab$t", "b$t"]
        assert not any(folder.exists() for folder in gone)
        assert [lake.open(name).count_rows() for name in ("t", "ab$t", "b$t")] == [2, 2, 2]

    def test_a_clone_is_dropped_with_its_source_even_if_its_server_had_a_slow_clock(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake("CreateNamespace", "a")
        lake.write("a$t")
        monkeypatch.setattr("pennon.namespace.new_tables.new_id", lambda: "0" * 32)
        lake.ns.clones.clone_table(("a", "c"), str(lake.folder("a$t")), None, None, shallow=True)
        lake("DropNamespace", "a", behavior="cascade")
        assert lake("ListNamespaces", "$").namespaces == []

    def test_what_was_dropped_can_be_made_again_and_is_empty(self, lake: Lake) -> None:
        lake("CreateNamespace", "a", properties=OWNER)
        lake.write("a$t")
        lake("DropNamespace", "a", behavior="cascade")
        lake("CreateNamespace", "a")
        assert lake("DescribeNamespace", "a").properties == {}
        assert lake("ListTables", "a").tables == []

    def test_the_root_stays(self, lake: Lake) -> None:
        lake("DeclareTable", "t")
        for mode in ("fail", "skip"):
            for behavior in ("restrict", "cascade"):
                with pytest.raises(InvalidInputError, match="root namespace cannot be dropped"):
                    lake("DropNamespace", "$", mode=mode, behavior=behavior)
        assert lake("ListAllTables").tables == ["t"]

    def test_an_unknown_choice_is_refused(self, lake: Lake) -> None:
        lake("CreateNamespace", "a")
        for field, choice in (("mode", "maybe"), ("behavior", "explode"), ("mode", "")):
            with pytest.raises(InvalidInputError, match=field):
                lake("DropNamespace", "a", **{field: choice})
        lake("NamespaceExists", "a")
