"""Proof that the servers which other tests rely on are real, and as strict as those of production."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import lance
import obstore
import psycopg
import pyarrow as pa
import pytest
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, PreconditionError
from obstore.store import S3Store

from tests.support.components import unavailable
from tests.support.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.s3 import S3Root, S3Server

RACERS = 8
ROUNDS = 25


def race(attempt: Callable[[int], bool]) -> int:
    """Let threads attempt something at the same moment and return how many of them succeeded."""
    start = threading.Barrier(RACERS)

    def run(number: int) -> bool:
        start.wait(timeout=30)
        return attempt(number)

    with ThreadPoolExecutor(RACERS) as threads:
        return sum(threads.map(run, range(RACERS)))


def store_of(root: S3Root) -> Any:
    return S3Store.from_url(
        root.url,
        endpoint=root.options["aws_endpoint"],
        region=root.options["aws_region"],
        access_key_id=root.options["aws_access_key_id"],
        secret_access_key=root.options["aws_secret_access_key"],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


class TestPostgres:
    def test_it_is_a_real_server_that_keeps_what_it_is_given(self, postgres_url: str) -> None:
        with psycopg.connect(postgres_url) as connection:
            connection.execute("CREATE TABLE things (name text PRIMARY KEY)")
            connection.execute("INSERT INTO things VALUES ('one')")
        with psycopg.connect(postgres_url) as connection:
            assert connection.execute("SELECT name FROM things").fetchall() == [("one",)]

    @pytest.mark.parametrize("run", [1, 2])
    def test_every_test_has_an_empty_database(self, postgres_url: str, run: int) -> None:
        with psycopg.connect(postgres_url) as connection:
            connection.execute("CREATE TABLE things (name text PRIMARY KEY)")

    def test_a_database_is_dropped_with_its_open_connections(self, postgres_server: PostgresServer) -> None:
        name = postgres_server.create_database()
        with psycopg.connect(postgres_server.url(name)) as connection:
            postgres_server.drop_database(name)
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")

    def test_a_wrong_password_is_refused(self, postgres_url: str) -> None:
        before, _, after = postgres_url.partition("@")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(f"{before}x@{after}")

    def test_a_unique_key_has_one_winner(self, postgres_url: str) -> None:
        with psycopg.connect(postgres_url) as connection:
            connection.execute("CREATE TABLE commits (version int PRIMARY KEY, by int)")

        def commit(number: int) -> bool:
            with psycopg.connect(postgres_url) as connection:
                try:
                    connection.execute("INSERT INTO commits VALUES (1, %s)", [number])
                except psycopg.errors.UniqueViolation:
                    return False
            return True

        assert race(commit) == 1

    def test_it_ends_with_the_tests(self, postgres_server: PostgresServer) -> None:
        with PostgresServer(postgres_server.binaries) as server:
            folder = server.folder
            assert Path(f"/proc/{server.pid}").exists() or sys.platform != "linux"
        assert not folder.exists()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url("postgres"))


class TestS3:
    def test_a_key_is_created_once(self, s3_root: S3Root) -> None:
        store = store_of(s3_root)
        obstore.put(store, "once", b"first", mode="create")
        with pytest.raises(AlreadyExistsError):
            obstore.put(store, "once", b"second", mode="create")
        assert bytes(obstore.get(store, "once").bytes()) == b"first"

    def test_racing_creations_have_one_winner_and_it_is_what_is_stored(self, s3_root: S3Root) -> None:
        store = store_of(s3_root)
        for turn in range(ROUNDS):
            winners: list[int] = []

            def create(number: int, key: str = f"{turn}", winners: list[int] = winners) -> bool:
                try:
                    obstore.put(store, key, str(number).encode() * 4096, mode="create")
                except AlreadyExistsError:
                    return False
                winners.append(number)
                return True

            assert race(create) == 1
            assert bytes(obstore.get(store, f"{turn}").bytes()) == str(winners[0]).encode() * 4096

    def test_racing_updates_have_one_winner(self, s3_root: S3Root) -> None:
        store = store_of(s3_root)
        for turn in range(ROUNDS):
            seen = obstore.put(store, "counter", f"start {turn}".encode())["e_tag"]

            def update(number: int, seen: str = seen) -> bool:
                try:
                    obstore.put(store, "counter", f"{number}".encode(), mode={"e_tag": seen})
                except PreconditionError:
                    return False
                return True

            assert race(update) == 1

    def test_racing_multipart_creations_have_one_winner(self, s3_server: S3Server, s3_root: S3Root) -> None:
        client = s3_server.client()
        key = {"Bucket": s3_root.bucket, "Key": "big"}

        def create(number: int) -> bool:
            upload = client.create_multipart_upload(**key)["UploadId"]
            part = client.upload_part(**key, UploadId=upload, PartNumber=1, Body=str(number).encode())
            parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
            try:
                client.complete_multipart_upload(**key, UploadId=upload, MultipartUpload=parts, IfNoneMatch="*")
            except client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] != "PreconditionFailed":
                    raise
                return False
            return True

        assert race(create) == 1

    def test_racing_appends_of_lance_are_all_kept(self, s3_root: S3Root) -> None:
        url = f"{s3_root.url}/numbers.lance"
        lance.write_dataset(pa.table({"n": [0]}), url, storage_options=s3_root.options)

        def append(number: int) -> None:
            for step in range(3):
                rows = pa.table({"n": [number * 3 + step]})
                lance.write_dataset(rows, url, mode="append", storage_options=s3_root.options)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(append, range(1, 5)))
        dataset = lance.dataset(url, storage_options=s3_root.options)
        assert sorted(dataset.to_table()["n"].to_pylist()) == [0, *range(3, 15)]
        assert dataset.version == 13

    def test_a_bucket_is_empty_at_first(self, s3_root: S3Root) -> None:
        assert list(obstore.list(store_of(s3_root)).collect()) == []

    def test_a_key_id_that_is_not_known_is_refused(self, s3_root: S3Root) -> None:
        stranger = replace(s3_root, options={**s3_root.options, "aws_access_key_id": "stranger"})
        with pytest.raises(PermissionDeniedError):
            obstore.put(store_of(stranger), "key", b"")

    def test_a_signed_link_needs_no_key(self, s3_server: S3Server, s3_root: S3Root) -> None:
        asked = {"Bucket": s3_root.bucket, "Key": "key"}
        s3_server.client().put_object(**asked, Body=b"content")
        link = s3_server.client().generate_presigned_url("get_object", Params=asked)
        assert httpx.get(link, trust_env=False).content == b"content"
        assert httpx.get(link.partition("?")[0], trust_env=False).status_code == 403

    def test_it_ends_when_its_input_does(self) -> None:
        command = [sys.executable, "-m", "tests.support.s3_app", "key"]
        root = Path(__file__).resolve().parents[2]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, cwd=root, timeout=60, check=True)
        assert int(ended.stdout) > 0


@pytest.mark.parametrize("run", [1, 2])
def test_a_catalog_url_is_of_both_kinds(catalog_url: str, run: int) -> None:
    assert catalog_url.startswith(("sqlite:///", "postgresql://"))


def test_a_missing_program_is_an_error_when_skipping_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception):
        unavailable("A program")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception):
        unavailable("A program")
