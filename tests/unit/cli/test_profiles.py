"""Which server is called: flags, profiles and the environment, in their order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pennon.cli.profiles import DEFAULT_URL, Profile, choose_server, profiles_file
from pennon.core.settings import SettingsError

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run

FILE = """
[default]
url = "http://default.example.com"
api_key = "default-key"

[production]
url = "https://lance.example.com"
api_key = "production-key"

[open]
url = "http://open.example.com"
"""


@pytest.fixture(autouse=True)
def _own_settings(run: Run) -> None:
    """Nothing of the developer's own is seen."""


def write(text: str) -> None:
    profiles_file().parent.mkdir(parents=True)
    profiles_file().write_text(text, encoding="utf-8")


def test_without_anything_it_is_the_server_of_this_machine() -> None:
    assert choose_server(None, None, None) == Profile(DEFAULT_URL)


@pytest.mark.parametrize(
    ("flags", "environment", "chosen"),
    [
        ((None, None, None), {}, Profile("http://default.example.com", "default-key")),
        ((None, None, "production"), {}, Profile("https://lance.example.com", "production-key")),
        ((None, None, "production"), {"URL": "http://e"}, Profile("https://lance.example.com", "production-key")),
        ((None, None, None), {"PROFILE": "open"}, Profile("http://open.example.com")),
        ((None, None, None), {"URL": "http://e", "PROFILE": "open"}, Profile("http://e")),
        (("http://f", None, "production"), {}, Profile("http://f", "production-key")),
        (("http://f", "key", None), {"API_KEY": "e"}, Profile("http://f", "key")),
        ((None, None, None), {"URL": "http://e", "API_KEY": "e"}, Profile("http://e", "e")),
    ],
)
def test_flags_override_the_environment_and_profiles(
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str | None, str | None, str | None],
    environment: dict[str, str],
    chosen: Profile,
) -> None:
    write(FILE)
    for name, value in environment.items():
        monkeypatch.setenv(f"PENNON_{name}", value)
    assert choose_server(*flags) == chosen


def test_the_key_of_the_default_goes_nowhere_else() -> None:
    write(FILE)
    assert choose_server("http://elsewhere.example.com", None, None).api_key is None


def test_an_unknown_profile_is_an_error_that_lists_the_known_ones() -> None:
    write(FILE)
    with pytest.raises(SettingsError, match="Did you mean 'production'"):
        choose_server(None, None, "prodution")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[a", "Cannot read the profiles"),
        ("[a]\nuri = 'x'", "'uri'"),
        ("[a]\napi_key = 'x'", "needs url"),
        ("a = 1", "needs url"),
    ],
)
def test_an_unreadable_file_is_an_error(run: Run, text: str, word: str) -> None:
    write(text)
    ended = run("profiles")
    assert ended.code == 2
    assert word in ended.stderr


def test_profiles_are_listed_without_their_keys(run: Run) -> None:
    assert "No profiles" in run("profiles").stderr
    write(FILE)
    listed = run("profiles", "-o", "json").stdout
    assert {row["name"]: row["has_key"] for row in json.loads(listed)} == {
        "default": True,
        "production": True,
        "open": False,
    }
    assert "production-key" not in listed + run("profiles").stdout


def test_an_invalid_url_is_an_error(run: Run) -> None:
    ended = run("tables", "list", "--url", "localhost:2333")
    assert ended.code == 2
    assert "http://" in ended.stderr


def test_a_file_with_keys_that_others_can_read_is_reported(run: Run) -> None:
    write(FILE)
    profiles_file().chmod(0o644)
    assert "chmod 600" in run("profiles").stderr
    profiles_file().chmod(0o600)
    assert "chmod 600" not in run("profiles").stderr
