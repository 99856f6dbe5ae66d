"""What every database is used for in the same way."""

from __future__ import annotations

from typing import Any

import pytest
from lance_namespace.errors import ServiceUnavailableError

from pennon.catalog import CommitOutcomeUnknownError, write_at_least_once


class LossyDatabase:
    """A database that loses some connections while it makes transactions durable."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)

    def write(self, work: Any) -> Any:
        if self._failures:
            raise self._failures.pop()
        return work(None)


def test_a_record_is_written_again_when_its_outcome_is_unknown() -> None:
    lossy: Any = LossyDatabase(CommitOutcomeUnknownError("Who knows?"), CommitOutcomeUnknownError("Who knows?"))
    assert write_at_least_once(lossy, lambda _: "noted") == "noted"


def test_unknown_outcomes_and_lost_connections_are_raised_in_the_end() -> None:
    never: Any = LossyDatabase(*[CommitOutcomeUnknownError("Who knows?")] * 100)
    with pytest.raises(CommitOutcomeUnknownError):
        write_at_least_once(never, lambda _: "noted")
    silent: Any = LossyDatabase(ServiceUnavailableError("It does not answer."))
    with pytest.raises(ServiceUnavailableError, match="not answer"):
        write_at_least_once(silent, lambda _: "noted")
