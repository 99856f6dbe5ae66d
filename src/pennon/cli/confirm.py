"""Questions before something is destroyed."""

from __future__ import annotations

import sys

import typer

from pennon.cli.exit_codes import Exit
from pennon.cli.output import note
from pennon.core.settings import SettingsError


def confirm(what: str, *, yes: bool) -> None:
    """Go on only when that is wanted: said by ``--yes``, or answered on a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise SettingsError(f"{what} That cannot be undone, and nobody is here to ask: add --yes to do it.")
    try:
        wanted, code = typer.confirm(f"{what} That cannot be undone. Go on?", err=True), Exit.FAILED
    except typer.Abort:
        wanted, code = False, Exit.INTERRUPTED
    if not wanted:
        note("Nothing was done.")
        raise typer.Exit(code)
