"""Flags made from the settings: every setting has one, with its environment variable and meaning in the help."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from pennon.cli.output import note
from pennon.core.errors import suggest
from pennon.core.settings import ENV_PREFIX, Settings, SettingsError, load_settings

#: Variables that commands heed beside those of settings.
_OTHER_VARIABLES = ("api_key", "config", "profile", "url")

#: Settings that commands other than ``serve`` need to find the catalog and the tables.
PLACE_SETTINGS = ("database", "root", "storage_options")

#: Under which headings the help of a command with all settings shows them.
PANELS: dict[str, tuple[str, ...]] = {
    "Address": ("host", "port", "processes", "insecure", "keep_alive_seconds", "stall_seconds", "shutdown_seconds"),
    "Catalog and storage": (
        *("database", "database_pool_size", "root", "storage_options", "vend_credentials", "allowed_locations"),
        *("manage_registered", "recreate_apart", "durable_writes", "discover", "discover_seconds"),
    ),
    "Requests": (
        *("threads", "data_threads", "index_threads", "page_limit", "max_json_bytes", "body_memory_bytes"),
        *("max_upload_bytes", "max_batch_bytes", "batch_memory_bytes"),
        *("max_expression_bytes", "max_expression_literals"),
        *("query_processes", "query_process_memory_bytes", "query_process_seconds"),
        *("stream_buffer_bytes", "group_append_bytes", "idempotency_hours", "transaction_days"),
    ),
    "Caches": (
        *("index_cache_bytes", "metadata_cache_bytes", "manifest_cache_bytes", "detail_cache_entries"),
        "dataset_handles",
    ),
    "Jobs": (
        *("workers", "worker_slots", "worker_poll_seconds", "job_days", "job_attempts", "job_lease_seconds"),
        *("backfill_batch_rows", "backfill_batch_bytes", "checkpoint_seconds", "remote_checkpoint_seconds"),
        *("auto_backfill_rows", "auto_backfill_seconds", "auto_refresh_rows", "auto_refresh_seconds"),
    ),
    "Spark": (
        "spark_master",
        "spark_conf",
        "clusters",
        "cluster_seconds",
        "environment_folder",
        "environment_bytes",
        "package_indexes",
        "worker_warm",
    ),
    "Log": ("log_level", "log_format", "recorded_headers"),
}


def flag_name(setting: str) -> str:
    """Return the flag of a setting."""
    return "--" + setting.replace("_", "-")


def with_settings(
    *names: str, directory: Literal["argument", "option"] = "argument"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command flags for settings; it receives the settings in force as its first argument.

    Without names, all settings become flags, in panels. The folder and ``--config`` come with them: the folder as the
    argument ``DIR`` where it is what the command is about, as the option ``--directory`` where there are other
    arguments.
    """
    panels = {} if names else {name: panel for panel, held in PANELS.items() for name in held}
    chosen = names or tuple(name for name in Settings.model_fields if name != "directory")

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != "settings"]
        flags = [_parameter(name, panels.get(name)) for name in chosen]

        def run(**values: Any) -> Any:
            config = values.pop("config", None)
            if config is not None:
                os.environ[f"{ENV_PREFIX}CONFIG"] = str(config)
            _tell_misspelt()
            given = {name: _value(name, values.pop(name)) for name in (*chosen, "directory")}
            return command(load_settings(**given), **values)

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        folder = _directory(directory)
        run.__signature__ = inspect.Signature([*own, folder, *flags, _config()])  # type: ignore[attr-defined]
        return run

    return decorate


def _tell_misspelt() -> None:
    """Name variables that are nearly those of settings; what else begins like ours may belong to others."""
    known = {*Settings.model_fields, *_OTHER_VARIABLES}
    found = {name.removeprefix(ENV_PREFIX).lower() for name in os.environ if name.startswith(ENV_PREFIX)}
    for name in sorted(found - known):
        if meant := suggest(name, known):
            note(f"{ENV_PREFIX}{name.upper()} is ignored: there is no setting {name!r}.{meant}")


def _directory(form: Literal["argument", "option"]) -> inspect.Parameter:
    field = Settings.model_fields["directory"]
    meaning = f"{field.description} ({ENV_PREFIX}DIRECTORY)"
    declared: Any = (
        typer.Argument(metavar="DIR", help=meaning, show_default=str(field.default))
        if form == "argument"
        else typer.Option("--directory", "-d", metavar="DIR", help=meaning, show_default=str(field.default))
    )
    kind = Annotated[Path | None, declared]
    return inspect.Parameter("directory", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _config() -> inspect.Parameter:
    option = typer.Option("--config", help=f"File with settings, by their names (also {ENV_PREFIX}CONFIG).")
    return inspect.Parameter(
        "config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, option]
    )


def _parameter(name: str, panel: str | None) -> inspect.Parameter:
    field, flag = Settings.model_fields[name], flag_name(name)
    kind = _flag_type(field.annotation)
    declared = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
    default = field.get_default(call_default_factory=True)
    option = typer.Option(
        declared,
        # Where there are many, the command itself tells the rule, which leaves them room.
        help=field.description if panel else f"{field.description} ({ENV_PREFIX}{name.upper()})",
        show_default=False if default in (None, {}, []) else str(default),
        rich_help_panel=panel,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _flag_type(annotation: Any) -> type:
    """Return the type of a flag: collections and choices are written as text."""
    if annotation in (bool, int, float):
        return annotation  # type: ignore[no-any-return]
    plain = [kind for kind in get_args(annotation) if kind is not type(None)]
    if get_origin(annotation) is not dict and plain and plain[0] in (int, float):
        return plain[0]  # type: ignore[no-any-return]
    return str


def _value(name: str, given: Any) -> Any:
    kind = get_origin(Settings.model_fields[name].annotation)
    if kind not in (dict, list) or given is None:
        return given
    try:
        return json.loads(given)
    except ValueError as error:
        form = '{"name": "value"}' if kind is dict else '["one", "two"]'
        raise SettingsError(f"{flag_name(name)} is not JSON ({error}); write it as '{form}'.") from None
