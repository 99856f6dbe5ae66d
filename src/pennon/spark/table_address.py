"""Addresses of tables on a server, and the options of the Spark source that name them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError, TableNotFoundError, TableTagNotFoundError

from pennon.core.errors import suggest
from pennon.core.identifiers import Identifier, check_identifier
from pennon.storage.layout import check_branch
from pennon.tables.snapshots import Snapshot

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance_namespace import DescribeTableResponse, LanceNamespace

DEFAULT_URL = "http://127.0.0.1:2333"
_KEY = "PENNON_API_KEY"
_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
#: The options of `spark.read` and `df.write`.
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
class TableAddress:
    """A table on a server."""

    url: str
    identifier: Identifier
    headers: dict[str, str]

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> TableAddress:
        """Return the table that the options of the source name."""
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

    def connect(self) -> LanceNamespace:
        """Return a client of the server."""
        import lance_namespace

        named = {f"header.{name}": value for name, value in self.headers.items()}
        return lance_namespace.connect("rest", {"uri": self.url.rstrip("/"), **named})

    def pin(self, options: Mapping[str, str]) -> Snapshot:
        """Return the version that the options select, by default the newest."""
        import lance

        client = self.connect()
        described = self.describe(client)
        if described.is_only_declared:
            raise TableNotFoundError(
                f"Table {'.'.join(self.identifier)!r} is declared but has no schema yet; write to it first."
            )
        found = lance.dataset(namespace_client=client, table_id=list(self.identifier))
        branch, version = _version(found, options)
        if branch:
            found = found.checkout_version((branch, version))
        elif version is not None:
            found = found.checkout_version(version)
        return Snapshot(described.location or "", dict(described.storage_options or {}), branch, found.version)

    def describe(self, client: LanceNamespace) -> DescribeTableResponse:
        """Describe the table, including whether it is only declared, and request credentials for its storage."""
        import lance_namespace as ln

        asked = ln.DescribeTableRequest(id=list(self.identifier), check_declared=True, vend_credentials=True)
        return client.describe_table(asked)


def parse_name(name: str) -> Identifier:
    """Split a table name at its dots; backticks quote parts that contain dots."""
    parts, position = [], 0
    while position <= len(name):
        match = _PART.match(name, position)
        if match is None or name[match.end() : match.end() + 1] not in {"", "."}:
            raise InvalidInputError(
                f"Invalid table name {name!r}: write namespace.table, and quote special names in backticks."
            )
        parts.append(match[1].replace("``", "`") if match[1] else match[2])
        position = match.end() + 1
    return check_identifier(parts)


def check_options(options: Mapping[str, str]) -> None:
    """Refuse unknown options: a misspelled one could read another version, or all rows."""
    known = sorted({*_READING, *_WRITING, *_COMMON})
    for name in options:
        if name.lower() not in known:
            raise InvalidInputError(
                f"Unknown option {name!r}.{suggest(name, known)} The options are {', '.join(known)}."
            )


def _version(dataset: LanceDataset, options: Mapping[str, str]) -> tuple[str, int | None]:
    """Return the branch and the version that the options select; a tag names both."""
    branch, version, tag = check_branch(options.get("branch")), options.get("version"), options.get("tag")
    if version and tag:
        raise InvalidInputError("The options 'version' and 'tag' cannot be used together.")
    if version and not version.isdecimal():
        raise InvalidInputError(
            f"The option 'version' is {version!r}; it must be a number. Use the option 'tag' for a tag."
        )
    if not tag:
        return branch, int(version) if version else None
    found = dataset.tags.list().get(tag)
    if found is None:
        raise TableTagNotFoundError(f"The tag {tag!r} was not found.")
    tagged = found["branch"] or ""
    if branch and branch != tagged:
        raise InvalidInputError(f"The tag {tag!r} is on {tagged or 'main'}, not on the branch {branch!r}.")
    return tagged, found["version"]
