"""The same on object storage, with the catalog in PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pennon
from pennon.functions import ErrorPolicy
from tests.integration.backfill.calls import CallLog
from tests.integration.backfill.sample_tables import SampleTable, failing_on, new_name, rows, slow
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.clients.lakes import Lake


def test_columns_are_filled_on_object_storage(distant_lake: Lake, log: CallLog) -> None:
    db, name = pennon.connect(distant_lake.url), new_name()
    db.create_table(name, rows(0, 20))
    sample = SampleTable(db, distant_lake, distant_lake.connect(), log, name)
    sample.add(20, 40)
    sample.table.add_columns({"y": failing_on(log, [7], ErrorPolicy.skip()), "z": slow(log, 0.2, batch_size=5)})
    assert sample.fill() == list(range(40))
    assert sample.state() == (39, 1, 0, 0)
    assert sample.table.errors("y")["error_message"].to_pylist() == ["row 7 is bad"]
    sample.update("id = 3", 5)
    assert sample.fill() == [3]
    sample.compact()
    assert sample.fill() == []
    job = sample.table.backfill_async("z", concurrency=1)
    wait_until(log.new, "a first batch")
    sample.add(40, 45)
    sample.table.delete("id = 12")
    job.wait(progress=False)
    numbers = sample.numbers()
    assert set(numbers) == set(range(45)) - {12}
    assert sample.values("z") == {key: number * 10 for key, number in numbers.items()}
    assert sample.state("z") == (44, 0, 0, 0)
    assert not [path for path in distant_lake.read(sample.lance.location) if path.startswith("_checkpoints")]
