"""Listings: pages that neither skip nor repeat, whatever happens in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import pytest
from lance_namespace.errors import InvalidInputError

from tests.integration.catalog.lakes import rows

if TYPE_CHECKING:
    from tests.integration.catalog.conftest import OpenLake
    from tests.integration.catalog.lakes import Lake

#: Each listing: the operation, the object, and the field of its answer.
LISTINGS = {
    "namespaces": ("ListNamespaces", "home", "namespaces"),
    "tables": ("ListTables", "home", "tables"),
    "all": ("ListAllTables", None, "tables"),
    "versions": ("ListTableVersions", "home$c", "versions"),
}


@pytest.fixture
def full(lake: Lake) -> Lake:
    """A lake where every listing has five items, c to g."""
    lake("CreateNamespace", "home")
    for name in "cdefg":
        lake("CreateNamespace", f"home${name}")
        lake("DeclareTable", f"home${name}")
    for _ in range(5):
        lake.write("home$c", mode="append")
    return lake


def page(lake: Lake, listing: str, **fields: Any) -> tuple[list[Any], str | None]:
    operation, identifier, field = LISTINGS[listing]
    answer = lake(operation, identifier, **fields)
    items = getattr(answer, field)
    return [getattr(item, "version", item) for item in items], answer.page_token


def whole(lake: Lake, listing: str, limit: int, **fields: Any) -> list[Any]:
    items, token = page(lake, listing, limit=limit, **fields)
    while token:
        more, token = page(lake, listing, limit=limit, page_token=token, **fields)
        assert more, "a token led to an empty page"
        items += more
    return items


@pytest.mark.parametrize("listing", LISTINGS)
class TestPages:
    def test_pages_of_every_size_make_up_the_whole(self, full: Lake, listing: str) -> None:
        everything, token = page(full, listing)
        assert len(everything) == 5
        assert token is None
        for limit in (1, 2, 3, 4, 5, 6, 1000):
            assert whole(full, listing, limit) == everything

    def test_the_last_page_has_no_token_also_when_it_is_full(self, full: Lake, listing: str) -> None:
        assert page(full, listing, limit=5)[1] is None
        first, token = page(full, listing, limit=4)
        assert len(first) == 4
        last, none = page(full, listing, limit=1, page_token=token)
        assert len(last) == 1
        assert none is None

    def test_a_limit_of_0_is_an_empty_page(self, full: Lake, listing: str) -> None:
        assert page(full, listing, limit=0) == ([], None)

    def test_a_negative_limit_is_refused(self, full: Lake, listing: str) -> None:
        with pytest.raises(InvalidInputError, match="limit is -1"):
            page(full, listing, limit=-1)

    def test_an_enormous_limit_is_no_more_than_the_largest_page(self, full: Lake, listing: str) -> None:
        assert len(page(full, listing, limit=10**30)[0]) == 5

    def test_an_empty_token_is_the_first_page(self, full: Lake, listing: str) -> None:
        assert len(page(full, listing, page_token="")[0]) == 5

    def test_a_token_of_no_listing_is_refused(self, full: Lake, listing: str) -> None:
        for token in ("x", "c", "e30", "W10", "ümläut", "nul\0", "A" * 10_000):
            with pytest.raises(InvalidInputError, match="page token"):
                page(full, listing, page_token=token)

    def test_a_token_of_another_listing_is_refused(self, full: Lake, listing: str) -> None:
        for other in LISTINGS.keys() - {listing}:
            with pytest.raises(InvalidInputError, match="another listing"):
                page(full, listing, page_token=page(full, other, limit=1)[1])


class TestChangesInBetween:
    @pytest.mark.parametrize("listing", ["namespaces", "tables", "all"])
    def test_what_is_there_all_the_time_is_listed_exactly_once(self, full: Lake, listing: str) -> None:
        make, drop = ("CreateNamespace", "DropNamespace") if listing == "namespaces" else ("DeclareTable", "DropTable")

        def listed(names: str) -> list[str]:
            return [f"home${name}" if listing == "all" else name for name in names.split()]

        seen, token = page(full, listing, limit=2)
        assert seen == listed("c d")
        full(drop, "home$d")  # the one the token stands on
        full(make, "home$a")  # before it
        full(make, "home$dd")  # right behind it
        full(drop, "home$f")
        more, token = page(full, listing, limit=2, page_token=token)
        assert more == listed("dd e")
        full(make, "home$z")
        last, token = page(full, listing, limit=2, page_token=token)
        assert last == listed("g z")
        assert token is None

    def test_new_versions_neither_shift_nor_repeat_a_page(self, full: Lake) -> None:
        newest, token = page(full, "versions", limit=2, descending=True)
        assert newest == [5, 4]
        full.write("home$c", mode="append")
        assert page(full, "versions", limit=9, descending=True, page_token=token)[0] == [3, 2, 1]

    def test_a_token_for_one_direction_is_not_one_for_the_other(self, full: Lake) -> None:
        token = page(full, "versions", limit=2, descending=True)[1]
        with pytest.raises(InvalidInputError, match="another listing"):
            page(full, "versions", limit=2, page_token=token)

    def test_the_newest_version_alone_has_a_token_only_if_there_are_more(self, full: Lake) -> None:
        assert whole(full, "versions", 1, descending=True) == [5, 4, 3, 2, 1]
        full("BatchDeleteTableVersions", "home$c", ranges=[{"start_version": 1, "end_version": 5}])
        assert page(full, "versions", limit=1, descending=True) == ([5], None)
        full.open("home$c").create_branch("dev", 5)
        assert page(full, "versions", limit=1, descending=True, branch="dev") == ([5], None)


class TestTables:
    def test_only_the_tables_directly_in_a_namespace_are_listed(self, lake: Lake) -> None:
        for name in ("a", "a$b", "ab"):
            lake("CreateNamespace", name)
        for name in ("t", "a$one", "a$b$two", "ab$three"):
            lake("DeclareTable", name)
        listed = {name: lake("ListTables", name).tables for name in ("$", "a", "a$b", "ab")}
        assert listed == {"$": ["t"], "a": ["one"], "a$b": ["two"], "ab": ["three"]}

    def test_declared_tables_are_left_out_when_asked(self, lake: Lake) -> None:
        lake("CreateNamespace", "a")
        for name in ("declared", "a$declared"):
            lake("DeclareTable", name)
        for name in ("written", "a$written"):
            lake.write(name)
        for include in (None, True):
            assert lake("ListTables", "a", include_declared=include).tables == ["declared", "written"]
            assert len(lake("ListAllTables", include_declared=include).tables) == 4
        assert lake("ListTables", "a", include_declared=False).tables == ["written"]
        assert lake("ListAllTables", include_declared=False).tables == ["written", "a$written"]

    def test_pages_without_declared_tables_are_full(self, lake: Lake) -> None:
        lake("CreateNamespace", "home")
        for number in range(6):
            lake("DeclareTable", f"home$declared{number}")
        for number in range(3):
            lake.write(f"home$written{number}")
        expected = [f"written{number}" for number in range(3)]
        assert page(lake, "tables", limit=2, include_declared=False)[0] == expected[:2]
        assert whole(lake, "tables", 2, include_declared=False) == expected

    def test_all_tables_are_listed_across_namespaces_in_order(self, lake: Lake) -> None:
        for name in ("a", "a$b", "a b", "b", "\U0010ffff"):
            lake("CreateNamespace", name)
        names = ["t", "z", "a$t", "a$z", "a$b$t", "a b$t", "b$t", "\U0010ffff$t"]
        for name in reversed(names):
            lake("DeclareTable", name)
        assert lake("ListAllTables").tables == names
        for limit in (1, 2, 3):
            assert whole(lake, "all", limit) == names

    def test_all_tables_can_be_written_with_another_delimiter(self, lake: Lake) -> None:
        import lance_namespace as ln

        lake("CreateNamespace", "a")
        lake("DeclareTable", "a$t")
        assert lake.ns.list_all_tables(ln.ListTablesRequest(), "::").tables == ["a::t"]
        lake("DeclareTable", "a$with.dot")
        with pytest.raises(InvalidInputError, match="choose another"):
            lake.ns.list_all_tables(ln.ListTablesRequest(), ".")

    def test_a_page_is_never_larger_than_the_settings_allow(self, open_lake: OpenLake) -> None:
        lake = open_lake(page_limit=2)
        for name in "abc":
            lake("DeclareTable", name)
        answer = lake("ListTables", "$", limit=100)
        assert (answer.tables, answer.page_token is None) == (["a", "b"], False)
        assert whole(lake, "all", 100) == ["a", "b", "c"]

    def test_a_reserved_table_that_others_have_written_is_no_longer_only_declared(self, lake: Lake) -> None:
        lake("CreateEmptyTable", "t")
        lance.write_dataset(rows(), lake.folder("t"))
        assert lake("DescribeTable", "t", check_declared=True).is_only_declared is False
        assert lake("ListTables", "$", include_declared=False).tables == ["t"]
