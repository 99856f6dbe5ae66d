"""Answers given again: to a request that is the same in all that counts, while nothing they tell of has changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.server.http.exchange import Exchange

_MOST_ANSWERS = 32_768
_LARGEST_BYTES = 4096


class Recall:
    """Small answers made from the catalog, until the catalog changes.

    What an answer has seen of storage is looked at again each time. Callers with keys are not served from here: theirs
    expire by themselves.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._answers: dict[Hashable, tuple[bytes, Callable[[], bool]]] = {}
        self._stamp: Hashable = None

    def find(self, exchange: Exchange, body: bytes) -> bytes | None:
        """Return the answer to a request, if one is known and still holds."""
        change_token = self._database.change_token()
        if change_token != self._stamp or len(self._answers) >= _MOST_ANSWERS:
            self._answers.clear()
            self._stamp = change_token
        answer, holds = self._answers.get(exchange.essence(body), (None, bool))
        return answer if answer is not None and holds() else None

    def keep(self, exchange: Exchange, body: bytes, answer: bytes, holds: Callable[[], bool]) -> None:
        """Remember an answer that was made since the last look for one."""
        key = exchange.essence(body)
        size = len(answer) + sum(len(part) for part in key if isinstance(part, bytes | str))
        if self._stamp is not None and size <= _LARGEST_BYTES:
            self._answers[key] = answer, holds
