"""Profiles: servers that are called by a name, kept in a file of the user's."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pennon.cli.output import Form, FormOption, note, show, table_of
from pennon.core.errors import suggest
from pennon.core.settings import ENV_PREFIX, SettingsError

HERE = "http://127.0.0.1:2333"
#: The profile that is meant when nothing else is said.
DEFAULT = "default"
_FIELDS = ("url", "api_key")


@dataclass(frozen=True)
class Profile:
    """A server and the key to call it with."""

    url: str
    api_key: str | None = None


def list_profiles(output: FormOption = Form.TABLE) -> None:
    """List the servers that --profile calls by a name, from ~/.config/pennon/profiles.toml."""
    known = read_profiles()
    if not known and output is Form.TABLE:
        note(f'There are none. Write them to {profiles_file()}: [NAME], then url = "…" and api_key = "…".')
        return
    found = [{"name": name, "url": one.url, "has_key": one.api_key is not None} for name, one in known.items()]
    rows = [(row["name"], row["url"], "yes" if row["has_key"] else "no") for row in found]
    show(output, found, table_of(("Profile", "Address", "Key"), rows))


def choose_server(url: str | None, api_key: str | None, profile: str | None) -> Profile:
    """Return which server to call: flags before a profile that was asked for, that before the environment.

    The key of a profile goes to the server of that profile, or to the one that is named beside it.
    """
    stated = _environment("URL")
    named = profile or (None if url or stated else _environment("PROFILE"))
    if named is not None:
        chosen = _find(named)
        return Profile(url or chosen.url, api_key or chosen.api_key or _environment("API_KEY"))
    own = None if url or stated else read_profiles().get(DEFAULT)
    key = api_key or _environment("API_KEY") or (own.api_key if own else None)
    return Profile(url or stated or (own.url if own else HERE), key)


def read_profiles() -> dict[str, Profile]:
    """Return the profiles of the user's file; none when there is no file."""
    file = profiles_file()
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:
        raise SettingsError(f"The profiles in {file} cannot be read: {error}") from None
    found = {name: _profile(name, given) for name, given in content.items()}
    if any(one.api_key for one in found.values()) and file.stat().st_mode & 0o077:
        note(f"{file} holds keys, and other users can read it: run chmod 600 {file}")
    return found


def profiles_file() -> Path:
    """Return where profiles are kept."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "pennon" / "profiles.toml"


def _find(name: str) -> Profile:
    known = read_profiles()
    if name not in known:
        there = f" It has {', '.join(sorted(known))}." if known else ""
        raise SettingsError(f"There is no profile {name!r} in {profiles_file()}.{suggest(name, known)}{there}")
    return known[name]


def _profile(name: str, given: Any) -> Profile:
    fields = given if isinstance(given, dict) else {}
    unknown = sorted(fields.keys() - set(_FIELDS))
    if unknown:
        raise SettingsError(f"The profile {name!r} has {unknown[0]!r}; a profile has a url and an api_key.")
    if not isinstance(fields.get("url"), str) or not isinstance(fields.get("api_key", ""), str):
        raise SettingsError(f'The profile {name!r} needs url = "http…" and may have api_key = "…".')
    return Profile(**fields)


def _environment(name: str) -> str | None:
    return os.environ.get(f"{ENV_PREFIX}{name}") or None
