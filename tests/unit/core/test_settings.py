"""Settings: where they come from, which wins, and how a wrong one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from pennon.catalog import open_database
from pennon.core.settings import RENAMED, Settings, SettingsError, load_settings, read_config

SWITCHES = {name for name, field in Settings.model_fields.items() if field.annotation is bool}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "pennon.toml"
    monkeypatch.setenv("PENNON_CONFIG", str(path))
    return path


class TestPrecedence:
    def test_everything_has_a_default(self) -> None:
        settings = load_settings()
        assert (settings.host, settings.port, settings.directory) == ("127.0.0.1", 2333, Path("pennon-data"))

    def test_the_file_wins_over_the_default(self, config: Path) -> None:
        config.write_text('port = 1\nhost = "::1"\nstorage_options = {region = "eu"}\n')
        settings = load_settings()
        assert (settings.port, settings.host, settings.storage_options) == (1, "::1", {"region": "eu"})

    def test_the_environment_wins_over_the_file(self, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config.write_text("port = 1\nmetadata_threads = 3\n")
        monkeypatch.setenv("PENNON_PORT", "2")
        settings = load_settings()
        assert (settings.port, settings.metadata_threads) == (2, 3)

    def test_a_flag_wins_over_all(self, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config.write_text("port = 1\n")
        monkeypatch.setenv("PENNON_PORT", "2")
        assert load_settings(port=3).port == 3

    def test_a_flag_that_was_not_given_decides_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENNON_PORT", "2")
        assert load_settings(port=None).port == 2

    def test_an_empty_variable_decides_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENNON_PORT", "")
        assert load_settings().port == 2333

    def test_maps_and_lists_are_json_in_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENNON_STORAGE_OPTIONS", '{"region": "eu"}')
        monkeypatch.setenv("PENNON_ALLOWED_LOCATIONS", '["/a", "/b"]')
        settings = load_settings()
        assert settings.storage_options == {"region": "eu"}
        assert settings.allowed_locations == ["/a", "/b"]

    def test_variables_of_others_do_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PORT", "7")
        monkeypatch.setenv("PENNON_UNHEARD_OF", "7")
        assert load_settings().port == 2333


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_a_host_may_be_written_as_addresses_have_it(host: str) -> None:
    assert load_settings(host=host).host == "::1"


class TestErrors:
    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("port", 65536),
            ("port", "many"),
            ("metadata_threads", 0),
            ("page_limit", 0),
            ("log_level", "loud"),
            ("discovery_interval_seconds", -1),
            ("job_retention_days", "inf"),
            ("idempotency_retention_hours", "nan"),
            ("shutdown_timeout_seconds", 0),
            ("max_json_bytes", 1),
            ("database_pool_size", 0),
            ("allowed_locations", "not a list"),
            ("host", ""),
            ("host", "http://127.0.0.1"),
            ("host", "127.0.0.1:8080"),
            ("database", "postgresql://[bad"),
            ("root", "s3://[bad"),
        ],
    )
    def test_a_wrong_flag_is_named(self, setting: str, value: object) -> None:
        with pytest.raises(SettingsError, match=setting):
            load_settings(**{setting: value})

    def test_a_wrong_variable_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENNON_PORT", "many")
        with pytest.raises(SettingsError, match="port"):
            load_settings()

    def test_a_variable_that_is_not_json_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENNON_STORAGE_OPTIONS", "region=eu")
        with pytest.raises(SettingsError, match="'storage_options' is not valid JSON"):
            load_settings()

    def test_an_unknown_flag_is_named(self) -> None:
        with pytest.raises(SettingsError, match="portt"):
            load_settings(portt=1)

    @pytest.mark.parametrize(("text", "named"), [("portt = 1", "portt"), ("port = 'x'", "port"), ("port = ", "TOML")])
    def test_a_wrong_file_says_what_is_wrong_in_it(self, config: Path, text: str, named: str) -> None:
        config.write_text(text)
        with pytest.raises(SettingsError, match=named):
            load_settings()

    def test_a_missing_file_is_named(self, config: Path) -> None:
        with pytest.raises(SettingsError, match=r"pennon\.toml cannot be read"):
            load_settings()
        with pytest.raises(SettingsError, match="cannot be read"):
            read_config(config.parent)


class TestRenamedSettings:
    def test_no_setting_has_the_old_name_of_another(self) -> None:
        assert not RENAMED.keys() & Settings.model_fields.keys()
        assert set(RENAMED.values()) <= Settings.model_fields.keys()

    @pytest.mark.parametrize("old", sorted(RENAMED))
    def test_an_old_flag_is_read_with_a_warning(self, old: str, caplog: pytest.LogCaptureFixture) -> None:
        new = RENAMED[old]
        assert getattr(load_settings(**{old: 7 if new not in SWITCHES else True}), new) in (7, True)
        flags = [f"--{name.replace('_', '-')}" for name in (old, new)]
        assert caplog.messages == [f"{flags[0]} is deprecated and will be removed: use {flags[1]} instead"]

    def test_an_old_variable_is_read_with_a_warning(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("PENNON_JOB_DAYS", "7")
        assert load_settings().job_retention_days == 7
        assert caplog.messages == [
            "PENNON_JOB_DAYS is deprecated and will be removed: use PENNON_JOB_RETENTION_DAYS instead"
        ]

    def test_an_empty_old_variable_decides_nothing(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("PENNON_JOB_DAYS", "")
        assert load_settings().job_retention_days == 30
        assert not caplog.messages

    def test_an_old_key_of_the_file_is_read_with_a_warning(
        self, config: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        config.write_text("job_days = 7\n")
        assert load_settings().job_retention_days == 7
        assert caplog.messages == [
            f"'job_days' in {config} is deprecated and will be removed: use 'job_retention_days' in {config} instead"
        ]

    def test_old_and_new_name_of_one_setting_are_an_error(self, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(SettingsError, match="--job-days is the old name of --job-retention-days: remove it"):
            load_settings(job_days=1, job_retention_days=2)
        config.write_text("job_days = 1\njob_retention_days = 2\n")
        with pytest.raises(SettingsError, match=r"'job_days' in .* is the old name of 'job_retention_days'"):
            load_settings()
        config.write_text("")
        monkeypatch.setenv("PENNON_JOB_DAYS", "1")
        monkeypatch.setenv("PENNON_JOB_RETENTION_DAYS", "2")
        with pytest.raises(SettingsError, match="PENNON_JOB_DAYS is the old name of PENNON_JOB_RETENTION_DAYS"):
            load_settings()

    def test_an_old_name_does_not_change_which_source_wins(self, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config.write_text("job_retention_days = 1\n")
        monkeypatch.setenv("PENNON_JOB_DAYS", "2")
        assert load_settings().job_retention_days == 2
        assert load_settings(job_retention_days=3).job_retention_days == 3

    def test_a_wrong_value_is_named_by_the_new_name(self) -> None:
        with pytest.raises(SettingsError, match="'job_retention_days' is invalid"):
            load_settings(job_days=-1)


class TestStorageRoot:
    def test_the_catalog_and_the_tables_are_in_the_folder(self, tmp_path: Path) -> None:
        settings = load_settings(directory=tmp_path)
        assert settings.root_url == str(tmp_path)
        assert settings.database_url == f"sqlite:///{tmp_path}/.pennon/catalog.db"

    @pytest.mark.parametrize("name", ["plain", "two words", "100%25", "a?b#c", "ümläut"])
    def test_the_catalog_is_in_the_folder_whatever_its_name(self, tmp_path: Path, name: str) -> None:
        settings = load_settings(directory=tmp_path / name)
        open_database(settings.database_url).close()
        assert (tmp_path / name / ".pennon" / "catalog.db").is_file()

    def test_both_can_be_elsewhere(self) -> None:
        settings = load_settings(database="postgresql://h/db", root="s3://bucket/tables")
        assert (settings.database_url, settings.root_url) == ("postgresql://h/db", "s3://bucket/tables")


def test_every_setting_has_a_meaning_and_cannot_change() -> None:
    assert all(field.description for field in Settings.model_fields.values())
    with pytest.raises(ValueError, match="frozen"):
        load_settings().port = 1
