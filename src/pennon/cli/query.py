"""``pennon query``: rows of a table, filtered, nearest to a vector, or with words in them."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from lance_namespace.errors import InvalidInputError

from pennon.cli.names import parse_table, table_route
from pennon.cli.output import Form, FormOption, note, show, table_of, write_arrow
from pennon.cli.servers import BranchOption, TableArgument, with_server

if TYPE_CHECKING:
    from pennon.client.transport import Transport

Distance = Literal["l2", "cosine", "dot", "hamming"]

_SHOWN_ITEMS = 4
_SHOWN_CHARACTERS = 100


@with_server
def query(
    server: Transport,
    table: TableArgument,
    where: Annotated[str | None, typer.Option("--where", "-w", help="SQL condition that rows must meet.")] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", metavar="NAME,…", help="Columns to answer.", show_default="all")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Most rows to answer; 0 for all.")] = 20,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Rows to leave out before.")] = 0,
    vector: Annotated[
        str | None,
        typer.Option("--vector", metavar="NUMBERS", help="Answer what is nearest to 0.1,0.2,… or to @FILE (JSON)."),
    ] = None,
    vector_column: Annotated[
        str | None, typer.Option("--vector-column", metavar="NAME", help="Column to search, if there are several.")
    ] = None,
    distance: Annotated[Distance | None, typer.Option("--distance", help="How to measure what is near.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Words to search for in a full-text index.")] = None,
    text_columns: Annotated[
        str | None, typer.Option("--text-columns", metavar="NAME,…", help="Columns to search for them.")
    ] = None,
    version: Annotated[int | None, typer.Option("--version", min=1, help="The version to read.")] = None,
    branch: BranchOption = None,
    with_row_id: Annotated[bool, typer.Option("--with-row-id", help="Also answer the ids of rows.")] = False,
    count: Annotated[bool, typer.Option("--count", help="Only count the rows that meet --where.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Answer rows of a table: those that meet a condition, are nearest to a vector, or have words in them.

    With --output arrow, rows are written to standard output as an Arrow stream, as they come.
    """
    route = parse_table(table)
    place = {"version": version, "branch": branch}
    if count:
        _count(server, table_route(route, "count_rows"), {"predicate": where, **place}, output)
        return
    body = {
        "filter": where,
        "columns": _names(columns),
        "k": limit or None,
        "offset": offset or None,
        "vector": None if vector is None else parse_vector(vector),
        "vector_column": vector_column,
        "distance_type": distance,
        "full_text_query": _words(text, text_columns),
        "with_row_id": with_row_id or None,
        **place,
    }
    # LanceDB's client ends its routes with a slash, and is answered by a stream, which can be passed on as it comes.
    _answer(server.stream_bytes(table_route(route, "query/"), _said(body)), output)


def parse_vector(text: str) -> list[float]:
    """Return a vector: numbers with commas between them, in brackets or not, or from a file."""
    content = text
    if text.startswith("@"):
        try:
            content = Path(text[1:]).read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidInputError(f"--vector names the file {text[1:]!r}: {error.strerror}.") from None
    try:
        numbers = json.loads(content if content.lstrip().startswith("[") else f"[{content}]")
        vector = [float(number) for number in numbers]
    except (ValueError, TypeError):
        vector = [math.nan]
    if not all(map(math.isfinite, vector)):
        raise InvalidInputError("--vector is numbers with commas between them: 0.1,0.2 or @FILE.")
    return vector


def _answer(pieces: Iterator[bytes], output: Form) -> None:
    if output is Form.ARROW:
        write_arrow(pieces)
        return
    import pyarrow as pa

    rows: pa.Table = pa.ipc.open_stream(io.BytesIO(b"".join(pieces))).read_all()
    if not rows.num_rows and output is Form.TABLE:
        note("No row meets that.")
        return
    found = [{name: _plain(value) for name, value in row.items()} for row in rows.to_pylist()]
    shown = ([_cell(value) for value in row.values()] for row in found)
    show(output, found, table_of(rows.column_names, shown))


def _count(server: Transport, route: str, body: dict[str, Any], output: Form) -> None:
    rows = int(server.fetch(route, _said(body)))
    show(output, {"rows": rows}, f"{rows}")


def _words(text: str | None, columns: str | None) -> dict[str, Any] | None:
    if text is None:
        if columns is not None:
            raise InvalidInputError("--text-columns says where to search; --text says for what.")
        return None
    return {"string_query": _said({"query": text, "columns": _names(columns)})}


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _cell(value: Any) -> str:
    """Return a value for people: a vector by its beginning, a text without its end."""
    if isinstance(value, list) and len(value) > _SHOWN_ITEMS:
        return f"[{', '.join(map(_cell, value[:_SHOWN_ITEMS]))}, … {len(value)} in all]"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return f"[{', '.join('null' if item is None else _cell(item) for item in value)}]"
    if isinstance(value, bool | dict):
        value = json.dumps(value, ensure_ascii=False)
    text = "" if value is None else str(value).replace("\n", " ")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _said(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}
