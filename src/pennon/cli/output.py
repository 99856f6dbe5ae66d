"""What commands say: tables for people, JSON and Arrow for programs, and colours only where someone looks."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from pennon.core.settings import SettingsError

#: A pipe has no width of its own; this one keeps every row on its line.
_PIPE_WIDTH = 400
#: The length of an id.
_UNBROKEN = 32


class Form(enum.StrEnum):
    """In which form a command answers."""

    TABLE = "table"
    JSON = "json"
    ARROW = "arrow"


FormOption = Annotated[Form, typer.Option("--output", "-o", help="Form of the answer.")]


def console(*, stderr: bool = False) -> Console:
    """Return the console of the moment: without colours, and wide, when it is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else _PIPE_WIDTH)


def show(form: Form, data: object, *shown: RenderableType) -> None:
    """Print an answer: its data as JSON or an Arrow stream, or what people are shown of it."""
    if form is Form.JSON:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    if form is Form.ARROW:
        write_arrow([_arrow_stream(data if isinstance(data, list) else [data])])
        return
    for part in shown:
        if isinstance(part, str):
            typer.echo(part)
        else:
            console().print(part)


def write_arrow(pieces: Iterable[bytes]) -> None:
    """Write the pieces of an Arrow stream to standard output, which must not be a terminal."""
    if sys.stdout.isatty():
        raise SettingsError("An Arrow stream is of no use on a terminal: pipe it on, or write it to a file with >.")
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _arrow_stream(rows: Sequence[Any]) -> bytes:
    """Return rows as an Arrow stream; what is nested in them, and may differ from row to row, is JSON."""
    import pyarrow as pa

    plain = [row if isinstance(row, dict) else {"value": row} for row in rows]
    nested = (dict, list)
    flat = [
        {name: json.dumps(value) if isinstance(value, nested) else value for name, value in row.items()}
        for row in plain
    ]
    names = list(dict.fromkeys(name for row in flat for name in row))
    table = pa.table({name: pa.array([row.get(name) for row in flat]) for name in names})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def note(text: str) -> None:
    """Tell people something beside the answer: on standard error, so that scripts do not meet it."""
    console(stderr=True).print(escape(text), soft_wrap=True)


def complain(text: str, advice: str = "") -> None:
    """Say in one line what went wrong, and what to do."""
    sentence = text if not advice or text.endswith((".", "!", "?")) else f"{text}."
    said = f"{sentence} {advice}".rstrip()
    console(stderr=True).print(f"[red]error:[/red] {escape(said)}", soft_wrap=True)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Lay rows out under their headings; nothing is cut off."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    texts = [[_text(cell) for cell in row] for row in rows]
    # What stands first is often copied, such as an id: where there is little room, other columns are broken.
    whole = all(len(row[0]) <= _UNBROKEN for row in texts)
    for at, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=whole and at == 0)
    for row in texts:
        table.add_row(*map(escape, row))
    return table


def _text(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return "" if cell is None else str(cell)


def time_text(millis: int | None) -> str | None:
    """Return a time as ISO 8601 in UTC."""
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="seconds")
