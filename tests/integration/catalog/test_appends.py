"""Appends that meet others: who shares a commit fails alone, and what others did meanwhile is not undone."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from lance_namespace.errors import ConcurrentModificationError, LanceNamespaceError, TableSchemaValidationError

from pennon.namespace.transaction_records import record_transaction
from pennon.tables.arrow_stream import ArrowSource, source_of
from tests.integration.catalog.lakes import rows
from tests.integration.data.tables import stream_of
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pennon.catalog import Connection
    from tests.integration.catalog.lakes import Lake

    Note = Callable[[Connection], str]

#: What of a body is read before its rows are written.
HEAD = 4096


def test_a_refused_append_in_a_group_fails_alone(lake: Lake) -> None:
    lake.write("t")
    table, writer = lake.ns.find_table(("t",)), lake.ns.services.writer

    def accepted(connection: Connection) -> str:
        return record_transaction(connection, "InsertIntoTable", table.identifier)

    def refused(_: Connection) -> str:
        raise ConcurrentModificationError("refused")

    def append(data: pa.Table, note: Note) -> int | type[LanceNamespaceError]:
        try:
            return writer.append(table, "", source_of(stream_of(data)), note).rows
        except LanceNamespaceError as error:
            return type(error)

    with ThreadPoolExecutor(5) as threads:
        with writer.lock(table):  # later writers wait, and then share one commit
            waiting = [
                threads.submit(append, rows(1, 100), accepted),
                threads.submit(append, rows(1, 200), refused),
                threads.submit(append, rows(2, 300), accepted),
                threads.submit(append, rows(1).rename_columns(["other"]), accepted),
                threads.submit(append, rows(1, 400), refused),
            ]
            queues = writer._queue._queues  # nothing else shows that they wait
            wait_until(lambda: len(queues[f"{table.id}/"].waiting) == len(waiting))
        outcomes = [waited.result(60) for waited in waiting]
    assert outcomes == [1, ConcurrentModificationError, 2, TableSchemaValidationError, ConcurrentModificationError]
    assert lake.numbers("t") == [1, 2]
    assert sorted(lake.open("t").to_table()["number"].to_pylist()) == [0, 1, 100, 300, 301]


class Overtaken(io.BytesIO):
    """A body that calls a function halfway."""

    def __init__(self, content: bytes, happens: Callable[[], object]) -> None:
        super().__init__(content)
        self._happens: list[Callable[[], object]] = [happens]

    def read(self, size: int | None = -1, /) -> bytes:
        if self._happens and (size or 0) < HEAD:
            self._happens.pop()()
        return super().read(size)


def test_rows_that_come_while_all_are_replaced_are_refused(lake: Lake) -> None:
    lake.write("t")
    table, other = lake.ns.find_table(("t",)), pa.table({"other": ["x"]})
    body = Overtaken(stream_of(rows(1000), batch_rows=10), lambda: lake.write("t", other, mode="overwrite"))
    source = ArrowSource(body, HEAD)
    with pytest.raises(ConcurrentModificationError):
        lake.ns.services.writer.append(table, "", source, lambda _: "")
    assert lake.numbers("t") == [1, 2]
    assert lake.open("t").to_table() == other


@pytest.mark.parametrize("branch", ["", "dev"])
def test_rows_that_come_while_others_are_appended_are_all_there(lake: Lake, branch: str) -> None:
    lake.write("t")
    lake("CreateTableBranch", "t", name="dev")
    table, writer = lake.ns.find_table(("t",)), lake.ns.services.writer

    def note(_: Connection) -> str:
        return ""

    few = source_of(stream_of(rows(2)))
    body = Overtaken(stream_of(rows(1000), batch_rows=10), lambda: writer.append(table, branch, few, note))
    written = writer.append(table, branch, ArrowSource(body, HEAD), note)
    assert written.rows == 1000
    assert lake("CountTableRows", "t", branch=branch or None).count == 1004
    assert lake("CountTableRows", "t", branch=None if branch else "dev").count == 2
