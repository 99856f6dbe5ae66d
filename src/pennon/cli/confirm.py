"""Confirmation of destructive commands."""

from __future__ import annotations

import sys

import typer

from pennon.cli.exit_codes import ExitCode
from pennon.cli.output import print_note
from pennon.core.settings import SettingsError


def confirm(what: str, *, yes: bool) -> None:
    """Continue only with ``--yes``, or after a confirmation on the terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise SettingsError(f"{what} This cannot be undone, and there is no terminal to confirm it: add --yes.")
    try:
        is_confirmed, code = typer.confirm(f"{what} This cannot be undone. Continue?", err=True), ExitCode.FAILED
    except typer.Abort:
        is_confirmed, code = False, ExitCode.INTERRUPTED
    if not is_confirmed:
        print_note("Nothing was changed.")
        raise typer.Exit(code)
