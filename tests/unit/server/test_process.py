"""Starting a server: whom it may listen to."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from pennon.catalog import keys, open_database
from pennon.core.caller import Role
from pennon.core.settings import SettingsError, load_settings
from pennon.server.process import address_of, bind, is_loopback, require_keys

if TYPE_CHECKING:
    from pathlib import Path

EVERYWHERE = "0.0.0.0"  # noqa: S104 (nothing listens there: it is only asked about)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.9", "::1"])
def test_addresses_of_this_machine_are_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "10.0.0.1", "example.com", ""])
def test_all_others_lead_beyond_it(host: str) -> None:
    assert not is_loopback(host)


def test_an_address_is_one_that_browsers_take() -> None:
    assert address_of("127.0.0.1", 80) == "http://127.0.0.1:80"
    assert address_of("::1", 80) == "http://[::1]:80"


def test_an_address_of_another_machine_is_a_matter_of_the_host() -> None:
    with pytest.raises(SettingsError, match="--host"):
        bind("192.0.2.1", 0)


def test_it_listens_on_other_interfaces_only_if_allowed_or_if_keys_are_required(tmp_path: Path) -> None:
    beyond = load_settings(directory=tmp_path, host=EVERYWHERE)
    with pytest.raises(SettingsError, match="--insecure"):
        require_keys(beyond)
    require_keys(beyond.model_copy(update={"host": "127.0.0.1"}))
    require_keys(beyond.model_copy(update={"insecure": True}))
    with closing(open_database(beyond.database_url)) as database:
        database.write(lambda connection: keys.create(connection, "ada", Role.READER, (), None))
    require_keys(beyond)
