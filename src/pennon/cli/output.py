"""What commands say: tables for people, JSON for scripts, and colours only where someone looks."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

#: A pipe has no width of its own; this one keeps every row on its line.
_PIPE_WIDTH = 400


class Form(enum.StrEnum):
    """In which form a command answers."""

    TABLE = "table"
    JSON = "json"


FormOption = Annotated[Form, typer.Option("--output", "-o", help="Form of the answer.")]


def console(*, stderr: bool = False) -> Console:
    """Return the console of the moment: without colours, and wide, when it is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else _PIPE_WIDTH)


def show(form: Form, data: object, *shown: RenderableType) -> None:
    """Print an answer: its data as JSON, or what people are shown of it."""
    if form is Form.JSON:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
        return
    for part in shown:
        if isinstance(part, str):
            typer.echo(part)
        else:
            console().print(part)


def note(text: str) -> None:
    """Tell people something beside the answer: on standard error, so that scripts do not meet it."""
    console(stderr=True).print(escape(text), soft_wrap=True)


def complain(text: str) -> None:
    """Say in one line what went wrong."""
    console(stderr=True).print(f"[red]error:[/red] {escape(text)}", soft_wrap=True)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Lay rows out under their headings; nothing is cut off."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else escape(str(cell)) for cell in row))
    return table


def time_text(millis: int | None) -> str | None:
    """Return a time as ISO 8601 in UTC."""
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="seconds")
