"""A catalog in this process with its tables on a disk, and short ways to ask it for things."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import lance_namespace as ln
import pyarrow as pa

from pennon.namespace import PennonNamespace
from pennon.storage.layout import parse_manifest_name

MODELS = {"ListAllTables": "ListTables", "CreateEmptyTable": "DeclareTable"}
#: What the catalog holds besides transactions, which tell of what was asked for and not of what is.
RECORDS = (
    "SELECT path, properties FROM namespaces ORDER BY path",
    "SELECT id, namespace, name, location, origin, managed, declared, properties FROM tables ORDER BY id",
    "SELECT table_id, branch, version, manifest, size, e_tag, digest, pending FROM versions ORDER BY 1, 2, 3",
    "SELECT location, table_id FROM garbage ORDER BY location",
)


def parts(identifier: str) -> list[str]:
    """Return the names of an identifier written with ``$``; that alone is the root namespace."""
    return [] if identifier == "$" else identifier.split("$")


def rows(count: int = 2, start: int = 0) -> pa.Table:
    """Return some rows."""
    return pa.table({"number": list(range(start, start + count))})


def tag_of(file: Path) -> str:
    """Return the entity tag that Lance's object store gives a file on a disk."""
    status = file.stat()
    return f'"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-{status.st_size:x}"'


def files_below(folder: Path) -> dict[str, str]:
    """Return the digest of every file below a folder, by its path; a link by where it leads."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@dataclass(frozen=True)
class Staged:
    """A manifest that a client has put in place to be committed."""

    file: Path
    version: int

    @property
    def path(self) -> str:
        """The path by which Lance names it."""
        return str(self.file).lstrip("/")

    @property
    def request(self) -> dict[str, Any]:
        """The fields with which a client asks for the commit."""
        size = self.file.stat().st_size
        return {"version": self.version, "manifest_path": self.path, "manifest_size": size, "e_tag": tag_of(self.file)}


class Lake:
    """One namespace and its root folder."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.root = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.ns = PennonNamespace(directory=directory, **settings)

    def __call__(self, operation: str, identifier: str | None = None, **fields: Any) -> Any:
        """Run an operation of the protocol on an object, and return its answer."""
        model = getattr(ln, f"{MODELS.get(operation, operation)}Request")
        method = "".join(f"_{char.lower()}" if char.isupper() else char for char in operation).lstrip("_")
        if identifier is not None:
            fields["id"] = parts(identifier)
        return getattr(self.ns, method)(model(**fields))

    def write(self, identifier: str, table: pa.Table | None = None, mode: str = "create", **options: Any) -> Any:
        """Write rows with Lance, committed through the namespace."""
        data = rows() if table is None else table
        return lance.write_dataset(data, namespace_client=self.ns, table_id=parts(identifier), mode=mode, **options)

    def open(self, identifier: str, **options: Any) -> Any:
        """Open a table with Lance through the namespace."""
        return lance.dataset(namespace_client=self.ns, table_id=parts(identifier), **options)

    def folder(self, identifier: str) -> Path:
        """Return the folder of a table."""
        return Path(self("DescribeTable", identifier).location)

    def latest(self, identifier: str, branch: str | None = None) -> int:
        """Return the number of the newest version."""
        return int(self("DescribeTableVersion", identifier, branch=branch).version.version)

    def numbers(self, identifier: str, **fields: Any) -> list[int]:
        """Return the numbers of all versions that are listed."""
        return [version.version for version in self("ListTableVersions", identifier, **fields).versions]

    def stage(self, identifier: str, data: pa.Table | None = None, **options: Any) -> Staged:
        """Stage an append as a client does: data and manifest are on storage, the version is not committed."""
        return stage_in(self.folder(identifier), data, **options)

    def commit(self, identifier: str, staged: Staged, **fields: Any) -> Any:
        """Ask for a staged version to be committed."""
        return self("CreateTableVersion", identifier, **{**staged.request, **fields})

    def settle(self) -> None:
        """Wait until the catalog has done what it put off."""
        done = threading.Event()
        self.ns.services.database.defer(lambda _: done.set())
        assert done.wait(120)
        self.ns.services.database.write(lambda _: None)  # returns when what was done is also durable

    def records(self) -> list[Any]:
        """Return what the catalog holds."""
        self.settle()
        return [self.ns.services.database.read(lambda c, sql=sql: c.all(sql)) for sql in RECORDS]  # type: ignore[misc]

    def state(self) -> tuple[list[Any], dict[str, str]]:
        """Return all there is in the catalog and on the disk, to compare it later."""
        files = files_below(self.root)
        own = (".pennon/", ".pennon-root")
        return self.records(), {name: digest for name, digest in files.items() if not name.startswith(own)}

    def close(self) -> None:
        """Close the catalog."""
        self.ns.close()


def stage_in(folder: Path, data: pa.Table | None = None, *, scheme: str = "V2", **options: Any) -> Staged:
    """Stage an append to the newest version that is on storage in a table's folder."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, "copy")
        if folder.exists():
            shutil.copytree(folder, copy)
        before = set(files_below(copy))
        options |= {"enable_v2_manifest_paths": scheme == "V2", "mode": "append" if before else "create"}
        version = lance.write_dataset(rows() if data is None else data, copy, **options).version
        staged: list[Path] = []
        for path in set(files_below(copy)) - before:
            target = folder / path
            if parse_manifest_name(target.name) is not None:
                target = target.with_name(f"{target.name}-{uuid.uuid4()}")
                staged.append(target)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(copy / path, target)
    return Staged(staged[0], version)
