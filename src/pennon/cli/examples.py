"""Examples in the help of commands, which the reference page repeats and the tests parse."""

from __future__ import annotations

_HEADING = "Examples"


def examples(*lines: str) -> str:
    """Return the epilog of a command's help: example command lines."""
    return "\n\n".join([_HEADING, *(f"$ {line}" for line in lines)])


def examples_of(epilog: str | None) -> list[str]:
    """Return the example command lines of an epilog."""
    return [line.removeprefix("$ ") for line in (epilog or "").split("\n\n") if line.startswith("$ ")]
