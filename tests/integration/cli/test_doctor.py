"""The doctor on real databases and stores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.conftest import StartPennon
    from tests.integration.cli.conftest import Pennon
    from tests.support.s3 import S3Root, S3Server


def checks(said: str) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(said)}


def test_postgresql_and_s3_are_well(pennon: Pennon, postgres_url: str, s3_root: S3Root, s3_server: S3Server) -> None:
    options = ("--root", s3_root.url, "--storage-options", json.dumps(s3_root.options))
    pennon("migrate", "--database", postgres_url)
    found = checks(pennon("doctor", "--database", postgres_url, *options, "--port", 0, "-o", "json").stdout)
    assert {name: found[name]["status"] for name in ("Database", "Storage", "Clock")} == {
        "Database": "OK",
        "Storage": "OK",
        "Clock": "OK",
    }
    assert found["Clock"]["detail"] == "agrees with the database and the object store"
    assert "Contents" not in s3_server.client().list_objects_v2(Bucket=s3_root.bucket)


def test_an_empty_postgresql_is_to_be_migrated(pennon: Pennon, postgres_url: str) -> None:
    found = checks(pennon("doctor", "--database", postgres_url, "--port", 0, "-o", "json").stdout)
    assert (found["Database"]["status"], found["Database"]["fix"]) == ("WARN", "pennon migrate")


def test_a_bucket_that_is_not_there_fails(pennon: Pennon, s3_root: S3Root) -> None:
    options = ("--root", "s3://no-such-bucket/lake", "--storage-options", json.dumps(s3_root.options))
    found = checks(pennon("doctor", *options, "--port", 0, "-o", "json", expect=1).stdout)
    assert found["Storage"]["status"] == "FAIL"
    assert s3_root.options["aws_secret_access_key"] not in json.dumps(found)


def test_a_port_that_a_server_has_fails(pennon: Pennon, start_pennon: StartPennon) -> None:
    server = start_pennon()
    port = server.url.rsplit(":", 1)[1]
    found = checks(pennon("doctor", "-d", server.directory, "--port", port, "-o", "json", expect=1).stdout)
    assert [name for name, check in found.items() if check["status"] == "FAIL"] == ["Port"]
