"""The data files of new fragments: written for several callers at once, and removed after a failed commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments
from lance_namespace.errors import LanceNamespaceError

from pennon.storage.layout import branch_folder
from pennon.tables.lance_errors import typed_errors

if TYPE_CHECKING:
    from lance import LanceDataset

    from pennon.storage.file_io import FileIO


def write_group(dataset: LanceDataset, tables: list[pa.Table]) -> tuple[list[Exception | None], list[FragmentMetadata]]:
    """Write the rows of several callers, one file for each schema; returns each caller's error, and the files."""
    outcomes: list[Exception | None] = [None] * len(tables)
    fragments: list[FragmentMetadata] = []
    groups = _by_schema(tables)
    while groups:
        schema, members = groups.pop(0)
        try:
            with typed_errors():
                rows = pa.concat_tables([tables[index] for index in members])
                fragments += write_fragments(rows, dataset, mode="append", schema=schema)
        except LanceNamespaceError as error:
            if len(members) == 1:
                outcomes[members[0]] = error
            # Other rows of the group may be valid: writing each caller's rows alone finds the bad ones.
            groups += [(schema, [index]) for index in members if len(members) > 1]
    return outcomes, fragments


def remove_fragment_files(folder: FileIO, branch: str, fragments: Iterable[FragmentMetadata]) -> None:
    """Remove the files of fragments that no version refers to."""
    home = branch_folder(branch)
    for fragment in fragments:
        for file in fragment.files:
            path = f"{home}data/{file.path}"
            blobs = list(folder.files(path.removesuffix(".lance")))  # blobs too large for the data file itself
            for name in [path, *(blob.path for blob in blobs)]:
                folder.remove(name)


def _by_schema(tables: list[pa.Table]) -> list[tuple[pa.Schema, list[int]]]:
    found: list[tuple[pa.Schema, list[int]]] = []
    for index, rows in enumerate(tables):
        for schema, members in found:
            if schema.equals(rows.schema, check_metadata=True):
                members.append(index)
                break
        else:
            found.append((rows.schema, [index]))
    return found
