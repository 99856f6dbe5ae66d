"""Options of object stores: what Lance takes, the store that Pennon itself uses takes too."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial

import pytest
from lance_namespace.errors import InvalidInputError

from pennon.core.inline import NeedsThreadError, run_inline
from pennon.storage.object_store import ObjectStoreFileIO, split_options
from pennon.storage.root import StorageRoot

KEY = base64.b64encode(b"secret").decode()
SERVICE_ACCOUNT = '{"private_key": "x", "private_key_id": "", "client_email": "", "disable_oauth": true}'


@pytest.mark.parametrize(
    ("scheme", "options", "expected"),
    [
        ("s3", {"region": "eu", "AWS_ENDPOINT": "http://h"}, {"aws_region": "eu", "aws_endpoint": "http://h"}),
        ("gs", {"service_account_key": "{}"}, {"google_service_account_key": "{}"}),
        ("az", {"account_name": "a"}, {"azure_storage_account_name": "a"}),
        ("az", {"azure_storage_account_name": "a"}, {"azure_storage_account_name": "a"}),
        ("abfss", {"sas_token": "s=1"}, {"azure_storage_sas_key": "s=1"}),
        ("az", {"use_emulator": "true"}, {"azure_storage_use_emulator": "true"}),
    ],
)
def test_an_option_has_one_name_with_or_without_its_prefix(
    scheme: str, options: dict[str, str], expected: dict[str, str]
) -> None:
    assert split_options(scheme, options) == (expected, {})


def test_connection_options_are_recognized_and_options_of_lance_left_out() -> None:
    options = {"allow_http": "true", "timeout": "5s", "new_table_data_storage_version": "2.1"}
    assert split_options("gs", options) == ({}, {"allow_http": True, "timeout": "5s"})


@pytest.mark.parametrize(
    ("root", "options"),
    [
        ("gs://bucket/lake", {"service_account_key": SERVICE_ACCOUNT}),
        ("gs://bucket/lake", {"google_skip_signature": "true"}),
        ("az://container/lake", {"account_name": "a", "account_key": KEY}),
        ("az://container/lake", {"azure_storage_account_name": "a", "azure_storage_token": "t"}),
        ("az://container/lake", {"account_name": "a", "client_id": "c", "client_secret": "s", "tenant_id": "t"}),
        ("az://container/lake", {"account_name": "a", "use_emulator": "true", "allow_http": "true"}),
        ("abfss://container@a.dfs.core.windows.net/lake", {"sas_token": "sig=x"}),
    ],
)
def test_a_root_on_another_cloud_is_opened(root: str, options: dict[str, str]) -> None:
    storage_root = StorageRoot(root, options)
    assert storage_root.check_location("shop/teas.lance") == f"{root}/shop/teas.lance"
    opened = storage_root.folder(f"{root}/teas.lance")
    assert isinstance(opened, ObjectStoreFileIO)
    assert (opened.location, opened.store_path) == (f"{root}/teas.lance", "lake/teas.lance")


@pytest.mark.parametrize(
    ("root", "options", "said"),
    [
        ("az://container/lake", {}, "Account must be specified"),
        ("s3://bucket/lake", {"aws_skip_signature": "maybe"}, '"maybe" as boolean'),
        ("gs://bucket/lake", {"google_service_account": "/nowhere.json"}, "/nowhere.json"),
        ("s3://bucket:port/lake", {}, "port"),
    ],
)
def test_what_is_wrong_with_the_settings_of_a_root_is_one_line(root: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        StorageRoot(root, options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_event_loop_sends_no_request() -> None:
    folder = ObjectStoreFileIO("s3://bucket/lake", {"aws_endpoint": "http://127.0.0.1:9", "allow_http": "true"})
    requests: list[Callable[[], object]] = [
        partial(folder.exists, "x"),
        partial(folder.read, "x"),
        lambda: list(folder.files("x")),
        folder.folders,
        folder.is_empty,
        partial(folder.put_if_absent, "x", b""),
    ]
    for work in requests:
        with pytest.raises(NeedsThreadError):
            run_inline(work)
