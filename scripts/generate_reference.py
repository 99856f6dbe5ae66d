"""Write the tables of the reference pages from what they describe.

``python -m scripts.generate_reference`` rewrites them; with ``--check`` it only says which pages are out of date, and
the tests do the same. What stands outside the marked parts of a page is written by hand.
"""

from __future__ import annotations

import enum
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from lance_namespace import errors as published
from lance_namespace.errors import ErrorCode, LanceNamespaceError

from pennon.cli.examples import examples_of
from pennon.cli.exit_codes import ExitCode
from pennon.cli.main import app
from pennon.cli.options import flag_name
from pennon.core.errors import STATUS_BY_CODE, advice_for
from pennon.core.settings import ENV_PREFIX, Settings
from pennon.server.operations.table import OPERATIONS, UNSUPPORTED
from pennon.tables.query.sql_functions import FUNCTIONS, Kind

_BOUNDS = {
    Kind.BOUNDED: "its arguments",
    Kind.JOINS: "its arguments together: at most 64 of them in an expression",
    Kind.DOUBLES: "twice its argument",
    Kind.REPEATS: "the literal that says how often; no bound without one",
    Kind.PADS: "the literal that says how long; no bound without one",
    Kind.REPLACES: "the length of the literals that are inserted; no bound without them",
    Kind.MATCHES: "the groups of the literal pattern; no bound without one",
    Kind.TESTS: "a constant, with a literal pattern; no bound without one",
    Kind.CASTS: "the size of the type, which is a literal; no bound without one",
    Kind.FORMATS: "the length of the literal format; no bound without one",
    Kind.UNBOUNDED: "nothing",
}

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
_PART = re.compile(r"(<!-- generated: (?P<name>[a-z ]+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)


def settings_table() -> str:
    """Return every setting with its flag, environment variable, default and meaning."""
    rows = [
        (
            f"`{name}`",
            "`DIR`, `--directory`" if name == "directory" else f"`{flag_name(name)}`",
            f"`{ENV_PREFIX}{name.upper()}`",
            _default(field.get_default(call_default_factory=True)),
            (field.description or "") + _choices(field.annotation),
        )
        for name, field in Settings.model_fields.items()
    ]
    return _table(("Setting", "Flag", "Environment variable", "Default", "Meaning"), rows)


def operations_table() -> str:
    """Return every operation the server offers, with its route and the role it needs."""
    rows = [
        (
            f"`{row.id}`",
            f"`{row.method} {row.path}`",
            row.permission.role.name.lower(),
            ", ".join(f"`{name}`" for name in row.query),
            row.summary,
        )
        for row in OPERATIONS
    ]
    return _table(("Operation", "Route", "Role", "Query parameters", "What it does"), rows)


def unsupported_table() -> str:
    """Return the operations of the specification that are answered with "unsupported"."""
    if not UNSUPPORTED:
        return "There are none.\n"
    rows = [(f"`{name}`", f"`{method} {path}`") for name, (method, path) in UNSUPPORTED.items()]
    return _table(("Operation", "Route"), rows)


def errors_table() -> str:
    """Return every error code with its class, HTTP status and what to do about it."""
    classes = {
        kind.code: name
        for name, kind in vars(published).items()
        if inspect.isclass(kind) and issubclass(kind, LanceNamespaceError) and kind is not LanceNamespaceError
    }
    rows = [(str(int(code)), f"`{classes[code]}`", str(STATUS_BY_CODE[code]), advice_for(code)) for code in ErrorCode]
    return _table(("Code", "Class in `lance_namespace.errors`", "HTTP status", "What to do"), rows)


def functions_table() -> str:
    """Return every function that SQL of callers may use, by what bounds its result."""
    kinds = {kind: sorted(name for name, function in FUNCTIONS.items() if function.kind is kind) for kind in Kind}
    rows = [(_BOUNDS[kind], ", ".join(f"`{name}`" for name in names)) for kind, names in kinds.items()]
    return _table(("The result is bounded by", "Functions"), rows)


def commands() -> str:
    """Return every command with its arguments and options."""
    return "\n".join(_command(name, command) for name, command in commands_of("pennon", typer.main.get_command(app)))


def exits_table() -> str:
    """Return every exit code with what it means."""
    return _table(("Code", "Meaning"), [(str(int(code)), code.meaning) for code in ExitCode])


PARTS: dict[str, Callable[[], str]] = {
    "settings": settings_table,
    "operations": operations_table,
    "unsupported operations": unsupported_table,
    "errors": errors_table,
    "functions": functions_table,
    "commands": commands,
    "exit codes": exits_table,
}


def render(page: str) -> str:
    """Return a page with its generated parts replaced."""
    return _PART.sub(lambda part: f"{part[1]}\n{PARTS[part['name']]()}\n{part[3]}", page)


def stale_pages() -> list[Path]:
    """Return the pages whose tables no longer say what is."""
    return [page for page in sorted(PAGES.glob("*.md")) if render(_read(page)) != _read(page)]


def commands_of(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Return a command and those below it, in the order in which they were added."""
    below = getattr(command, "commands", {})
    if not below:
        yield name, command
    for child, found in below.items():
        yield from commands_of(f"{name} {child}", found)


def _command(name: str, command: Any) -> str:
    shown_params = [p for p in command.params if not getattr(p, "hidden", False)]
    arguments = [p for p in shown_params if not p.opts[0].startswith("-")]
    options = [p for p in shown_params if p.opts[0].startswith("-")]
    words = [name, "[OPTIONS]", *(_usage(argument) for argument in arguments)]
    lines = [f"### `{name}`", "", inspect.cleandoc(command.help or ""), "", "```text", " ".join(words), "```", ""]
    rows = [(_spelling(p), _default_of(p), _meaning(p)) for p in [*arguments, *options]]
    shown = [f"$ {line}" for line in examples_of(command.epilog)]
    lines += ["```console", *shown, "```", ""] if shown else []
    return "\n".join(lines) + "\n" + _table(("Argument or option", "Default", "Meaning"), rows)


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _spelling(parameter: Any) -> str:
    if not parameter.opts[0].startswith("-"):
        return f"`{parameter.metavar or parameter.name.upper()}`"
    return ", ".join(f"`{flag}`" for flag in [*parameter.opts, *parameter.secondary_opts])


def _default_of(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return f"`{parameter.show_default}`"
    return _default(None if parameter.default is False else parameter.default)


def _meaning(parameter: Any) -> str:
    return (parameter.help or "") + _choices(parameter.type_descriptor.annotation)


def _choices(annotation: object) -> str:
    """Return which texts a setting or an option may have, where it is one of a few."""
    if isinstance(annotation, type) and issubclass(annotation, enum.StrEnum):
        choices: Iterable[object] = annotation
    else:
        choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    named = ", ".join(f"`{choice}`" for choice in choices)
    return f" One of {named}." if named else ""


def _default(value: object) -> str:
    if value in (None, {}, []):
        return ""
    return f"`{json.dumps(value) if isinstance(value, bool) else value}`"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Rewrite the pages that are out of date, or only name them."""
    stale = stale_pages()
    for page in stale:
        if "--check" not in arguments:
            page.write_text(render(_read(page)), encoding="utf-8")
        print(f"{page.relative_to(ROOT)} {'is out of date' if '--check' in arguments else 'was rewritten'}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
