"""The storage root: where tables may be, the folders of new tables, and the locations that clients may name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lance_namespace.errors import InvalidInputError, PermissionDeniedError

from pennon.core.identifiers import Identifier
from pennon.storage.layout import TABLE_SUFFIX
from pennon.storage.local import LocalFileIO
from pennon.storage.read_only import ReadOnlyFileIO

if TYPE_CHECKING:
    from pennon.storage.file_io import FileIO

#: Storage options with secrets: all keys, except the ids of keys in a key management service.
_SECRET = re.compile(
    r"secret|token|password|credential|(?<!kms_)key(?!_enabled)|sas_|service_account|private|connection_string"
    r"|authorization|cookie",
    re.IGNORECASE,
)
#: Table names that LanceDB can open in the same folder.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_ID_DIGITS = 12
_UNIQUE_FOLDER = re.compile(rf"[0-9a-f]{{{_ID_DIGITS}}}_")
_MAX_READABLE = 180
#: The limits of paths on disks and of keys on object stores.
_MAX_LOCATION_BYTES, _MAX_PART_BYTES = 1024, 255
_SLASHES = re.compile(r"/{2,}")
_REMOTE_SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "s3+ddb")
#: Characters that Lance would interpret in the URL of an object store, so that it would open something else.
_INVALID_URL = re.compile(r"[\x00-\x1f\x7f#?%\\]|\s(?:/|$)|/\s")


#: The folders that Lance creates in a table.
_LANCE_FOLDERS = ("_versions", "data", "_deletions", "_indices", "_transactions", "_refs", "tree")


class StorageRoot:
    """The storage root, and all other locations of tables."""

    def __init__(
        self,
        root: str,
        options: Mapping[str, str],
        *,
        vend_credentials: bool = False,
        allowed_locations: Sequence[str] = (),
        durable_writes: bool = False,
    ) -> None:
        self.root_location = _normal_root(root)
        self.options = dict(options)
        self._vend_credentials = vend_credentials
        self._allowed = [_normal_root(prefix) for prefix in allowed_locations]
        self.durable_writes = durable_writes
        self.folder = lru_cache(maxsize=4096)(self._open_file_io)
        self.root = self.folder(self.root_location)

    def client_options(self, *, vend: bool | None) -> dict[str, str] | None:
        """Return the storage options for clients: without secrets, unless credentials are vended."""
        if self._vend_credentials and vend is not False:
            return self.options or None
        return {key: value for key, value in self.options.items() if not _SECRET.search(key)} or None

    def new_location(self, identifier: Identifier, table_id: str) -> str:
        """Return the location of a new table: ``<name>.lance`` in the root, or a unique folder."""
        if len(identifier) == 1 and _PLAIN_NAME.fullmatch(identifier[0]):
            return f"{self.root_location}/{identifier[0]}{TABLE_SUFFIX}"
        return self.unique_location(identifier, table_id)

    def unique_location(self, identifier: Identifier, table_id: str) -> str:
        """Return a folder in the root that belongs to one incarnation of one table."""
        readable = "$".join(_UNSAFE.sub("_", part) for part in identifier)
        return f"{self.root_location}/{table_id[-_ID_DIGITS:]}_{readable[:_MAX_READABLE]}"

    def link_path(self, location: str) -> str | None:
        """Return the link path ``<name>.lance`` for a root table in a unique folder; None if it has no link."""
        folder = location.removeprefix(self.root_location + "/")
        if "://" in location or not _UNIQUE_FOLDER.match(folder) or not _PLAIN_NAME.fullmatch(folder):
            return None
        return f"{self.root_location}/{folder[_ID_DIGITS + 1 :]}{TABLE_SUFFIX}"

    def is_generated(self, location: str) -> bool:
        """Tell whether Pennon could have chosen a location, directly in the root."""
        name = location.removeprefix(self.root_location + "/")
        if name == location or "/" in name:
            return False
        return _UNIQUE_FOLDER.match(name) is not None or name.endswith(TABLE_SUFFIX)

    def is_shown_by_root(self, location: str) -> bool:
        """Tell whether a location is a ``*.lance`` folder directly in the root."""
        name = location.removeprefix(self.root_location + "/")
        return name != location and "/" not in name and name.endswith(TABLE_SUFFIX)

    def is_root_table(self, identifier: Identifier, location: str) -> bool:
        """Tell whether a table is at the location of its name in the root, where it is found without a catalog."""
        return len(identifier) == 1 and location == f"{self.root_location}/{identifier[0]}{TABLE_SUFFIX}"

    def check_location(self, location: str) -> str:
        """Return the absolute form of a client's location, which must be in the root or under an allowed prefix."""
        if "\0" in location or not location.strip():
            raise InvalidInputError("The location is empty or contains a NUL character.")
        address = self._absolute(location)
        check_url(address)
        if not self.contains(address):
            kind = "URIs" if "://" in location else "paths"
            raise InvalidInputError(
                f"Absolute {kind} are not allowed outside the storage root; name the location relative to the root, or "
                "allow its prefix in the setting 'allowed_locations'."
            )
        address = self._follow_links(address)
        if not self.contains(address):
            raise InvalidInputError("The location is a link to a target outside the storage root.")
        if self.is_internal(address):
            raise InvalidInputError("The location is inside Pennon's own folder.")
        return address

    def is_in_root(self, location: str) -> bool:
        """Tell whether a location is in the root."""
        return location.startswith(self.root_location + "/")

    def contains(self, address: str) -> bool:
        """Tell whether a table may be at a location: in the root, or under an allowed prefix."""
        if self.is_in_root(address):
            return True
        return any(address == prefix or address.startswith(prefix + "/") for prefix in self._allowed)

    def is_internal(self, address: str) -> bool:
        """Tell whether a location is in one of Pennon's own folders."""
        return address.startswith(f"{self.root_location}/.pennon")

    def real_location(self, location: str) -> str | None:
        """Resolve the links of a location on a disk; None if no table may be at its target."""
        real = self._follow_links(location)
        return real if self.contains(real) else None

    def check_links(self, location: str) -> None:
        """Refuse a table whose folder, or one of Lance's folders in it, is a link to the outside.

        It takes about 20 µs, so it is done whenever a table is opened. Links to files are refused when a commit names
        them; a writer to the root can still replace a file by a link later.
        """
        if "://" in location or not self.contains(location):
            return  # tables elsewhere are read-only, where they are
        folder = self.folder(location)
        linked = [f"{location}/{name}" for name in _LANCE_FOLDERS if folder.is_link(name)]
        if any(self.real_location(path) is None for path in [location, *linked]):
            raise PermissionDeniedError(
                "The table is not opened: its folder is, or contains, a link to a target outside the storage root. "
                "Remove the link, or allow its target in the setting 'allowed_locations'."
            )

    def _absolute(self, location: str) -> str:
        scheme = urlsplit(location).scheme if "://" in location else ""
        if scheme == "file":
            path = unquote(urlsplit(location).path)
        elif scheme or location.startswith("/"):
            path = location
        else:
            path = f"{self.root_location}/{location}"
        parts = path.split("/")
        if any(part in {".", ".."} for part in parts):
            raise InvalidInputError("Path traversal is not allowed: name the location without '.' and '..'.")
        if len(path.encode()) > _MAX_LOCATION_BYTES or any(len(part.encode()) > _MAX_PART_BYTES for part in parts):
            raise InvalidInputError("The location, or one of its parts, is longer than storage allows.")
        start, separator, rest = path.rpartition("://")
        # Repeated slashes are removed, so that every location has one name.
        return f"{start}{separator}{_SLASHES.sub('/', rest)}".rstrip("/")

    def _follow_links(self, address: str) -> str:
        """Resolve the links of a location on disk, so that every table has one location."""
        if "://" in address:
            return address
        real = os.path.realpath(address)
        for home in (self.root_location, *self._allowed):
            below = os.path.realpath(home) + "/"
            if "://" not in home and (real + "/").startswith(below):
                return f"{home}/{real[len(below) :]}".rstrip("/")
        return real

    def _open_file_io(self, location: str) -> FileIO:
        folder = open_file_io(location, self.options, durable=self.durable_writes)
        return folder if location == self.root_location or self.contains(location) else ReadOnlyFileIO(folder)


def check_url(url: str) -> None:
    """Refuse the URL of an object store if Lance would interpret some of its characters."""
    if "://" in url and _INVALID_URL.search(url):
        raise InvalidInputError(
            "Invalid location on an object store: it cannot contain '#', '?', '%', backslashes or control characters, "
            "and no part of it may begin or end with a space."
        )


def open_file_io(location: str, options: Mapping[str, str], *, durable: bool = False) -> FileIO:
    """Open a folder by its location; with ``durable``, writes to a disk are flushed."""
    if "://" not in location:
        return LocalFileIO(location, durable=durable)
    from pennon.storage.object_store import ObjectStoreFileIO

    return ObjectStoreFileIO(location, options)


def _normal_root(root: str) -> str:
    scheme = urlsplit(root).scheme if "://" in root else ""
    if scheme in {"", "file"}:
        path = unquote(urlsplit(root).path) if scheme else root
        return os.path.abspath(path)  # noqa: PTH100 (links stay as the user wrote them)
    if scheme not in _REMOTE_SCHEMES:
        raise InvalidInputError(f"Unknown storage scheme {scheme!r}: use a folder, s3://, gs:// or az://.")
    check_url(root)
    if not urlsplit(root).netloc:
        raise InvalidInputError(f"Invalid storage root {root!r}: it names no bucket.")
    return root.rstrip("/")
