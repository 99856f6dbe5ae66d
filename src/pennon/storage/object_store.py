"""File I/O on an object store."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
from lance_namespace.errors import InvalidInputError
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import from_url

from pennon.core.clock import now_millis
from pennon.core.inline import require_thread
from pennon.storage.file_io import StoredFile, check_size

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

logger = logging.getLogger("pennon.storage")

_DELETE_BATCH = 1000
_REQUEST_THREADS = 16
_PREFIXES = {"s3": "aws_", "s3+ddb": "aws_", "gs": "google_", "az": "azure_", "abfs": "azure_", "abfss": "azure_"}
_CLIENT_OPTIONS = frozenset({"allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_url", "timeout"})
_STORE_OPTIONS = {
    "aws_": frozenset(
        {
            "access_key_id",
            "bucket_name",
            "checksum_algorithm",
            "conditional_put",
            "default_region",
            "endpoint",
            "endpoint_url",
            "imdsv1_fallback",
            "metadata_endpoint",
            "region",
            "request_payer",
            "s3_express",
            "secret_access_key",
            "session_token",
            "skip_signature",
            "unsigned_payload",
            "virtual_hosted_style_request",
        }
    ),
    "google_": frozenset({"application_credentials", "service_account", "service_account_key", "skip_signature"}),
    "azure_": frozenset(
        {
            "client_id",
            "client_secret",
            "endpoint",
            "storage_account_key",
            "storage_account_name",
            "storage_sas_key",
            "storage_token",
            "storage_use_emulator",
            "tenant_id",
        }
    ),
}
#: Short names of Azure options, which Lance accepts too.
_ALIASES = {
    "account_key": "storage_account_key",
    "account_name": "storage_account_name",
    "sas_key": "storage_sas_key",
    "sas_token": "storage_sas_key",
    "use_emulator": "storage_use_emulator",
}


class ObjectStoreFileIO:
    """A prefix in a bucket. Content is published by a conditional put."""

    is_local = False

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self.location = location.rstrip("/")
        parts = urlsplit(self.location)
        self.store_path = parts.path.strip("/")
        config, client = split_options(parts.scheme, options)
        try:
            # The overloads of from_url() want to know the kind of store.
            self._opened: ObjectStore = from_url(  # type: ignore[call-overload]
                f"{parts.scheme}://{parts.netloc}", config=config, client_options=client
            )
        except (BaseError, ValueError) as error:
            reason = str(error).partition("\n")[0].removesuffix(".")  # the other lines repeat it for debugging
            raise InvalidInputError(f"Invalid storage options for {location}: {reason}.") from error

    @property
    def _store(self) -> ObjectStore:
        """The store, to send it a request."""
        require_thread()
        return self._opened

    def read(self, path: str) -> bytes:
        return self.read_tagged(path)[0]

    def read_tagged(self, path: str, max_bytes: int | None = None) -> tuple[bytes, str | None]:
        try:
            found = obstore.get(self._store, self._key(path))
            check_size(found.meta["size"], max_bytes)
            return bytes(found.bytes()), found.meta["e_tag"]
        except NotFoundError as error:
            raise FileNotFoundError(path) from error

    def stat(self, path: str) -> StoredFile | None:
        try:
            return self._stored(obstore.head(self._store, self._key(path)))
        except (NotFoundError, FileNotFoundError):
            return None

    def exists(self, path: str) -> bool:
        return self.stat(path) is not None or any(self.files(path))

    def publish_if_absent(self, staged: str, final: str, content: bytes) -> StoredFile | None:
        stored = self.put_if_absent(final, content)
        if stored is not None:
            # The commit does not wait for it: if the process dies first, a cleanup collects the staged manifest.
            _request_pool().submit(self._remove_staged, staged)
        return stored

    def _remove_staged(self, path: str) -> None:
        try:
            self.remove(path)
        except Exception as error:  # noqa: BLE001 (the commit has succeeded)
            logger.warning("could not remove the staged manifest %s: %s", path, error)

    def put_if_absent(self, path: str, content: bytes) -> StoredFile | None:
        try:
            written = obstore.put(self._store, self._key(path), content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return None
        return StoredFile(path, len(content), written["e_tag"], now_millis())

    def create(self, files: Mapping[str, bytes]) -> None:
        # One after the other would take the time of a request for each.
        list(_request_pool().map(self.replace, files.keys(), files.values()))

    def replace(self, path: str, content: bytes) -> None:
        obstore.put(self._store, self._key(path), content, use_multipart=False)

    def is_link(self, path: str) -> bool:  # noqa: ARG002
        return False

    def size(self, path: str) -> int | None:
        stored = self.stat(path)
        return None if stored is None else stored.size

    def sync(self, paths: Sequence[str]) -> None:
        pass  # acknowledged writes are durable

    def remove(self, path: str) -> None:
        with contextlib.suppress(NotFoundError, FileNotFoundError):
            obstore.delete(self._store, self._key(path))

    def remove_files(self, paths: Sequence[str]) -> None:
        keys = [self._key(path) for path in paths]
        for start in range(0, len(keys), _DELETE_BATCH):
            with contextlib.suppress(NotFoundError, FileNotFoundError):
                obstore.delete(self._store, keys[start : start + _DELETE_BATCH])

    def walk(self, path: str) -> Iterator[StoredFile]:
        for batch in obstore.list(self._store, prefix=self._key(path) + "/", chunk_size=_DELETE_BATCH):
            for entry in batch:
                yield self._stored(entry)

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

    def _stored(self, entry: ObjectMeta) -> StoredFile:
        path = entry["path"][len(self.store_path) :].lstrip("/")
        return StoredFile(path, entry["size"], entry["e_tag"], int(entry["last_modified"].timestamp() * 1000))


@cache
def _request_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_REQUEST_THREADS, thread_name_prefix="pennon-storage")


def split_options(scheme: str, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str | bool]]:
    """Split Lance's storage options into those of the object store and those of its HTTP client.

    Lance accepts names without the prefix of the store; options that only Lance has are left out.
    """
    prefix = _PREFIXES[scheme]
    store: dict[str, str] = {}
    client: dict[str, str | bool] = {}
    for key, value in options.items():
        plain = key.lower().removeprefix(prefix)
        plain = _ALIASES.get(plain, plain)
        if plain in _CLIENT_OPTIONS:
            client[plain] = value.lower() == "true" if value.lower() in {"true", "false"} else value
        elif plain in _STORE_OPTIONS[prefix]:
            store[prefix + plain] = value
    return store, client
