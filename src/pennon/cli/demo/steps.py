"""The steps of the demo: each is shown as it is written here, then run, then its result is shown."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

import lance
import lance_namespace as ln
import lancedb
import pyarrow as pa
from rich.console import Console, RenderableType
from rich.syntax import Syntax

import pennon
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


def make_reviews(remote: Any) -> RenderableType:
    """LanceDB's client for servers writes a third table, by sending rows; one review has no words."""
    texts = ["malty and strong", "sweet, lovely, sweet", "fresh and lovely", "", "dull"]
    reviews = remote.create_table("reviews", [{"id": at, "text": text} for at, text in enumerate(texts)])
    return table_of(("table", "rows"), [("shop$reviews", reviews.count_rows())])


def declare_joy(shop: Any) -> RenderableType:
    """A feature column is a Python function: it is stored with the table, and a dry run tells what it would take."""

    @pennon.udf(error_policy=pennon.ErrorPolicy.skip())
    def joy(text: str) -> float:
        words = text.replace(",", "").split()
        return sum(word in ("fresh", "lovely", "sweet") for word in words) / len(words)

    reviews = shop.open_table("reviews")
    reviews.add_columns({"joy": joy})
    plan = reviews.backfill("joy", dry_run=True)
    return table_of(("rows", "fragments", "calls"), [(plan.rows, plan.fragments, plan.udf_calls)])


def fill_joy(shop: Any) -> RenderableType:
    """A backfill is a job: a worker has Spark call the function, and commits the values. Spark starts meanwhile."""
    reviews = shop.open_table("reviews")
    reviews.backfill("joy")
    rows = reviews.search().select(["id", "text", "joy"]).to_list()
    return table_of(("id", "text", "joy"), ((row["id"], row["text"], _score(row["joy"])) for row in rows))


def look_at_joy(shop: Any) -> RenderableType:
    """Of every row it is known whether it was computed, and why not."""
    reviews = shop.open_table("reviews")
    state = reviews.column_state("joy")
    errors = reviews.errors("joy").to_pylist()
    why = "; ".join(f"row {error['row_offset']}: {error['error_type']}" for error in errors)
    return table_of(("computed", "failed", "missing", "why"), [(state.computed, state.failed, state.missing, why)])


def append_reviews(shop: Any) -> RenderableType:
    """Rows that are added are computed alone; the others keep what they have."""
    reviews = shop.open_table("reviews")
    reviews.add([{"id": 5, "text": "sweet"}, {"id": 6, "text": "fresh, but weak"}])
    job = reviews.backfill("joy")
    return _told_by(job)


def mend_review(shop: Any) -> RenderableType:
    """And so is the failed row, once there is something to compute."""
    reviews = shop.open_table("reviews")
    reviews.update(where="id = 3", values={"text": "sweet at last"})
    job = reviews.backfill("joy")
    return _told_by(job)


def list_jobs(shop: Any) -> RenderableType:
    """What was done is on record."""
    jobs = shop.jobs(table="reviews")
    return table_of(("job", "column", "state"), ((job.id, job.target, job.state) for job in jobs))


def walk_through(url: str, out: Console) -> None:
    """Connect the published clients to a server and take them through the catalog."""
    db, ns = lancedb.connect_namespace("rest", {"uri": url}), ln.connect("rest", {"uri": url})
    show("import lance\nimport lance_namespace as ln\nimport lancedb\nimport pyarrow as pa\n", out)
    show(f'db = lancedb.connect_namespace("rest", {{"uri": "{url}"}})', out)
    show(f'ns = ln.connect("rest", {{"uri": "{url}"}})', out)
    if "shop" in ns.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces:
        raise SettingsError("That folder already holds a namespace 'shop'; choose another folder.")
    take_all([(make_teas, db), (change_teas, db), (make_orders, ns), (branch_orders, ns)], out)
    take_all([(list_all, ns), (list_versions, ns), (describe_teas, ns)], out)


def walk_through_features(url: str, out: Console) -> None:
    """Have a column computed by a function, on a server with a worker."""
    remote = lancedb.connect("db://shop", api_key="any", host_override=url)
    shop = pennon.connect(url, database="shop")
    out.print()
    show("import pennon\n", out)
    show(f'remote = lancedb.connect("db://shop", api_key="any", host_override="{url}")', out)
    show(f'shop = pennon.connect("{url}", database="shop")', out)
    take_all([(make_reviews, remote), (declare_joy, shop), (fill_joy, shop), (look_at_joy, shop)], out)
    take_all([(append_reviews, shop), (mend_review, shop), (list_jobs, shop)], out)


def take_all(steps: Sequence[tuple[Step, Any]], out: Console) -> None:
    """Of each step, show what it is about and its code, run it, and show its result."""
    for step, client in steps:
        out.print(f"\n[bold]{step.__doc__}[/bold]")
        show(_body(step), out)
        out.print(step(client))


def show(code: str, out: Console) -> None:
    """Show a line of code."""
    out.print(Syntax(code, "python", theme="ansi_dark", background_color="default"))


def _body(step: Step) -> str:
    """Return the lines of a step as they are written, without how its result is laid out."""
    lines = takewhile(lambda line: not line.startswith("    return "), inspect.getsource(step).splitlines()[2:])
    return textwrap.dedent("\n".join(lines)).strip("\n")


def _score(value: float | None) -> str:
    return "null" if value is None else f"{value:.2f}"


def _told_by(job: pennon.Job) -> RenderableType:
    counted = job.counters
    numbers = [f"{counted.get(name, 0):.0f}" for name in ("rows_computed", "rows_skipped", "rows_failed")]
    return table_of(("computed", "skipped", "failed"), [numbers])
