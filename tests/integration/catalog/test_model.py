"""Any sequence of changes leaves the catalog as a dictionary would be left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from lance_namespace.errors import LanceNamespaceError

if TYPE_CHECKING:
    from tests.integration.catalog.lakes import Lake

NAMES = ["a", "b", "ü"]
names = st.sampled_from(NAMES)
paths = st.lists(names, min_size=1, max_size=3).map(tuple)
Path = tuple[str, ...]

SETTINGS = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


class CatalogModel(RuleBasedStateMachine):
    """Does the same to a catalog and to two dictionaries."""

    lake: Lake

    @initialize()
    def empty(self) -> None:
        self.namespaces: dict[Path, dict[str, str]] = {(): {}}
        self.tables: dict[Path, dict[str, str]] = {}
        for name in self.lake("ListNamespaces", "$").namespaces:
            self.lake("DropNamespace", name, behavior="cascade")
        for name in self.lake("ListTables", "$").tables:
            self.lake("DropTable", name)

    def ask(self, operation: str, path: Path, **fields: object) -> str:
        """Ask the catalog, and return the name of the error; nothing for a success."""
        try:
            self.lake(operation, "$".join(path) or "$", **fields)
        except LanceNamespaceError as error:
            return type(error).__name__.removesuffix("Error")
        return ""

    def below(self, path: Path) -> tuple[list[Path], list[Path]]:
        inner = [other for other in self.namespaces if other[: len(path)] == path and other != path]
        return inner, [table for table in self.tables if table[: len(path)] == path and len(table) > len(path)]

    def clear(self, path: Path) -> None:
        inner, tables = self.below(path)
        for other in inner:
            del self.namespaces[other]
        for table in tables:
            del self.tables[table]

    @rule(path=paths, mode=st.sampled_from(["create", "exist_ok", "overwrite"]), owner=names)
    def create_namespace(self, path: Path, mode: str, owner: str) -> None:
        outcome = self.ask("CreateNamespace", path, mode=mode, properties={"owner": owner})
        if path[:-1] not in self.namespaces:
            assert outcome == "NamespaceNotFound"
        elif path in self.namespaces and mode == "create":
            assert outcome == "NamespaceAlreadyExists"
        else:
            assert outcome == ""
            if mode == "overwrite":
                self.clear(path)
            if mode == "overwrite" or path not in self.namespaces:
                self.namespaces[path] = {"owner": owner}

    @rule(path=paths, skip=st.booleans(), cascade=st.booleans())
    def drop_namespace(self, path: Path, skip: bool, cascade: bool) -> None:
        mode, behavior = "skip" if skip else "fail", "cascade" if cascade else "restrict"
        outcome = self.ask("DropNamespace", path, mode=mode, behavior=behavior)
        if path not in self.namespaces:
            assert outcome == ("" if skip else "NamespaceNotFound")
        elif any(self.below(path)) and not cascade:
            assert outcome == "NamespaceNotEmpty"
        else:
            assert outcome == ""
            self.clear(path)
            del self.namespaces[path]

    @rule(path=paths, owner=names)
    def declare_table(self, path: Path, owner: str) -> None:
        outcome = self.ask("DeclareTable", path, properties={"owner": owner})
        if path[:-1] not in self.namespaces:
            assert outcome == "NamespaceNotFound"
        elif path in self.tables:
            assert outcome == "TableAlreadyExists"
        else:
            assert outcome == ""
            self.tables[path] = {"owner": owner}

    @rule(path=paths, operation=st.sampled_from(["DropTable", "DeregisterTable"]))
    def remove_table(self, path: Path, operation: str) -> None:
        assert self.ask(operation, path) == self.expected(path)
        self.tables.pop(path, None)

    @rule(path=paths, goal=paths)
    def rename_table(self, path: Path, goal: Path) -> None:
        outcome = self.ask("RenameTable", path, new_table_name=goal[-1], new_namespace_id=list(goal[:-1]))
        if path not in self.tables:
            assert outcome == self.expected(path)
        elif goal in self.tables:
            assert outcome == "TableAlreadyExists"
        elif goal[:-1] not in self.namespaces:
            assert outcome == "NamespaceNotFound"
        else:
            assert outcome == ""
            self.tables[goal] = self.tables.pop(path)

    @rule(path=paths)
    def look(self, path: Path) -> None:
        assert self.ask("TableExists", path) == self.expected(path)
        assert self.ask("NamespaceExists", path) == ("" if path in self.namespaces else "NamespaceNotFound")
        if path in self.tables:
            assert self.lake("DescribeTable", "$".join(path)).properties == self.tables[path]
        if path in self.namespaces:
            assert self.lake("DescribeNamespace", "$".join(path)).properties == self.namespaces[path]

    def expected(self, path: Path) -> str:
        if path in self.tables:
            return ""
        return "TableNotFound" if path[:-1] in self.namespaces else "NamespaceNotFound"

    @invariant()
    def the_listings_tell_all(self) -> None:
        if not hasattr(self, "tables"):
            return
        in_order = sorted(self.tables, key=lambda table: ("\x1f".join(table[:-1]), table[-1]))
        assert self.lake("ListAllTables").tables == ["$".join(table) for table in in_order]
        for path in self.namespaces:
            identifier = "$".join(path) or "$"
            children = sorted(p[-1] for p in self.namespaces if p and p[:-1] == path)
            assert self.lake("ListNamespaces", identifier).namespaces == children
            tables = sorted(t[-1] for t in self.tables if t[:-1] == path)
            assert self.lake("ListTables", identifier).tables == tables


def test_any_sequence_of_changes_is_that_of_a_dictionary(lake: Lake) -> None:
    class Bound(CatalogModel):
        pass

    Bound.lake = lake
    run_state_machine_as_test(Bound, settings=SETTINGS)
