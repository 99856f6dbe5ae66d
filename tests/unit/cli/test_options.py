"""Flags are made from the settings, and the first source that names a setting wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pennon.cli.options import PANELS, flag_name, with_settings
from pennon.core.settings import RENAMED, Settings, SettingsError


def command(*names: str, **how: Any) -> tuple[typer.Typer, list[Settings]]:
    seen: list[Settings] = []
    app = typer.Typer()

    @app.command()
    @with_settings(*names, **how)
    def run(settings: Settings) -> None:
        seen.append(settings)

    return app, seen


def settings_of(app: tuple[typer.Typer, list[Settings]], *arguments: str) -> Settings:
    result = CliRunner().invoke(app[0], list(arguments))
    assert result.exit_code == 0, result.output
    return app[1][-1]


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENNON_CONFIG", "")


def test_every_setting_has_a_flag_in_one_panel() -> None:
    # The longest flag needs more than the 80 columns of the smallest terminals.
    help_text = CliRunner().invoke(command()[0], ["--help"], env={"COLUMNS": "100"}).output
    panels = [name for held in PANELS.values() for name in held]
    assert sorted([*panels, "directory"]) == sorted(Settings.model_fields)
    for panel in PANELS:
        assert f"─ {panel} ─" in help_text
    for name in panels:
        assert f" {flag_name(name)} " in help_text


def test_help_with_few_options_shows_their_environment_variables() -> None:
    help_text = CliRunner().invoke(command("port", "page_limit")[0], ["--help"], env={"COLUMNS": "300"}).output
    for name in ("DIRECTORY", "PORT", "PAGE_LIMIT"):
        assert f"(PENNON_{name})" in help_text


def test_the_folder_is_an_argument_where_the_command_is_about_it() -> None:
    assert settings_of(command("port"), "lake").directory == Path("lake")


@pytest.mark.parametrize("flag", ["--directory", "-d"])
def test_the_folder_is_an_option_where_the_command_has_other_arguments(flag: str) -> None:
    assert settings_of(command("port", directory="option"), flag, "lake").directory == Path("lake")


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pennon.toml"
    file.write_text('host = "127.0.0.3"\nport = 3\nmetadata_threads = 3\n')
    monkeypatch.setenv("PENNON_HOST", "127.0.0.2")
    monkeypatch.setenv("PENNON_PORT", "2")
    found = settings_of(command(), "--config", str(file), "--port", "1")
    assert (found.port, found.host, found.metadata_threads) == (1, "127.0.0.2", 3)


def test_only_misspelled_variables_of_pennon_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENNON_DATABSE", "PENNON_SERVICE_HOST", "PENNON_URL"):
        monkeypatch.setenv(name, "x")
    said = CliRunner().invoke(command()[0], []).stderr
    assert [line.split()[0] for line in said.splitlines()] == ["PENNON_DATABSE"]
    assert "Did you mean 'database'?" in said


def test_collections_are_written_as_json() -> None:
    found = settings_of(command(), "--storage-options", '{"region": "x"}', "--allowed-locations", '["/a", "/b"]')
    assert found.storage_options == {"region": "x"}
    assert found.allowed_locations == ["/a", "/b"]


def test_the_error_for_invalid_json_shows_an_example() -> None:
    for flag, form in (("--storage-options", '{"name": "value"}'), ("--allowed-locations", '["one", "two"]')):
        error = CliRunner().invoke(command()[0], [flag, "{x"]).exception
        assert isinstance(error, SettingsError)
        assert flag in str(error)
        assert form in str(error)


def test_brackets_mean_json_only_where_a_collection_is_wanted() -> None:
    assert settings_of(command(), "--host", "[::1]").host == "::1"


def test_a_switch_can_be_turned_off() -> None:
    assert settings_of(command(), "--no-discover-tables").discover_tables is False
    help_text = CliRunner().invoke(command("discover_tables")[0], ["--help"], env={"COLUMNS": "300"}).output
    assert "Turn it off with --no-discover-tables." in help_text


def test_a_switch_that_is_on_in_the_environment_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENNON_INSECURE", "true")
    assert settings_of(command()).insecure is True
    assert settings_of(command(), "--no-insecure").insecure is False


def test_old_flags_of_renamed_settings_are_read_but_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    assert settings_of(command(), "--job-days", "7").job_retention_days == 7
    assert settings_of(command(), "--no-recreate-apart").isolate_recreated_tables is False
    assert settings_of(command("discover_tables"), "--no-discover").discover_tables is False
    assert [message.split()[0] for message in caplog.messages] == ["--job-days", "--recreate-apart", "--discover"]
    help_text = CliRunner().invoke(command()[0], ["--help"], env={"COLUMNS": "300"}).output
    assert not [old for old in RENAMED if f" {flag_name(old)} " in help_text]


def test_an_old_variable_of_a_renamed_setting_is_not_misspelt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENNON_JOB_DAYS", "7")
    said = CliRunner().invoke(command()[0], []).stderr
    assert not [line for line in said.splitlines() if line.startswith("PENNON_JOB_DAYS is ignored")]
