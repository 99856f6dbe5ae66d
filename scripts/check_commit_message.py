"""Check a commit's message: a subject of at most 72 characters, an empty line, and a body that says why."""

from __future__ import annotations

import sys
from pathlib import Path

MOST_CHARACTERS = 72
#: Subjects that Git writes; their commits are merged into others or have a body of their own.
GENERATED = ("Merge ", "Revert ", "fixup! ", "squash! ")


def find_fault(message: str) -> str | None:
    """Return what is wrong with a message, or None."""
    lines = [line.rstrip() for line in message.splitlines() if not line.startswith("#")]
    subject, body = (lines[0], lines[1:]) if lines else ("", [])
    if subject.startswith(GENERATED):
        return None
    if not subject:
        return "The first line is empty: write what the commit does, as an order (Add, Fix, Remove)."
    if len(subject) > MOST_CHARACTERS:
        return f"The subject has {len(subject)} characters; at most {MOST_CHARACTERS} are shown. Shorten it."
    if subject.endswith("."):
        return "The subject ends with a full stop; leave it out."
    if not any(body):
        return "There is no body: say below an empty line why the change is needed."
    if body[0]:
        return "The second line has to be empty, or Git takes it for a part of the subject."
    return None


def main() -> None:
    """Check the file that the only argument names."""
    fault = find_fault(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if fault:
        raise SystemExit(fault)


if __name__ == "__main__":
    main()
