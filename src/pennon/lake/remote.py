"""Folders on an object store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, NotFoundError
from obstore.store import from_url

from pennon.lake.folder import StoredFile

_DELETE_BATCH = 1000


class RemoteFolder:
    """A prefix in a bucket. Content gets its final name by a conditional put."""

    probes_are_cheap = False

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self.location = location.rstrip("/")
        parts = urlsplit(self.location)
        self.store_path = parts.path.strip("/")
        self._store: Any = from_url(f"{parts.scheme}://{parts.netloc}", config=store_options(options))

    def read(self, path: str) -> bytes:
        try:
            return bytes(obstore.get(self._store, self._key(path)).bytes())
        except NotFoundError as error:
            raise FileNotFoundError(path) from error

    def stat(self, path: str) -> StoredFile | None:
        try:
            return self._stored(obstore.head(self._store, self._key(path)))
        except (NotFoundError, FileNotFoundError):
            return None

    def promote(self, staged: str, final: str, content: bytes) -> StoredFile | None:
        stored = self.put_if_absent(final, content)
        if stored is not None:
            self.remove(staged)
        return stored

    def put_if_absent(self, path: str, content: bytes) -> StoredFile | None:
        try:
            obstore.put(self._store, self._key(path), content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return None
        return self.stat(path)

    def remove(self, path: str) -> None:
        with contextlib.suppress(NotFoundError, FileNotFoundError):
            obstore.delete(self._store, self._key(path))

    def remove_all(self) -> None:
        for batch in obstore.list(self._store, prefix=self.store_path + "/", chunk_size=_DELETE_BATCH):
            obstore.delete(self._store, [entry["path"] for entry in batch])

    def files(self, path: str) -> Iterator[StoredFile]:
        for entry in obstore.list_with_delimiter(self._store, prefix=self._key(path) + "/")["objects"]:
            yield self._stored(entry)

    def folders(self) -> list[str]:
        prefix = f"{self.store_path}/" if self.store_path else None
        found = obstore.list_with_delimiter(self._store, prefix=prefix)["common_prefixes"]
        return [path.rstrip("/").rsplit("/", 1)[-1] for path in found]

    def is_empty(self) -> bool:
        batches = obstore.list(self._store, prefix=self.store_path + "/", chunk_size=1)
        return not next(iter(batches), None)

    def _key(self, path: str) -> str:
        return f"{self.store_path}/{path}" if self.store_path else path

    def _stored(self, entry: Any) -> StoredFile:
        path = entry["path"][len(self.store_path) :].lstrip("/")
        return StoredFile(path, entry["size"], entry["e_tag"], int(entry["last_modified"].timestamp() * 1000))


def store_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return storage options as the object store takes them: Lance's own ones left out."""
    return {key: value for key, value in options.items() if key != "expires_at_millis"}
