"""Hostile manifests: whatever a client stages, the server refuses it or goes on serving, and shows no other files.

Every case commits one changed manifest over HTTP and then reads the table in all ways. The server has a limited address
space, so that a count of rows or bytes that it believes ends it.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import lance
import pyarrow as pa
import pytest

from tests.chaos.manifests import manifest_name, staged_name
from tests.integration.data.tables import DataTable
from tests.support.manifest_edits import edit_manifest, read_manifest
from tests.support.rest import RestClient
from tests.support.server import PennonProcess

SEED = 20_261_116
ADDRESS_SPACE = 6 * 1024**3
MEMORY = 2 * 1024**3
SECRET = b"what only the server may read"
HUGE = (2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
NAMES = ("", ".", "..", "../x.lance", "/etc/hostname", "a/b", "x" * 5000, "a\0b", "ﬀ", "missing.lance")

Edit = Callable[[Any, random.Random], None]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    directory = tmp_path_factory.mktemp("hostile")
    with PennonProcess(directory, address_space_bytes=ADDRESS_SPACE) as running:
        yield running


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a deletion, an index, nested fields, blobs and several fragments."""
    folder = tmp_path_factory.mktemp("template") / "t"
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema(
        [("id", pa.int64()), ("word", pa.string()), ("part", pa.struct([("x", pa.list_(pa.int32()))])), blob]
    )
    rows = [{"id": n, "word": f"w{n}", "part": {"x": [n]}, "blob": b"b" * n} for n in range(30)]
    data = pa.Table.from_pylist(rows, schema)
    dataset = lance.write_dataset(data, folder, max_rows_per_file=10, enable_stable_row_ids=True)
    dataset.delete("id = 3")
    dataset.create_scalar_index("id", "BTREE")
    return folder


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table beside the server's, whose rows nobody may see."""
    folder = tmp_path_factory.mktemp("secret") / "t"
    lance.write_dataset(pa.table({"id": [1], "word": [SECRET.decode()]}), folder)
    return folder


def _a_file(manifest: Any, chance: random.Random) -> None:
    for file in chance.choice(manifest.fragments).files:
        file.path = chance.choice(NAMES)


def _a_base(manifest: Any, chance: random.Random) -> None:
    base = manifest.base_paths.add(id=chance.choice([0, 1, 2**32 - 1]), is_dataset_root=chance.choice([0, 1]))
    base.path = chance.choice(["/etc", "file:///etc", "s3://b/x", "../..", "", *NAMES])
    manifest.reader_feature_flags |= 16
    for fragment in manifest.fragments:
        for file in fragment.files:
            file.base_id = base.id


def _a_clone(manifest: Any, secret: Path) -> None:
    """Make the manifest that of a shallow clone of a table that its writer may not read."""
    (file,) = (secret / "data").iterdir()
    manifest.base_paths.add(id=1, is_dataset_root=1, path=str(secret))
    manifest.reader_feature_flags |= 16
    manifest.fragments[0].files[0].path, manifest.fragments[0].files[0].base_id = file.name, 1


def _a_count(manifest: Any, chance: random.Random) -> None:
    fragment, value = chance.choice(manifest.fragments), chance.choice(HUGE)
    which = chance.randrange(6)
    if which == 0:
        fragment.physical_rows = value
    elif which == 1:
        fragment.id = value
    elif which == 2:
        manifest.max_fragment_id = value % 2**32
    elif which == 3:
        manifest.next_row_id = value
    elif which == 4:
        fragment.deletion_file.num_deleted_rows = value
    else:
        fragment.deletion_file.id = value


def _a_section(manifest: Any, chance: random.Random) -> None:
    position = chance.choice([0, 1, 50, 10**6, *HUGE])
    sections = ["index_section", "old_transaction_section", "transaction_section"]
    setattr(manifest, chance.choice(sections), position)


def _a_label(manifest: Any, chance: random.Random) -> None:
    field = chance.choice(manifest.fields)
    key = chance.choice(["lance-encoding:blob", "ARROW:extension:name", "packed", "lance-encoding:packed"])
    value = chance.choice([b"true", b"lance.blob.v2", b"arrow.json", b"\xff", b""])
    field.metadata.add(key=key, value=value)


def _a_name(manifest: Any, chance: random.Random) -> None:
    field, other = chance.choice(manifest.fields), chance.choice(manifest.fields)
    field.name = chance.choice([other.name, other.name.upper(), "", ".", "a.b", "`", "_rowid", "_rowaddr", "x" * 5000])


def _a_type(manifest: Any, chance: random.Random) -> None:
    field = chance.choice(manifest.fields)
    kinds = ["", "struct", "list", "int64", "fixed_size_list:float:0", "fixed_size_list:float:99999999999", "dict:x"]
    field.logical_type = chance.choice([*kinds, "decimal:128:99:99", "timestamp:us:Nowhere", "fixed_size_binary:-1"])


def _a_tree(manifest: Any, chance: random.Random) -> None:
    field, other = chance.choice(manifest.fields), chance.choice(manifest.fields)
    which = chance.randrange(4)
    if which == 0:
        field.parent_id = other.id
    elif which == 1:
        field.id = other.id
    elif which == 2:
        field.id = chance.choice([-2, -1, 2**31 - 1])
    else:
        depth = chance.choice([10, 63, 200, 5000])
        for number in range(1000, 1000 + depth):
            kind = "struct" if number < 999 + depth else "int32"
            parent = -1 if number == 1000 else number - 1
            manifest.fields.add(name=f"f{number}", id=number, parent_id=parent, logical_type=kind)


def _row_ids(manifest: Any, chance: random.Random) -> None:
    fragment = chance.choice(manifest.fragments)
    if chance.random() < 0.3:
        fragment.ClearField("inline_row_ids")
        fragment.external_row_ids.path = chance.choice(NAMES)
        fragment.external_row_ids.size = chance.choice(HUGE)
    else:
        fragment.inline_row_ids = chance.randbytes(chance.choice([0, 1, 30]))


def _fragments(manifest: Any, chance: random.Random) -> None:
    which = chance.randrange(3)
    if which == 0:
        del manifest.fragments[:]
    elif which == 1:
        manifest.fragments.add().CopyFrom(manifest.fragments[0])
    else:
        del chance.choice(manifest.fragments).files[:]


def _flags(manifest: Any, chance: random.Random) -> None:
    manifest.reader_feature_flags = chance.choice([0, 63, 64, 2**64 - 1])
    manifest.writer_feature_flags = chance.choice([0, 63, 2**64 - 1])


EDITS: tuple[Edit, ...] = (
    *(_a_file, _a_base, _a_count, _a_section, _a_label, _a_name, _a_type, _a_tree, _row_ids, _fragments, _flags),
)


def mutate(content: bytes, chance: random.Random) -> bytes:
    """Return a manifest with changed bytes, or with changed fields."""
    if chance.random() < 0.25:
        changed = bytearray(content)
        for _ in range(chance.randint(1, 8)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        return bytes(changed[: chance.randint(0, len(changed))]) if chance.random() < 0.1 else bytes(changed)

    def edit(manifest: Any) -> None:
        for _ in range(chance.randint(1, 2)):
            if manifest.fragments and manifest.fields:
                chance.choice(EDITS)(manifest, chance)

    return edit_manifest(content, edit)


def numbered(content: bytes, version: int) -> bytes:
    return edit_manifest(content, lambda manifest: setattr(manifest, "version", version))


def commit(table: DataTable, folder: Path, content: bytes, version: int) -> httpx.Response:
    staged = folder / "_versions" / staged_name(version)
    staged.parent.mkdir(exist_ok=True)
    staged.write_bytes(content)
    body = {"id": table.names, "version": version, "manifest_path": str(staged).lstrip("/")}
    return table.ask("version/create", body)


def reads(table: DataTable) -> Iterator[httpx.Response]:
    """Read a table in all ways, and write to it in some."""
    yield table.ask("describe", {"load_detailed_metadata": True})
    yield table.ask("query", {"k": 100})
    yield table.ask("query", {"k": 5, "filter": "id > 4", "with_row_id": True})
    yield table.ask("count_rows", {"predicate": "id > 4"})
    yield table.ask("count_rows", {"predicate": "length(repeat(word, 100)) >= 0"})  # in a process of its own
    yield table.ask("stats")
    yield table.ask("index/list")
    yield table.http.raw.get(f"{table.path}/blob/blob/5/bytes")
    yield table.ask("fetch_blobs", {"column": "blob", "row_ids": [5, 6]})
    yield table.ask("version/list")
    yield table.ask("delete", {"predicate": "id = 7"})
    yield table.ask("update", {"updates": [["word", "'x'"]], "predicate": "id = 8"})
    yield table.ask("add_columns", {"new_columns": [{"name": "added", "expression": "id + 1"}]})
    yield table.ask("restore", {"version": 1})
    place = table.do("describe")["location"]
    copy = DataTable(table.http)
    yield copy.ask("clone", {"source_location": place, "is_shallow": False})
    yield copy.ask("query", {"k": 100})


def run_case(server: PennonProcess, template: Path, secret: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 (a case must be the same each time)
    with RestClient(server.url) as http:
        table = DataTable(http)
        table.do("declare")
        folder = Path(table.do("describe")["location"])
        shutil.copytree(template, folder, ignore=shutil.ignore_patterns("_versions"), dirs_exist_ok=True)
        content = read_manifest(template / "_versions" / manifest_name(3))
        version = chance.choice([1, 2])
        if version == 2:
            assert commit(table, folder, numbered(content, 1), 1).status_code == 200
        hostile = mutate(numbered(content, version), chance)
        if chance.random() < 0.15:
            hostile = edit_manifest(numbered(content, version), lambda manifest: _a_clone(manifest, secret))
        answers = [commit(table, folder, hostile, version), *reads(table)]
        for answer in answers:
            assert answer.status_code < 500, f"seed {seed}: {answer.request.url} gave {answer.text}"
            assert answer.status_code < 400 or answer.json()["code"] > 0
            assert SECRET not in answer.content
        if version == 2:
            assert table.count(version=1) == 29, f"seed {seed}"
    assert server.returncode is None, f"seed {seed} ended the server: {server.stderr[-2000:]}"
    assert server.peak_memory_bytes < MEMORY, f"seed {seed}"


def test_no_manifest_ends_the_server_or_leads_out_of_its_table(
    server: PennonProcess, template: Path, secret: Path
) -> None:
    for seed in range(SEED, SEED + 24):
        run_case(server, template, secret, seed)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_manifest_of_many_ends_the_server(server: PennonProcess, template: Path, secret: Path) -> None:
    seed, until = random.SystemRandom().randrange(2**32), time.monotonic() + 300
    while time.monotonic() < until:
        try:
            run_case(server, template, secret, seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        seed += 1
