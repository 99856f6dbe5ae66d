"""``pennon query``: rows of a table, filtered, nearest to a vector, or with words in them."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from lance_namespace.errors import InvalidInputError

from pennon.cli.names import parse_table, table_route
from pennon.cli.output import OutputFormat, OutputOption, build_table, print_note, print_result, write_arrow
from pennon.cli.servers import BranchOption, TableArgument, with_server, without_none

if TYPE_CHECKING:
    from pennon.client.transport import Transport

Distance = Literal["l2", "cosine", "dot", "hamming"]

_SHOWN_ITEMS = 4
_SHOWN_CHARACTERS = 100


@with_server
def query(
    server: Transport,
    table: TableArgument,
    where: Annotated[str | None, typer.Option("--where", "-w", help="SQL filter.")] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", metavar="NAME,…", help="Columns to return.", show_default="all")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Most rows to return; 0 for all.")] = 20,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Rows to skip.")] = 0,
    vector: Annotated[
        str | None,
        typer.Option(
            "--vector",
            metavar="NUMBERS",
            help="Vector search: return the rows nearest to 0.1,0.2,… or to @FILE (JSON).",
        ),
    ] = None,
    vector_column: Annotated[
        str | None,
        typer.Option("--vector-column", metavar="NAME", help="Vector column to search, if there are several."),
    ] = None,
    distance: Annotated[Distance | None, typer.Option("--distance", help="Distance metric of a vector search.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Full-text search: words to search for.")] = None,
    text_columns: Annotated[
        str | None, typer.Option("--text-columns", metavar="NAME,…", help="Columns to search with --text.")
    ] = None,
    version: Annotated[int | None, typer.Option("--version", min=1, help="Version to read.")] = None,
    branch: BranchOption = None,
    with_row_id: Annotated[bool, typer.Option("--with-row-id", help="Also return row ids.")] = False,
    count: Annotated[bool, typer.Option("--count", help="Only count the rows that match --where.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Query a table: filter rows, search for the nearest vectors, or search text.

    With --output arrow, rows are streamed to standard output in Arrow's IPC format.
    """
    identifier = parse_table(table)
    at = {"version": version, "branch": branch}
    if count:
        body = without_none({"predicate": where, **at})
        rows = int(server.read_bytes(table_route(identifier, "count_rows"), body))
        print_result(output, {"rows": rows}, f"{rows}")
        return
    body = {
        "filter": where,
        "columns": _names(columns),
        "k": limit or None,
        "offset": offset or None,
        "vector": None if vector is None else parse_vector(vector),
        "vector_column": vector_column,
        "distance_type": distance,
        "full_text_query": _full_text_query(text, text_columns),
        "with_row_id": with_row_id or None,
        **at,
    }
    # With a trailing slash, as LanceDB's client sends it, the response is an Arrow stream and can be passed on.
    _print_rows(server.stream_bytes(table_route(identifier, "query/"), without_none(body)), output)


def parse_vector(text: str) -> list[float]:
    """Parse a vector: comma-separated numbers, with or without brackets, or @FILE."""
    content = text
    if text.startswith("@"):
        try:
            content = Path(text[1:]).read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidInputError(f"Cannot read the file {text[1:]!r} of --vector: {error.strerror}.") from None
    try:
        numbers = json.loads(content if content.lstrip().startswith("[") else f"[{content}]")
        vector = [float(number) for number in numbers]
    except (ValueError, TypeError):
        vector = [math.nan]
    if not all(map(math.isfinite, vector)):
        raise InvalidInputError("Invalid --vector: use comma-separated numbers, such as 0.1,0.2, or @FILE.")
    return vector


def _print_rows(pieces: Iterator[bytes], output: OutputFormat) -> None:
    if output is OutputFormat.ARROW:
        write_arrow(pieces)
        return
    import pyarrow as pa

    rows: pa.Table = pa.ipc.open_stream(io.BytesIO(b"".join(pieces))).read_all()
    if not rows.num_rows and output is OutputFormat.TABLE:
        print_note("No rows found.")
        return
    found = [{name: _plain(value) for name, value in row.items()} for row in rows.to_pylist()]
    shown = ([_cell(value) for value in row.values()] for row in found)
    print_result(output, found, build_table(rows.column_names, shown))


def _full_text_query(text: str | None, columns: str | None) -> dict[str, object] | None:
    if text is None:
        if columns is not None:
            raise InvalidInputError("--text-columns needs --text, the words to search for.")
        return None
    return {"string_query": without_none({"query": text, "columns": _names(columns)})}


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _plain(value: object) -> object:
    """Return a value as JSON can represent it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _cell(value: object) -> str:
    """Return a value for a table, with long vectors and texts truncated."""
    if isinstance(value, list) and len(value) > _SHOWN_ITEMS:
        return f"[{', '.join(map(_cell, value[:_SHOWN_ITEMS]))}, … {len(value)} values]"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return f"[{', '.join('null' if item is None else _cell(item) for item in value)}]"
    if isinstance(value, bool | dict):
        value = json.dumps(value, ensure_ascii=False)
    text = "" if value is None else str(value).replace("\n", " ")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
