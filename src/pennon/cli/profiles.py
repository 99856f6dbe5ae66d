"""Profiles: named servers with their API keys, kept in a file of the user."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from pennon.cli.output import OutputFormat, OutputOption, print_list, print_note
from pennon.core.errors import suggest
from pennon.core.settings import ENV_PREFIX, SettingsError

DEFAULT_URL = "http://127.0.0.1:2333"
#: The profile that is used by default.
DEFAULT_PROFILE = "default"
_FIELDS = ("url", "api_key")


@dataclass(frozen=True)
class Profile:
    """A server and the API key for it."""

    url: str
    api_key: str | None = None


def list_profiles(output: OutputOption = OutputFormat.TABLE) -> None:
    """List the profiles: servers named in ~/.config/pennon/profiles.toml, for --profile."""
    known = read_profiles()
    empty = f'No profiles. Add them to {profiles_file()}: [NAME], then url = "…" and api_key = "…".'
    found = [{"name": name, "url": one.url, "has_key": one.api_key is not None} for name, one in known.items()]
    rows = [(row["name"], row["url"], "yes" if row["has_key"] else "no") for row in found]
    print_list(output, found, ("Profile", "URL", "API key"), rows, empty)


def choose_server(url: str | None, api_key: str | None, profile: str | None) -> Profile:
    """Return the server to use: flags take precedence over a named profile, which does over the environment.

    The API key of a profile is sent to the server of that profile, or to the one that is named with it.
    """
    variable = _environment("URL")
    named = profile or (None if url or variable else _environment("PROFILE"))
    if named is not None:
        chosen = _find(named)
        return Profile(url or chosen.url, api_key or chosen.api_key or _environment("API_KEY"))
    own = None if url or variable else read_profiles().get(DEFAULT_PROFILE)
    key = api_key or _environment("API_KEY") or (own.api_key if own else None)
    return Profile(url or variable or (own.url if own else DEFAULT_URL), key)


def read_profiles() -> dict[str, Profile]:
    """Return the profiles of the user's file; empty if there is no file."""
    file = profiles_file()
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:
        raise SettingsError(f"Cannot read the profiles in {file}: {error}") from None
    found = {name: _profile(name, given) for name, given in content.items()}
    if any(one.api_key for one in found.values()) and file.stat().st_mode & 0o077:
        print_note(f"{file} contains API keys, and other users can read it: run chmod 600 {file}")
    return found


def profiles_file() -> Path:
    """Return the path of the profiles file."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "pennon" / "profiles.toml"


def _find(name: str) -> Profile:
    known = read_profiles()
    if name not in known:
        listed = f" Known profiles: {', '.join(sorted(known))}." if known else ""
        raise SettingsError(f"Profile {name!r} not found in {profiles_file()}.{suggest(name, known)}{listed}")
    return known[name]


def _profile(name: str, given: object) -> Profile:
    fields = given if isinstance(given, dict) else {}
    unknown = sorted(fields.keys() - set(_FIELDS))
    if unknown:
        raise SettingsError(f"The profile {name!r} has {unknown[0]!r}; a profile has a url and an api_key.")
    if not isinstance(fields.get("url"), str) or not isinstance(fields.get("api_key", ""), str):
        raise SettingsError(f'The profile {name!r} needs url = "http…" and may have api_key = "…".')
    return Profile(**fields)


def _environment(name: str) -> str | None:
    return os.environ.get(f"{ENV_PREFIX}{name}") or None
