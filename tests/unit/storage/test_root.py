"""The locations of tables, and how clients reach them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from pennon.storage.root import StorageRoot

ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def storage_root(tmp_path: Path) -> StorageRoot:
    (tmp_path / "root").mkdir()
    return StorageRoot(str(tmp_path / "root"), {})


class TestNewTables:
    @pytest.mark.parametrize("name", ["t", "a.b", "A-1_b", ".hidden", "x" * 200])
    def test_a_plain_root_table_is_where_lancedb_looks_for_it(self, storage_root: StorageRoot, name: str) -> None:
        location = storage_root.new_location((name,), ID)
        assert location == f"{storage_root.root_location}/{name}.lance"
        assert storage_root.is_root_table((name,), location)
        assert storage_root.is_shown_by_root(location)
        assert storage_root.is_generated(location)

    @pytest.mark.parametrize(
        ("identifier", "readable"),
        [
            (("a", "t"), "a$t"),
            (("two words",), "two_words"),
            (("ü",), "_"),
            (("a", "b", "c"), "a$b$c"),
            (("a" * 200, "b" * 200), "a" * 180),
        ],
    )
    def test_any_other_has_a_folder_of_its_incarnation(
        self, storage_root: StorageRoot, identifier: tuple[str, ...], readable: str
    ) -> None:
        location = storage_root.new_location(identifier, ID)
        name = location.removeprefix(f"{storage_root.root_location}/")
        assert name == f"{ID[-12:]}_{readable}"
        assert "/" not in name
        assert len(name) < 255
        assert name.isascii()
        assert not storage_root.is_root_table(identifier, location)
        assert storage_root.is_generated(location)

    @pytest.mark.parametrize("name", ["t", "sub/t.lance", "", "0123456789a_t", "0123456789AB_t", "x.lance/y"])
    def test_other_places_are_not_of_its_making(self, storage_root: StorageRoot, name: str) -> None:
        assert not storage_root.is_generated(f"{storage_root.root_location}/{name}")
        assert not storage_root.is_generated(f"{storage_root.root_location}-other/t.lance")

    def test_the_root_may_be_a_uri(self, tmp_path: Path) -> None:
        assert StorageRoot(f"file://{tmp_path}/my%20root", {}).root_location == f"{tmp_path}/my root"
        assert StorageRoot("s3://bucket/prefix/", {"region": "eu"}).root_location == "s3://bucket/prefix"

    def test_storage_of_another_kind_is_refused(self) -> None:
        with pytest.raises(InvalidInputError, match="'ftp'"):
            StorageRoot("ftp://host/path", {})
        with pytest.raises(InvalidInputError, match="no bucket"):
            StorageRoot("s3://", {})


class TestLocations:
    def test_a_location_inside_the_root_may_be_written_in_several_ways(self, storage_root: StorageRoot) -> None:
        expected = f"{storage_root.root_location}/a b/t"
        for location in ("a b/t", "a b/t/", f"{expected}/", f"file://{storage_root.root_location}/a%20b/t", "a b//t"):
            assert storage_root.check_location(location) == expected

    def test_locations_on_an_object_store_are_compared_as_they_are(self) -> None:
        storage_root = StorageRoot("s3://bucket/prefix", {}, allowed_locations=["s3://other/allowed"])
        assert storage_root.check_location("t") == "s3://bucket/prefix/t"
        assert storage_root.check_location("s3://bucket/prefix//deep/t/") == "s3://bucket/prefix/deep/t"
        assert storage_root.check_location("s3://other/allowed/t") == "s3://other/allowed/t"
        for location in (
            "s3://bucket/prefix",
            "s3://bucket/prefixed/t",
            "s3://bucket/t",
            "s3://other/t",
            "/t",
            "gs://b/t",
        ):
            with pytest.raises(InvalidInputError):
                storage_root.check_location(location)
        with pytest.raises(InvalidInputError):
            storage_root.check_location("s3://bucket/prefix/../t")

    @pytest.mark.parametrize("more", ["#x", "?x", "%23", "%2e", "\t", "\n", "\x7f", " ", " /x", "/ x", "\\x"])
    def test_no_location_on_an_object_store_means_another(self, more: str) -> None:
        storage_root = StorageRoot("s3://bucket/prefix", {}, allowed_locations=["s3://other"])
        for location in (f"t{more}", f"s3://bucket/prefix/t{more}", f"s3://other/t{more}"):
            with pytest.raises(InvalidInputError, match="object store"):
                storage_root.check_location(location)
        with pytest.raises(InvalidInputError, match="object store"):
            StorageRoot(f"s3://bucket/t{more}", {})

    @given(st.text(st.characters(codec="utf-8"), max_size=30))
    @settings(max_examples=300, deadline=None)
    def test_no_text_leads_out_of_the_root(self, tmp_path_factory: pytest.TempPathFactory, location: str) -> None:
        root = tmp_path_factory.getbasetemp() / "places"
        storage_root = StorageRoot(str(root), {})
        for text in (location, f"/{location}", f"file:///{location}", f"x/{location}", f"{root}/{location}"):
            try:
                address = storage_root.check_location(text)
            except InvalidInputError:
                continue
            inside = os.path.normpath(address)
            assert inside.startswith(f"{root}/")
            assert address == inside

    def test_a_link_is_followed_to_its_end(self, storage_root: StorageRoot, tmp_path: Path) -> None:
        root = Path(storage_root.root_location)
        (root / "real").mkdir()
        (root / "link").symlink_to("real")
        (root / "out").symlink_to(tmp_path)
        (root / "loop").symlink_to("loop")
        assert storage_root.check_location("link/t") == f"{root}/real/t"
        with pytest.raises(InvalidInputError, match="link"):
            storage_root.check_location("out/t")
        for location in ("loop", "loop/t"):
            try:
                assert storage_root.check_location(location).startswith(f"{root}/loop")
            except InvalidInputError:
                continue

    def test_a_root_that_is_a_link_is_a_root(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "root").symlink_to("real")
        storage_root = StorageRoot(str(tmp_path / "root"), {})
        assert storage_root.check_location("t") == str(tmp_path / "root" / "t")


class TestOptions:
    def test_secrets_stay_here(self) -> None:
        plain = {
            "aws_region": "eu",
            "endpoint": "http://s3",
            "allow_http": "true",
            "timeout": "3s",
            "account_name": "a",
        }
        plain |= {"aws_sse_kms_key_id": "arn:aws:kms:eu:1:key/2", "aws_sse_bucket_key_enabled": "true"}
        secret = {
            "aws_secret_access_key": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "secret_access_key": "x",
            "aws_access_key_id": "x",
            "access_key_id": "x",
            "aws_session_token": "x",
            "session_token": "x",
            "google_service_account": "x",
            "service_account_key": "x",
            "application_credentials": "x",
            "azure_storage_account_key": "x",
            "account_key": "x",
            "azure_storage_sas_token": "x",
            "sas_key": "x",
            "azure_client_secret": "x",
            "client_secret": "x",
            "azure_storage_master_key": "x",
            "master_key": "x",
            "access_key": "x",
            "bearer_token": "x",
            "password": "x",
            "private_key": "x",
            "azure_storage_connection_string": "x",
            "aws_server_side_encryption_customer_key": "x",
            "sse_customer_key_base64": "x",
            "authorization": "x",
            "headers.authorization": "x",
        }
        storage_root = StorageRoot("/root", plain | secret)
        for vend in (None, True, False):
            assert storage_root.client_options(vend=vend) == plain

    def test_they_are_handed_out_where_the_settings_say_so(self) -> None:
        options = {"aws_region": "eu", "aws_secret_access_key": "x"}
        storage_root = StorageRoot("/root", options, vend_credentials=True)
        assert storage_root.client_options(vend=None) == options
        assert storage_root.client_options(vend=True) == options
        assert storage_root.client_options(vend=False) == {"aws_region": "eu"}

    def test_no_options_are_none(self) -> None:
        assert StorageRoot("/root", {}).client_options(vend=None) is None
        assert StorageRoot("/root", {"password": "x"}).client_options(vend=None) is None
