"""Where tables may be: the root, the folders of new tables, and the locations clients may name."""

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

#: Options that open storage to whoever holds them: all keys but the names of those that a key store keeps.
_SECRET = re.compile(
    r"secret|token|password|credential|(?<!kms_)key(?!_enabled)|sas_|service_account|private|connection_string"
    r"|authorization|cookie",
    re.IGNORECASE,
)
#: Names that LanceDB itself can open in the same folder.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_ID_DIGITS = 12
_OWN_NAME = re.compile(rf"[0-9a-f]{{{_ID_DIGITS}}}_")
_MAX_READABLE = 180
#: What a path on a disk, and a key on an object store, may have.
_MAX_LOCATION_BYTES, _MAX_PART_BYTES = 1024, 255
_SLASHES = re.compile(r"/{2,}")
_REMOTE_SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "s3+ddb")
#: What an address on an object store cannot hold: to Lance it would be the address of something else.
_NO_ADDRESS = re.compile(r"[\x00-\x1f\x7f#?%\\]|\s(?:/|$)|/\s")


#: The folders that Lance makes in a table.
_LANCE_FOLDERS = ("_versions", "data", "_deletions", "_indices", "_transactions", "_refs", "tree")


class StorageRoot:
    """The storage root and every other location tables may have."""

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
        self._durable_writes = durable_writes
        self.folder = lru_cache(maxsize=4096)(self._open_file_io)
        self.root = self.folder(self.root_location)

    def client_options(self, *, vend: bool | None) -> dict[str, str] | None:
        """Return the storage options clients are given: without secrets, unless the settings hand those out."""
        if self._vend_credentials and vend is not False:
            return self.options or None
        return {key: value for key, value in self.options.items() if not _SECRET.search(key)} or None

    def new_location(self, identifier: Identifier, table_id: str) -> str:
        """Return where a new table goes: ``<name>.lance`` in the root, else a folder of its incarnation's own."""
        if len(identifier) == 1 and _PLAIN_NAME.fullmatch(identifier[0]):
            return f"{self.root_location}/{identifier[0]}{TABLE_SUFFIX}"
        return self.own_location(identifier, table_id)

    def own_location(self, identifier: Identifier, table_id: str) -> str:
        """Return a folder in the root that no other incarnation of any table has."""
        readable = "$".join(_UNSAFE.sub("_", part) for part in identifier)
        return f"{self.root_location}/{table_id[-_ID_DIGITS:]}_{readable[:_MAX_READABLE]}"

    def link_to(self, location: str) -> str | None:
        """Return where LanceDB looks for a table of the root, on a disk, that has a folder of its own."""
        folder = location.removeprefix(self.root_location + "/")
        if "://" in location or not _OWN_NAME.match(folder) or not _PLAIN_NAME.fullmatch(folder):
            return None
        return f"{self.root_location}/{folder[_ID_DIGITS + 1 :]}{TABLE_SUFFIX}"

    def is_generated(self, location: str) -> bool:
        """Tell whether a location has the form of those Pennon chooses, directly in the root."""
        name = location.removeprefix(self.root_location + "/")
        if name == location or "/" in name:
            return False
        return _OWN_NAME.match(name) is not None or name.endswith(TABLE_SUFFIX)

    def is_shown_by_root(self, location: str) -> bool:
        """Tell whether the root folder itself shows a table at this location."""
        name = location.removeprefix(self.root_location + "/")
        return name != location and "/" not in name and name.endswith(TABLE_SUFFIX)

    def is_root_table(self, identifier: Identifier, location: str) -> bool:
        """Tell whether a table is one that the root folder itself shows, without a catalog."""
        return len(identifier) == 1 and location == f"{self.root_location}/{identifier[0]}{TABLE_SUFFIX}"

    def check_location(self, location: str) -> str:
        """Return the address of a location a client named: in the root, or under an allowed prefix."""
        if "\0" in location or not location.strip():
            raise InvalidInputError("The location is empty or holds a NUL character.")
        address = self._absolute(location)
        check_address(address)
        if not self.holds(address):
            kind = "URIs" if "://" in location else "paths"
            raise InvalidInputError(
                f"Absolute {kind} are not allowed outside the storage root; name the location relative to the root, or "
                "allow its prefix in the setting 'allowed_locations'."
            )
        address = self._follow_links(address)
        if not self.holds(address):
            raise InvalidInputError("The location is a link that leads out of the storage root.")
        if self.is_own(address):
            raise InvalidInputError("The location is inside Pennon's own folder.")
        return address

    def is_in_root(self, location: str) -> bool:
        """Tell whether a location lies in the root."""
        return location.startswith(self.root_location + "/")

    def holds(self, address: str) -> bool:
        """Tell whether a table may be at an address: inside the root, or under an allowed prefix."""
        if self.is_in_root(address):
            return True
        return any(address == prefix or address.startswith(prefix + "/") for prefix in self._allowed)

    def is_own(self, address: str) -> bool:
        """Tell whether an address is inside one of Pennon's own folders."""
        return address.startswith(f"{self.root_location}/.pennon")

    def real_location(self, location: str) -> str | None:
        """Return where a location on a disk leads by its links; none when that is outside of where tables may be."""
        real = self._follow_links(location)
        return real if self.holds(real) else None

    def check_links(self, location: str) -> None:
        """Refuse a table whose folder, or a folder of Lance's in it, is a link that leads out.

        Takes some 20 µs, so it is done whenever a table is opened. Links to single files are refused when a commit
        names them; whoever can write to the root may still put one in a file's place afterwards.
        """
        if "://" in location or not self.holds(location):
            return  # a table that is recorded elsewhere is only read, where it is
        folder = self.folder(location)
        linked = [f"{location}/{name}" for name in _LANCE_FOLDERS if folder.is_link(name)]
        if any(self.real_location(place) is None for place in [location, *linked]):
            raise PermissionDeniedError(
                "The table's folder is, or holds, a link that leads out of the storage root, so it is not opened; "
                "remove the link, or allow its target in the setting 'allowed_locations'."
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
        # Two slashes lead where one does: every place has one name.
        return f"{start}{separator}{_SLASHES.sub('/', rest)}".rstrip("/")

    def _follow_links(self, address: str) -> str:
        """Return the address that the links of a location on disk lead to: one table has one address."""
        if "://" in address:
            return address
        real = os.path.realpath(address)
        for home in (self.root_location, *self._allowed):
            below = os.path.realpath(home) + "/"
            if "://" not in home and (real + "/").startswith(below):
                return f"{home}/{real[len(below) :]}".rstrip("/")
        return real

    def _open_file_io(self, location: str) -> FileIO:
        folder = open_file_io(location, self.options, durable=self._durable_writes)
        return folder if location == self.root_location or self.holds(location) else ReadOnlyFileIO(folder)


def check_address(address: str) -> None:
    """Refuse an address on an object store that Lance would not take as it is written."""
    if "://" in address and _NO_ADDRESS.search(address):
        raise InvalidInputError(
            "The location cannot be an address on an object store: those have no '#', '?', '%', backslash or control "
            "character, and no space at the end of a part."
        )


def open_file_io(location: str, options: Mapping[str, str], *, durable: bool = False) -> FileIO:
    """Return a folder by its address; on a disk, a durable one flushes what it writes."""
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
        raise InvalidInputError(f"Storage of the kind {scheme!r} is not known; use a folder, s3://, gs:// or az://.")
    check_address(root)
    if not urlsplit(root).netloc:
        raise InvalidInputError(f"{root!r} names no bucket.")
    return root.rstrip("/")
