"""The doctor on real databases and stores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pennon.storage.layout import manifest_name
from tests.integration.data.tables import DataTable, error, rows
from tests.support.rest import RestClient
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_root_of_another_catalog_is_adopted_on_purpose(
    pennon: Pennon, start_pennon: StartPennon, tmp_path: Path
) -> None:
    owner = start_pennon()
    other = start_pennon("--root", str(owner.directory), directory=tmp_path / "other")
    with RestClient(owner.url) as mine, RestClient(other.url) as theirs:
        DataTable(mine, "teas").create(rows(3))
        teas = DataTable(theirs, "teas")
        assert teas.count() == 3
        for verb, body in (
            ("drop", {}),
            ("delete", {"predicate": "true"}),
            ("tags/create", {"tag": "t", "version": 1}),
        ):
            refusal = teas.ask(verb, body)
            assert error(refusal) == (403, 15)
            assert "pennon doctor --adopt" in refusal.text
        place = ("-d", other.directory, "--root", owner.directory, "--port", 0, "-o", "json")
        found = checks(pennon("doctor", *place, expect=1).stdout)
        assert (found["Ownership"]["status"], found["Ownership"]["fix"]) == ("FAIL", "pennon doctor --adopt")
        assert checks(pennon("doctor", "--adopt", *place).stdout)["Ownership"]["status"] == "OK"
        wait_until(lambda: teas.ask("tags/create", {"tag": "t", "version": 1}).status_code == 200)
        # The former owner may write until it reads the mark again, within a second.
        wait_until(lambda: DataTable(mine, "teas").ask("tags/create", {"tag": "u", "version": 1}).status_code == 403)
        assert error(DataTable(mine, "teas").ask("delete", {"predicate": "true"})) == (403, 15)
        assert teas.count() == 3


def test_a_version_that_cannot_be_read_is_repaired(pennon: Pennon, start_pennon: StartPennon) -> None:
    server = start_pennon()
    with RestClient(server.url) as http:
        table = DataTable(http, "teas").create(rows(3))
        table.put("insert", rows(2))
    server.stop()
    (server.directory / "teas.lance" / "_versions" / manifest_name(2, "V2")).write_bytes(b"")
    place = ("-d", server.directory, "--port", 0, "-o", "json")
    broken = checks(pennon("doctor", *place, expect=1).stdout)["Versions"]
    assert (broken["status"], broken["fix"]) == ("FAIL", "pennon doctor --repair")
    repaired = checks(pennon("doctor", "--repair", *place).stdout)["Versions"]
    assert (repaired["status"], "version 2 of teas" in repaired["detail"]) == ("WARN", True)
