"""A running server with the storage beneath it, and tables seen from both sides at once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import lance_namespace as ln
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.support.s3 import S3Server
    from tests.support.server import PennonProcess

HIGHEST = 2**64 - 1
FINAL = re.compile(r"(\d{20})\.manifest")
HINT = "latest_version_hint.json"
WIDTH = 8
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


def rows(*bounds: int) -> pa.Table:
    """Return rows with the ids of a range: an id, a text and a vector made from it."""
    ids = list(range(*bounds))
    values = pa.array([float((number * 31 + place) % 17) for number in ids for place in range(WIDTH)], pa.float32())
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": pa.array([f"word{number % 5} number {number}" for number in ids], pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(values, WIDTH),
        }
    )


def ids_of(table: pa.Table) -> list[int]:
    """Return the ids in a table, in order."""
    return sorted(table["id"].to_pylist())


def arrow_stream(data: pa.Table) -> bytes:
    """Return rows as the body of a request."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_table(data)
    return bytes(sink.getvalue().to_pybytes())


@dataclass(frozen=True)
class Lake:
    """A server, its address, and where its tables are."""

    server: PennonProcess
    options: dict[str, str] = field(default_factory=dict)
    s3: S3Server | None = None

    @property
    def url(self) -> str:
        return self.server.url

    def connect(self, **properties: str) -> ln.LanceNamespace:
        """Return pylance's client of the server."""
        return ln.connect("rest", {"uri": self.url, **properties})

    def files(self, location: str, folder: str) -> set[str]:
        """Return the names of the files in a folder of a table."""
        if self.s3 is None:
            path = Path(location, folder)
            return {found.name for found in path.iterdir()} if path.is_dir() else set()
        bucket, _, prefix = f"{location}/{folder}/".removeprefix("s3://").partition("/")
        pages = self.s3.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, Delimiter="/")
        return {found["Key"].removeprefix(prefix) for page in pages for found in page.get("Contents", [])}

    def is_empty(self, location: str) -> bool:
        """Tell whether nothing is left at a location."""
        if self.s3 is None:
            return not Path(location).exists()
        bucket, _, prefix = f"{location}/".removeprefix("s3://").partition("/")
        found = self.s3.client().list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)
        return "Contents" not in found

    def read(self, location: str) -> dict[str, bytes]:
        """Return all files at a location by their paths."""
        if self.s3 is None:
            found = (path for path in Path(location).rglob("*") if path.is_file())
            return {str(path.relative_to(location)): path.read_bytes() for path in found}
        client = self.s3.client()
        bucket, _, prefix = f"{location}/".removeprefix("s3://").partition("/")
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
        return {key.removeprefix(prefix): client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}

    def put(self, location: str, path: str, content: bytes) -> None:
        """Write a file at a location."""
        if self.s3 is None:
            target = Path(location, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        else:
            bucket, _, key = f"{location}/{path}".removeprefix("s3://").partition("/")
            self.s3.client().put_object(Bucket=bucket, Key=key, Body=content)


class ClientTable:
    """One table, written with pylance and compared with what the server says of it."""

    def __init__(self, lake: Lake, client: ln.LanceNamespace, *identifier: str) -> None:
        self.lake = lake
        self.client = client
        self.id = list(identifier)

    @property
    def location(self) -> str:
        location = self.client.describe_table(ln.DescribeTableRequest(id=self.id)).location
        assert location is not None
        return location

    def write(self, data: pa.Table, mode: str = "append") -> lance.LanceDataset:
        return lance.write_dataset(data, namespace_client=self.client, table_id=self.id, mode=mode)

    def open(self, **options: Any) -> lance.LanceDataset:
        return lance.dataset(namespace_client=self.client, table_id=self.id, **options)

    def update_in_place(self, key: str, changed: pa.Table) -> None:
        """Write columns by ``update_columns``, which marks no row; retry if another writer was faster."""
        for _ in range(20):
            before = self.open()
            within = f"{key} IN ({', '.join(map(str, changed[key].to_pylist()))})"
            found = [fragment for fragment in before.get_fragments() if fragment.count_rows(within)]
            written = [fragment.update_columns(changed, left_on=key, right_on=key) for fragment in found]
            if not written:
                return
            fields = sorted({number for _, numbers in written for number in numbers})
            fragments = [metadata for metadata, _ in written]
            try:
                lance.LanceDataset.commit(
                    before,
                    lance.LanceOperation.Update(updated_fragments=fragments, fields_modified=fields),
                    read_version=before.version,
                    namespace_client=self.client,
                    table_id=self.id,
                    namespace_client_managed_versioning=True,
                )
            except OSError as error:
                if "conflict" not in str(error):
                    raise
            else:
                return

    def on_branch(self, branch: str, version: int | None = None) -> lance.LanceDataset:
        return self.open().checkout_version((branch, version))

    def recorded(self, branch: str | None = None) -> list[int]:
        """Return the version numbers that the server lists."""
        found = self.client.list_table_versions(ln.ListTableVersionsRequest(id=self.id, branch=branch))
        return [version.version for version in found.versions]

    def stored(self, branch: str | None = None) -> list[int]:
        """Return the version numbers whose manifests are on storage, and insist that nothing else is there."""
        folder = f"tree/{branch}/_versions" if branch else "_versions"
        names = self.lake.files(self.location, folder) - {HINT}
        matches = {name: FINAL.fullmatch(name) for name in names}
        assert all(matches.values()), f"left in {folder}: {sorted(n for n, match in matches.items() if not match)}"
        return sorted(HIGHEST - int(match[1]) for match in matches.values() if match)

    def check(self, *, version: int, ids: Iterable[int], branch: str | None = None) -> lance.LanceDataset:
        """Insist that server, storage and a fresh client agree on the versions, and that the rows are right."""
        dataset = self.on_branch(branch) if branch else self.open()
        assert dataset.version == version
        assert self.recorded(branch) == self.stored(branch)
        assert self.recorded(branch)[-1] == version
        assert sorted(found["version"] for found in dataset.versions()) == self.recorded(branch)
        assert ids_of(dataset.to_table(columns=["id"])) == sorted(ids)
        return dataset
