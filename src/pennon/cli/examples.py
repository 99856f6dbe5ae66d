"""Examples in the help of commands; the reference page has them, too, and the tests try whether they are understood."""

from __future__ import annotations

_HEADING = "Examples"


def examples(*lines: str) -> str:
    """Return the end of a command's help: commands that could be typed."""
    return "\n\n".join([_HEADING, *(f"$ {line}" for line in lines)])


def examples_of(epilog: str | None) -> list[str]:
    """Return the commands that the end of a help shows."""
    return [line.removeprefix("$ ") for line in (epilog or "").split("\n\n") if line.startswith("$ ")]
