"""Tables of a server: where they are, and their versions, for whoever reads and writes them with Lance itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import InvalidInputError, TableNotFoundError

from pennon.core.errors import suggest
from pennon.core.identifiers import Identifier, check_identifier
from pennon.storage.layout import check_branch
from pennon.tables.snapshots import Snapshot

DEFAULT_URL = "http://127.0.0.1:2333"
_KEY = "PENNON_API_KEY"
_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
#: What `spark.read` and `df.write` take.
_READING = (
    "branch",
    "columns",
    "filter",
    "partitions",
    "push_filters",
    "row_ids",
    "snapshot",
    "tag",
    "version",
    "with_row_id",
)
_WRITING = ("max_rows_per_file", "round_floats")
_COMMON = ("api_key", "database", "path", "table", "url")


@dataclass(frozen=True)
class Address:
    """A table of a server, as options name it."""

    url: str
    identifier: Identifier
    headers: dict[str, str]

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Address:
        """Return the table that options name."""
        check_options(options)
        name = options.get("table") or options.get("path")
        if not name:
            raise InvalidInputError(
                'Name the table: .load("namespace.table") or .save("namespace.table"), or .option("table", ...).'
            )
        key = options.get("api_key") or os.environ.get(_KEY)
        headers = {"x-api-key": key} if key else {}
        if options.get("database"):
            headers["x-lancedb-database"] = options["database"]
        return cls(options.get("url") or DEFAULT_URL, parse_name(name), headers)

    def connect(self) -> Any:
        """Return a client of the server."""
        import lance_namespace

        named = {f"header.{name}": value for name, value in self.headers.items()}
        return lance_namespace.connect("rest", {"uri": self.url.rstrip("/"), **named})

    def pin(self, options: Mapping[str, str]) -> Snapshot:
        """Return the version that options ask for, by default the newest."""
        import lance

        client = self.connect()
        described = self.describe(client)
        if described.is_only_declared:
            raise TableNotFoundError(
                f"Table {'.'.join(self.identifier)!r} has no rows and no schema yet; write it first."
            )
        found = lance.dataset(namespace_client=client, table_id=list(self.identifier))
        branch, version = check_branch(options.get("branch")), _version(options)
        if branch:
            found = found.checkout_version((branch, version))
        elif version is not None:
            found = found.checkout_version(version)
        return Snapshot(described.location, dict(described.storage_options or {}), branch, found.version)

    def describe(self, client: Any) -> Any:
        """Return what the server says of the table, also whether it was only declared, and never written."""
        import lance_namespace as ln

        asked = ln.DescribeTableRequest(id=list(self.identifier), check_declared=True, vend_credentials=True)
        return client.describe_table(asked)


def parse_name(name: str) -> Identifier:
    """Return the parts of a table's name; backticks hold parts that have dots themselves."""
    parts, position = [], 0
    while position <= len(name):
        match = _PART.match(name, position)
        if match is None or name[match.end() : match.end() + 1] not in {"", "."}:
            raise InvalidInputError(f"{name!r} does not name a table; write namespace.table, odd names in backticks.")
        parts.append(match[1].replace("``", "`") if match[1] else match[2])
        position = match.end() + 1
    return check_identifier(parts)


def check_options(options: Mapping[str, str]) -> None:
    """Raise for options that mean nothing: a typing error would read another version, or all rows."""
    known = sorted({*_READING, *_WRITING, *_COMMON})
    for name in options:
        if name.lower() not in known:
            raise InvalidInputError(
                f"The source has no option {name!r}.{suggest(name, known)} Its options are {', '.join(known)}."
            )


def _version(options: Mapping[str, str]) -> int | str | None:
    version, tag = options.get("version"), options.get("tag")
    if version and tag:
        raise InvalidInputError("Give a version or a tag, and not both.")
    if version and not version.isdecimal():
        raise InvalidInputError(f"A version is a number, and {version!r} is none; name a tag with the option 'tag'.")
    return int(version) if version else tag
