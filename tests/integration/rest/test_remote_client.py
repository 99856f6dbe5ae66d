"""What LanceDB's own remote client needs beyond the specification, asked on the wire and with the client itself."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import lancedb
import pyarrow as pa
import pytest

from tests.integration.rest.samples import STREAM, Home, stream
from tests.integration.rest.wire import Wire

if TYPE_CHECKING:
    from tests.support.server import PennonProcess


@pytest.fixture
def client(pennon_server: PennonProcess) -> Any:
    """LanceDB's remote client; on the shared server, so other tests' tables may be there too."""
    return lancedb.connect("db://anything", api_key="any", host_override=pennon_server.url)


@pytest.fixture
def prefix() -> str:
    return f"zz_{secrets.token_hex(5)}_"


class TestRootListing:
    def test_with_a_slash_the_names_in_the_root_are_listed(self, home: Home, prefix: str) -> None:
        for name in ("a", "b"):
            home.ask("table", prefix + name, "declare")
        home.ask("table", home.other(prefix + "nested"), "declare")
        listed = home.wire.get(f"/v1/table/?limit=1000&page_token={prefix}").json["tables"]
        assert [name for name in listed if name.startswith(prefix)] == [f"{prefix}a", f"{prefix}b"]
        everything = home.wire.get("/v1/table?limit=1000").json["tables"]
        assert f"{home.name}${prefix}nested" in everything

    def test_a_token_is_the_last_name_and_any_name_is_a_token(self, wire: Wire, home: Home, prefix: str) -> None:
        names = [f"{prefix}{letter}" for letter in "abcde"]
        for name in names:
            home.ask("table", name, "declare")
        first = wire.get(f"/v1/table/?limit=2&page_token={prefix}").json
        assert first == {"tables": names[:2], "page_token": names[1]}
        second = wire.get(f"/v1/table/?limit=2&page_token={first['page_token']}").json
        assert second["tables"] == names[2:4]
        skipped = wire.get(f"/v1/table/?limit=2&page_token={prefix}bzz").json
        assert skipped["tables"] == names[2:4]

    def test_names_are_tokens_also_in_a_namespace(self, wire: Wire, home: Home) -> None:
        for letter in "abc":
            home.ask("table", home.other(letter), "declare")
        path = f"/v1/namespace/{home.name}/table/list"
        assert wire.get(f"{path}?limit=2").json == {"tables": ["a", "b"], "page_token": "b"}
        assert wire.get(f"{path}?page_token=b").json == {"tables": ["c"]}
        assert wire.get(f"{path}?page_token=a%2Fb").outcome == (400, 13)

    def test_with_a_delimiter_the_specification_is_meant(self, wire: Wire, home: Home) -> None:
        home.ask("table", home.other("t"), "declare")
        assert f"{home.name}$t" in wire.get("/v1/table/?delimiter=%24&limit=1000").json["tables"]


class TestDescribing:
    def test_without_a_body_version_and_schema_are_returned(self, home: Home) -> None:
        home.fill()
        answer = home.wire.send("POST", f"/v1/table/{home.name}$t/describe/", b"")
        assert answer.json["version"] == 3
        assert [field["name"] for field in answer.json["schema"]["fields"]] == ["id", "word", "vector"]
        assert all("nullable" in field for field in answer.json["schema"]["fields"])
        assert answer.json["location"]
        assert answer.headers["phalanx-version"]
        old = home.wire.post(f"/v1/table/{home.name}$t/describe/", {"version": 1})
        assert old.json["version"] == 1
        plain = home.wire.post(f"/v1/table/{home.name}$t/describe?delimiter=%24")
        assert "schema" not in plain.json

    def test_capabilities_are_reported_in_every_place_where_the_client_reads_them(self, home: Home) -> None:
        home.fill()
        made = home.wire.post(f"/v1/table/{home.name}$made/create/", stream(), STREAM)
        location = home.wire.send("POST", f"/v1/table/{home.name}$made/describe/", b"").json["location"]
        responses = [
            made,
            home.wire.send("POST", f"/v1/table/{home.name}$t/describe/", b""),
            home.wire.post(f"/v1/table/{home.name}$copy/clone", {"source_location": location}),
            home.wire.get("/v1/table/"),
            home.wire.get(f"/v1/namespace/{home.name}/table/list"),
        ]
        assert [(answer.status, answer.headers["phalanx-version"]) for answer in responses] == [(200, "0.5.0")] * 5

    def test_a_declared_table_has_version_0_and_no_fields(self, home: Home) -> None:
        home.ask("table", home.other("d"), "declare")
        answer = home.wire.send("POST", f"/v1/table/{home.name}$d/describe/", b"").json
        assert (answer["version"], answer["schema"]["fields"]) == (0, [])

    def test_the_client_understands_every_type(self, client: Any, wire: Wire, prefix: str) -> None:
        kinds: list[pa.DataType] = [
            pa.bool_(),
            *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
            pa.float16(),
            pa.float32(),
            pa.float64(),
            pa.string(),
            pa.large_string(),
            pa.binary(),
            pa.large_binary(),
            pa.date32(),
            pa.date64(),
            pa.time32("s"),
            pa.time64("ns"),
            pa.timestamp("us"),
            pa.timestamp("ms", "UTC"),
            pa.duration("ms"),
            pa.decimal128(20, 3),
            pa.list_(pa.int32()),
            pa.large_list(pa.string()),
            pa.list_(pa.float32(), 4),
            pa.binary(16),
            pa.struct([pa.field("inner", pa.list_(pa.float32(), 2)), pa.field("needed", pa.int8(), nullable=False)]),
        ]
        schema = pa.schema([pa.field(f"c{number}", kind) for number, kind in enumerate(kinds)], {"about": "types"})
        table = f"{prefix}types"
        assert wire.post(f"/v1/table/{table}/create", stream(schema.empty_table()), STREAM).status == 200
        assert client.open_table(table).schema.equals(schema, check_metadata=True)


class TestRenaming:
    def test_the_clients_spelling_of_the_new_namespace_is_understood(self, home: Home) -> None:
        home.ask("table", home.other("t"), "declare")
        home.ask("namespace", home.other("inner"), "create")
        body = {"new_table_name": "moved", "new_namespace": [home.name, "inner"]}
        assert home.wire.post(f"/v1/table/{home.name}$t/rename/", body).status == 200
        assert home.wire.post(f"/v1/table/{home.name}$inner$moved/exists").status == 200

    def test_the_specifications_spelling_wins(self, home: Home) -> None:
        home.ask("table", home.other("t"), "declare")
        body = {"new_table_name": "u", "new_namespace_id": [home.name], "new_namespace": ["nope"]}
        assert home.wire.post(f"/v1/table/{home.name}%24t/rename", body).status == 200

    def test_the_client_itself_renames(self, client: Any, wire: Wire, prefix: str) -> None:
        assert wire.post(f"/v1/table/{prefix}old/create", stream(), STREAM).status == 200
        client.rename_table(f"{prefix}old", f"{prefix}new")
        assert client.open_table(f"{prefix}new").count_rows() == 3
        client.drop_table(f"{prefix}new")
        assert wire.post(f"/v1/table/{prefix}new/exists").outcome == (404, 4)


class TestCatalog:
    def test_the_client_lists_makes_and_drops_namespaces(self, client: Any, prefix: str) -> None:
        client.create_namespace([prefix])
        client.create_namespace([prefix, "inner"], mode="exist_ok", properties={"a": "b"})
        assert client.list_namespaces([prefix]).namespaces == ["inner"]
        assert client.describe_namespace([prefix, "inner"]).properties == {"a": "b"}
        client.drop_namespace([prefix], behavior="cascade")
        assert prefix not in client.list_namespaces([], limit=10_000).namespaces
