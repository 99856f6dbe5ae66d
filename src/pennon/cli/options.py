"""Flags of settings: every setting has one, with its description and environment variable in the help."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from pennon.cli.output import print_note
from pennon.core.errors import suggest
from pennon.core.settings import ENV_PREFIX, RENAMED, Settings, SettingsError, load_settings

#: Environment variables that commands read besides those of settings.
_OTHER_VARIABLES = ("api_key", "config", "profile", "url")

#: Prefix of the parameters that turn a boolean setting off.
_OFF = "no_"

#: The settings that locate the catalog and the tables.
STORAGE_SETTINGS = ("database", "root", "storage_options")

#: The panels in which the help of a command with all settings groups them.
PANELS: dict[str, tuple[str, ...]] = {
    "Address": (
        "host",
        "port",
        "processes",
        "insecure",
        "keep_alive_timeout_seconds",
        "stall_timeout_seconds",
        "shutdown_timeout_seconds",
    ),
    "Catalog and storage": (
        *("database", "database_pool_size", "root", "storage_options", "vend_credentials", "allowed_locations"),
        *(
            "manage_registered_tables",
            "isolate_recreated_tables",
            "durable_writes",
            "discover_tables",
            "discovery_interval_seconds",
        ),
    ),
    "Requests": (
        *("metadata_threads", "data_threads", "index_threads", "page_limit", "max_json_bytes", "body_memory_bytes"),
        *("max_upload_bytes", "max_batch_bytes", "batch_memory_bytes"),
        *("max_expression_bytes", "max_expression_literals", "max_manifest_bytes"),
        "api_process_memory_bytes",
        *("query_processes", "query_process_memory_bytes", "query_timeout_seconds"),
        *(
            "stream_buffer_bytes",
            "max_grouped_append_bytes",
            "idempotency_retention_hours",
            "transaction_retention_days",
        ),
    ),
    "Caches": (
        *("index_cache_bytes", "metadata_cache_bytes", "manifest_cache_bytes", "schema_cache_entries"),
        "dataset_cache_entries",
    ),
    "Jobs": (
        *(
            "workers",
            "worker_slots",
            "worker_poll_interval_seconds",
            "job_retention_days",
            "max_job_takeovers",
            "job_lease_seconds",
        ),
        *(
            "backfill_batch_rows",
            "backfill_batch_bytes",
            "checkpoint_seconds",
            "remote_checkpoint_seconds",
        ),
        *(
            "auto_backfill_min_rows",
            "auto_backfill_every_seconds",
            "auto_refresh_min_rows",
            "auto_refresh_every_seconds",
        ),
    ),
    "Maintenance": (
        *("maintenance_enabled", "maintenance_slots", "maintenance_spark_bytes", "maintenance_quiet_hours"),
        *("maintenance_target_fragment_bytes", "maintenance_target_fragment_rows", "maintenance_max_small_fragments"),
        *("maintenance_max_deleted_share", "maintenance_max_unindexed_rows", "maintenance_max_unindexed_seconds"),
        *("maintenance_max_index_segments", "maintenance_min_version_seconds", "maintenance_max_version_seconds"),
        *("maintenance_max_versions", "maintenance_snapshot_seconds", "maintenance_min_file_seconds"),
        "maintenance_max_bytes_per_second",
    ),
    "Spark": (
        "spark_master",
        "spark_conf",
        "clusters",
        "spark_start_timeout_seconds",
        "spark_idle_timeout_seconds",
        "environment_folder",
        "environment_cache_bytes",
        "package_indexes",
        "spark_prestart",
    ),
    "Log": ("log_level", "log_format", "recorded_headers"),
}


def flag_name(setting: str) -> str:
    """Return the flag of a setting."""
    return "--" + setting.replace("_", "-")


def with_settings(
    *names: str, directory: Literal["argument", "option"] = "argument"
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add flags for settings to a command, which gets the effective settings as its first argument.

    Without names, all settings become flags, in panels. The folder and ``--config`` are always added: the folder as the
    argument ``DIR``, or as the option ``--directory`` if the command has other arguments.
    """
    panels = {} if names else {name: panel for panel, held in PANELS.items() for name in held}
    chosen = names or tuple(name for name in Settings.model_fields if name != "directory")

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != "settings"]
        hidden = _hidden_parameters(chosen)
        flags = [_parameter(name, panels.get(name)) for name in chosen]

        def run(**values: object) -> None:
            config = values.pop("config", None)
            if config is not None:
                os.environ[f"{ENV_PREFIX}CONFIG"] = str(config)
            _warn_about_misspelt_variables()
            given = {name: values.pop(name) for name in (*chosen, *(p.name for p in hidden), "directory")}
            command(load_settings(**_values(given)), **values)

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        folder = _directory(directory)
        run.__signature__ = inspect.Signature([*own, folder, *flags, *hidden, _config()])  # type: ignore[attr-defined]
        return run

    return decorate


def _warn_about_misspelt_variables() -> None:
    """Warn about variables that resemble those of settings; others with our prefix may belong to other programs."""
    known = {*Settings.model_fields, *RENAMED, *_OTHER_VARIABLES}
    found = {name.removeprefix(ENV_PREFIX).lower() for name in os.environ if name.startswith(ENV_PREFIX)}
    for name in sorted(found - known):
        if meant := suggest(name, known):
            print_note(f"{ENV_PREFIX}{name.upper()} is ignored: unknown setting {name!r}.{meant}")


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
    option = typer.Option("--config", help=f"Settings file. ({ENV_PREFIX}CONFIG)")
    return inspect.Parameter(
        "config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, option]
    )


def _parameter(name: str, panel: str | None) -> inspect.Parameter:
    field = Settings.model_fields[name]
    meaning = field.description or ""
    if field.annotation is bool:
        meaning += f" Turn it off with {_off_flag(name)}."
    default = field.get_default(call_default_factory=True)
    option = typer.Option(
        flag_name(name),
        # A command with all settings explains the environment variables once, which leaves more room here.
        help=meaning if panel else f"{meaning} ({ENV_PREFIX}{name.upper()})",
        show_default=False if default in (None, {}, []) else str(default),
        rich_help_panel=panel,
    )
    return _optional(name, _flag_type(field.annotation), option)


def _hidden_parameters(names: Sequence[str]) -> list[inspect.Parameter]:
    """Return the flags that turn switches off, and the flags of settings by their old names.

    The help does not list them: a second column of flags would leave no room for the first.
    """
    old_names = [old for old, new in RENAMED.items() if new in names]
    hidden = [_optional(old, _kind_of(old), typer.Option(flag_name(old), hidden=True)) for old in old_names]
    switches = [name for name in (*names, *old_names) if _kind_of(name) is bool]
    return hidden + [_optional(_OFF + name, bool, typer.Option(_off_flag(name), hidden=True)) for name in switches]


def _optional(name: str, kind: type, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _off_flag(switch: str) -> str:
    return f"--no-{flag_name(switch)[2:]}"


def _kind_of(name: str) -> type:
    """Return the type of a flag by the current or the old name of its setting."""
    return _flag_type(Settings.model_fields[RENAMED.get(name, name)].annotation)


def _flag_type(annotation: Any) -> type:
    """Return the type of a flag; collections and choices are parsed from text."""
    if annotation in (bool, int, float):
        return annotation  # type: ignore[no-any-return]
    plain = [kind for kind in get_args(annotation) if kind is not type(None)]
    if get_origin(annotation) is not dict and plain and plain[0] in (int, float):
        return plain[0]  # type: ignore[no-any-return]
    return str


def _values(given: dict[str, Any]) -> dict[str, Any]:
    """Return the values of flags: JSON is parsed, and a switch that was turned off is false."""
    values = {name: _value(name, value) for name, value in given.items() if not name.startswith(_OFF)}
    return values | {name.removeprefix(_OFF): False for name, off in given.items() if name.startswith(_OFF) and off}


def _value(name: str, given: Any) -> Any:
    kind = get_origin(Settings.model_fields[RENAMED.get(name, name)].annotation)
    if kind not in (dict, list) or given is None:
        return given
    try:
        return json.loads(given)
    except ValueError as error:
        form = '{"name": "value"}' if kind is dict else '["one", "two"]'
        raise SettingsError(f"{flag_name(name)} is not JSON ({error}); write it as '{form}'.") from None
