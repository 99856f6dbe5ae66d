"""The steps of the demo: each is shown as it is written here, then run, then its result is shown."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import lance
import lance_namespace as ln
import lancedb
import pyarrow as pa
from rich.console import Console, RenderableType
from rich.syntax import Syntax

from pennon.cli.output import table_of, time_text
from pennon.core.settings import SettingsError

Step = Callable[[Any], RenderableType]


def make_teas(db: Any) -> RenderableType:
    """LanceDB makes a namespace and a table in it; the server names its place, LanceDB writes there."""
    db.create_namespace(["shop"], properties={"owner": "demo"})
    teas = [
        {"name": "Assam", "origin": "India", "vector": [0.9, 0.1]},
        {"name": "Sencha", "origin": "Japan", "vector": [0.1, 0.9]},
        {"name": "Oolong", "origin": "Taiwan", "vector": [0.5, 0.5]},
    ]
    table = db.create_table("teas", teas, namespace_path=["shop"])
    return table_of(("name", "origin"), ((row["name"], row["origin"]) for row in table.to_arrow().to_pylist()))


def change_teas(db: Any) -> RenderableType:
    """Every change is a version, and the server decides which writer makes it."""
    table = db.open_table("teas", namespace_path=["shop"])
    table.add([{"name": "Pu-erh", "origin": "China", "vector": [0.8, 0.3]}])
    table.delete("name = 'Oolong'")
    nearest = table.search([1.0, 0.2]).limit(2).to_list()
    return table_of(("nearest to [1.0, 0.2]", "distance"), ((r["name"], f"{r['_distance']:.2f}") for r in nearest))


def make_orders(ns: Any) -> RenderableType:
    """Pylance writes another table through the same server, and tags a version of it."""
    first = pa.table({"tea": ["Assam", "Sencha"], "grams": [100, 250]})
    lance.write_dataset(first, namespace_client=ns, table_id=["shop", "orders"], mode="create")
    more = pa.table({"tea": ["Assam"], "grams": [500]})
    orders = lance.write_dataset(more, namespace_client=ns, table_id=["shop", "orders"], mode="append")
    orders.tags.create("opening-day", 1)
    return table_of(("tag", "version"), ((name, tag["version"]) for name, tag in orders.tags.list().items()))


def branch_orders(ns: Any) -> RenderableType:
    """A branch takes writes that main does not see; the server commits those, too."""
    orders = lance.dataset(namespace_client=ns, table_id=["shop", "orders"])
    trial = orders.create_branch("what-if")
    trial.insert(pa.table({"tea": ["Matcha"], "grams": [1000]}))
    return table_of(("branch", "rows"), [("main", orders.count_rows()), ("what-if", trial.count_rows())])


def list_all(ns: Any) -> RenderableType:
    """The catalog knows what is there."""
    namespaces = ns.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces
    tables = {name: ns.list_tables(ln.ListTablesRequest(id=[name])).tables for name in namespaces}
    return table_of(("namespace", "tables"), ((name, ", ".join(found)) for name, found in tables.items()))


def list_versions(ns: Any) -> RenderableType:
    """It knows every version of a table."""
    versions = ns.list_table_versions(ln.ListTableVersionsRequest(id=["shop", "teas"], descending=True)).versions
    return table_of(("version", "committed"), ((v.version, time_text(v.timestamp_millis)) for v in versions))


def describe_teas(ns: Any) -> RenderableType:
    """And it describes a table without the client opening it."""
    teas = ns.describe_table(ln.DescribeTableRequest(id=["shop", "teas"], load_detailed_metadata=True))
    return table_of(("column", "type"), ((field.name, field.type.type) for field in teas.var_schema.fields))


def walk_through(url: str, out: Console) -> None:
    """Connect the clients to a server and take every step."""
    db, ns = lancedb.connect_namespace("rest", {"uri": url}), ln.connect("rest", {"uri": url})
    out.print(Syntax(f'db = lancedb.connect_namespace("rest", {{"uri": "{url}"}})', "python", theme="ansi_dark"))
    out.print(Syntax(f'ns = lance_namespace.connect("rest", {{"uri": "{url}"}})', "python", theme="ansi_dark"))
    if "shop" in ns.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces:
        raise SettingsError("That folder already holds a namespace 'shop'; choose another folder.")
    steps: tuple[tuple[Step, Any], ...] = (
        (make_teas, db),
        (change_teas, db),
        (make_orders, ns),
        (branch_orders, ns),
        (list_all, ns),
        (list_versions, ns),
        (describe_teas, ns),
    )
    for step, client in steps:
        _take(step, client, out)


def _take(step: Step, client: Any, out: Console) -> None:
    """Show what a step is about and its code, run it, and show its result."""
    out.print(f"\n[bold]{step.__doc__}[/bold]")
    out.print(Syntax(_body(step), "python", theme="ansi_dark", background_color="default"))
    out.print(step(client))


def _body(step: Step) -> str:
    """Return the lines of a step as they are written, without how its result is laid out."""
    lines = inspect.getsource(step).splitlines()[2:]
    return textwrap.dedent("\n".join(line for line in lines if "return table_of" not in line))
