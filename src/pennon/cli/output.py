"""Output of commands: tables for people, JSON and Arrow for programs, colours only on a terminal."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from pennon.core.settings import SettingsError

#: A pipe has no width; this one keeps every row on one line.
_PIPE_WIDTH = 400
#: The length of an id.
_MAX_UNBROKEN_LENGTH = 32


class OutputFormat(enum.StrEnum):
    """The format of a command's output."""

    TABLE = "table"
    JSON = "json"
    ARROW = "arrow"


OutputOption = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]


def console(*, stderr: bool = False) -> Console:
    """Return a console for the current stream: without colours, and wide, if it is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else _PIPE_WIDTH)


def print_result(output: OutputFormat, data: object, *parts: RenderableType) -> None:
    """Print a result: its data as JSON or an Arrow stream, or the parts that people read."""
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    if output is OutputFormat.ARROW:
        write_arrow([_arrow_stream(data if isinstance(data, list) else [data])])
        return
    for part in parts:
        if isinstance(part, str):
            typer.echo(part)
        else:
            console().print(part)


def print_fields(output: OutputFormat, data: object, rows: Iterable[tuple[str, object]], *more: RenderableType) -> None:
    """Print a result as a table of names and values."""
    print_result(output, data, build_table(("Name", "Value"), rows), *more)


def print_list(
    output: OutputFormat, data: Sequence[object], columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str
) -> None:
    """Print a list as a table, or a note if it is empty."""
    if not data and output is OutputFormat.TABLE:
        print_note(empty)
        return
    print_result(output, data, build_table(columns, rows))


def write_arrow(pieces: Iterable[bytes]) -> None:
    """Write an Arrow stream to standard output, which must not be a terminal."""
    if sys.stdout.isatty():
        raise SettingsError("An Arrow stream cannot be shown on a terminal: pipe it, or write it to a file with >.")
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def print_note(text: str) -> None:
    """Print information for people to standard error, so that it does not mix with the result."""
    console(stderr=True).print(escape(text), soft_wrap=True)


def print_error(text: str, hint: str = "") -> None:
    """Print in one line what went wrong, and what to do."""
    sentence = text if not hint or text.endswith((".", "!", "?")) else f"{text}."
    line = f"{sentence} {hint}".rstrip()
    console(stderr=True).print(f"[red]error:[/red] {escape(line)}", soft_wrap=True)


def build_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return rows under their headings; long values wrap and are never cut off."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    texts = [[_text(cell) for cell in row] for row in rows]
    # The first column is often copied, for example an id: in a narrow terminal, the other columns wrap first.
    is_unbroken = all(len(row[0]) <= _MAX_UNBROKEN_LENGTH for row in texts)
    for at, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=is_unbroken and at == 0)
    for row in texts:
        table.add_row(*map(escape, row))
    return table


def format_time(millis: object) -> str | None:
    """Return a time in milliseconds as ISO 8601 in UTC; None for no time."""
    return (
        None
        if not isinstance(millis, int | float)
        else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="seconds")
    )


def _text(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return "" if cell is None else str(cell)


def _arrow_stream(rows: Sequence[object]) -> bytes:
    """Return rows as an Arrow stream; nested values, which may differ from row to row, become JSON."""
    import pyarrow as pa

    flat = [
        {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in row.items()}
        for row in (row if isinstance(row, Mapping) else {"value": row} for row in rows)
    ]
    names = list(dict.fromkeys(name for row in flat for name in row))
    columns: dict[str, list[Any]] = {name: [row.get(name) for row in flat] for name in names}
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()
