"""The steps of the demo: each is printed as it is written here, then run, then its result is printed."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from itertools import takewhile
from typing import TypeVar

import lance
import lance_namespace as ln
import lancedb
import pyarrow as pa
from rich.console import Console, RenderableType
from rich.syntax import Syntax

import pennon
from pennon.cli.output import build_table, format_time
from pennon.client import Connection
from pennon.core.settings import SettingsError

T = TypeVar("T")


def create_teas(db: lancedb.DBConnection) -> RenderableType:
    """LanceDB creates a namespace and a table; the server assigns the location, LanceDB writes the data there."""
    db.create_namespace(["shop"], properties={"owner": "demo"})
    teas = [
        {"name": "Assam", "origin": "India", "vector": [0.9, 0.1]},
        {"name": "Sencha", "origin": "Japan", "vector": [0.1, 0.9]},
        {"name": "Oolong", "origin": "Taiwan", "vector": [0.5, 0.5]},
    ]
    table = db.create_table("teas", teas, namespace_path=["shop"])
    return build_table(("name", "origin"), ((row["name"], row["origin"]) for row in table.to_arrow().to_pylist()))


def change_teas(db: lancedb.DBConnection) -> RenderableType:
    """Every change is a new version, and the server decides which writer commits it."""
    table = db.open_table("teas", namespace_path=["shop"])
    table.add([{"name": "Pu-erh", "origin": "China", "vector": [0.8, 0.3]}])
    table.delete("name = 'Oolong'")
    nearest = table.search([1.0, 0.2]).limit(2).to_list()
    return build_table(("nearest to [1.0, 0.2]", "distance"), ((r["name"], f"{r['_distance']:.2f}") for r in nearest))


def create_orders(ns: ln.LanceNamespace) -> RenderableType:
    """Pylance writes another table through the same server, and tags a version."""
    first = pa.table({"tea": ["Assam", "Sencha"], "grams": [100, 250]})
    lance.write_dataset(first, namespace_client=ns, table_id=["shop", "orders"], mode="create")
    more = pa.table({"tea": ["Assam"], "grams": [500]})
    orders = lance.write_dataset(more, namespace_client=ns, table_id=["shop", "orders"], mode="append")
    orders.tags.create("opening-day", 1)
    return build_table(("tag", "version"), ((name, tag["version"]) for name, tag in orders.tags.list().items()))


def branch_orders(ns: ln.LanceNamespace) -> RenderableType:
    """Writes to a branch do not change main; the server commits them, too."""
    orders = lance.dataset(namespace_client=ns, table_id=["shop", "orders"])
    trial = orders.create_branch("what-if")
    trial.insert(pa.table({"tea": ["Matcha"], "grams": [1000]}))
    return build_table(("branch", "rows"), [("main", orders.count_rows()), ("what-if", trial.count_rows())])


def list_all(ns: ln.LanceNamespace) -> RenderableType:
    """The catalog lists namespaces and tables."""
    namespaces = ns.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces
    tables = {name: ns.list_tables(ln.ListTablesRequest(id=[name])).tables for name in namespaces}
    return build_table(("namespace", "tables"), ((name, ", ".join(found)) for name, found in tables.items()))


def list_versions(ns: ln.LanceNamespace) -> RenderableType:
    """It lists every version of a table."""
    versions = ns.list_table_versions(ln.ListTableVersionsRequest(id=["shop", "teas"], descending=True)).versions
    return build_table(("version", "committed"), ((v.version, format_time(v.timestamp_millis)) for v in versions))


def describe_teas(ns: ln.LanceNamespace) -> RenderableType:
    """It describes a table without opening it in the client."""
    teas = ns.describe_table(ln.DescribeTableRequest(id=["shop", "teas"], load_detailed_metadata=True))
    return build_table(("column", "type"), _columns(teas))


def create_reviews(remote: lancedb.DBConnection) -> RenderableType:
    """LanceDB's remote client creates a third table by sending rows; one review is empty."""
    texts = ["malty and strong", "sweet, lovely, sweet", "fresh and lovely", "", "dull"]
    reviews = remote.create_table("reviews", [{"id": at, "text": text} for at, text in enumerate(texts)])
    return build_table(("table", "rows"), [("shop$reviews", reviews.count_rows())])


def declare_joy(shop: Connection) -> RenderableType:
    """A UDF defines a feature column; a dry run shows what a backfill would compute."""

    @pennon.udf(error_policy=pennon.ErrorPolicy.skip())
    def joy(text: str) -> float:
        words = text.replace(",", "").split()
        return sum(word in ("fresh", "lovely", "sweet") for word in words) / len(words)

    reviews = shop.open_table("reviews")
    reviews.add_columns({"joy": joy})
    plan = reviews.backfill("joy", dry_run=True)
    return build_table(("rows", "fragments", "calls"), [(plan.rows, plan.fragments, plan.udf_calls)])


def backfill_joy(shop: Connection) -> RenderableType:
    """A backfill computes the column as a job: the worker runs the UDF on Spark and commits the values."""
    reviews = shop.open_table("reviews")
    reviews.backfill("joy")
    rows = reviews.search().select(["id", "text", "joy"]).to_list()
    return build_table(("id", "text", "joy"), ((row["id"], row["text"], _score(row["joy"])) for row in rows))


def show_joy_state(shop: Connection) -> RenderableType:
    """The server knows for every row whether it was computed, and if not, why."""
    reviews = shop.open_table("reviews")
    state = reviews.column_state("joy")
    errors = reviews.errors("joy").to_pylist()
    why = "; ".join(f"row {error['row_offset']}: {error['error_type']}" for error in errors)
    return build_table(("computed", "failed", "missing", "why"), [(state.computed, state.failed, state.missing, why)])


def append_reviews(shop: Connection) -> RenderableType:
    """After an append, a backfill computes only the new rows."""
    reviews = shop.open_table("reviews")
    reviews.add([{"id": 5, "text": "sweet"}, {"id": 6, "text": "fresh, but weak"}])
    job = reviews.backfill("joy")
    return _counters(job)


def update_review(shop: Connection) -> RenderableType:
    """After an update, it computes the changed row."""
    reviews = shop.open_table("reviews")
    reviews.update(where="id = 3", values={"text": "sweet at last"})
    job = reviews.backfill("joy")
    return _counters(job)


def list_jobs(shop: Connection) -> RenderableType:
    """All jobs are recorded."""
    jobs = shop.jobs(table="reviews")
    return build_table(("job", "column", "state"), ((job.id, job.target, job.state) for job in jobs))


def show_catalog(url: str, out: Console) -> None:
    """Show the catalog with the published clients."""
    db, ns = lancedb.connect_namespace("rest", {"uri": url}), ln.connect("rest", {"uri": url})
    show("import lance\nimport lance_namespace as ln\nimport lancedb\nimport pyarrow as pa\n", out)
    show(f'db = lancedb.connect_namespace("rest", {{"uri": "{url}"}})', out)
    show(f'ns = ln.connect("rest", {{"uri": "{url}"}})', out)
    if "shop" in ns.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces:
        raise SettingsError("The folder already has a namespace 'shop'; choose another folder.")
    run_steps(out, db, create_teas, change_teas)
    run_steps(out, ns, create_orders, branch_orders, list_all, list_versions, describe_teas)


def show_features(url: str, out: Console) -> None:
    """Show a feature column, on a server with a worker."""
    remote = lancedb.connect("db://shop", api_key="any", host_override=url)
    shop = pennon.connect(url, database="shop")
    out.print()
    show("import pennon\n", out)
    show(f'remote = lancedb.connect("db://shop", api_key="any", host_override="{url}")', out)
    show(f'shop = pennon.connect("{url}", database="shop")', out)
    run_steps(out, remote, create_reviews)
    run_steps(out, shop, declare_joy, backfill_joy, show_joy_state, append_reviews, update_review, list_jobs)


def run_steps(out: Console, client: T, *steps: Callable[[T], RenderableType]) -> None:
    """Print the description and the code of each step, run it, and print its result."""
    for step in steps:
        out.print(f"\n[bold]{step.__doc__}[/bold]")
        show(_body(step), out)
        out.print(step(client))


def show(code: str, out: Console) -> None:
    """Print code."""
    out.print(Syntax(code, "python", theme="ansi_dark", background_color="default"))


def _body(step: Callable[[T], RenderableType]) -> str:
    """Return the source code of a step without its return statement, which formats the result."""
    lines = takewhile(lambda line: not line.startswith("    return "), inspect.getsource(step).splitlines()[2:])
    return textwrap.dedent("\n".join(lines)).strip("\n")


def _columns(table: ln.DescribeTableResponse) -> list[tuple[str, str]]:
    return [(field.name, field.type.type) for field in table.var_schema.fields] if table.var_schema else []


def _score(value: float | None) -> str:
    return "null" if value is None else f"{value:.2f}"


def _counters(job: pennon.Job) -> RenderableType:
    counters = job.counters
    numbers = [f"{counters.get(name, 0):.0f}" for name in ("rows_computed", "rows_skipped", "rows_failed")]
    return build_table(("computed", "skipped", "failed"), [numbers])
