"""Retries of a commit that conflicts with other writers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lance_namespace.errors import ConcurrentModificationError

Result = TypeVar("Result")

#: Not measured; each attempt rebuilds the operation on the newest version, so only a table under constant writes loses.
_ATTEMPTS = 20


def retry_on_conflict(commit: Callable[[], Result], refusal: Callable[[], Exception | None]) -> Result:
    """Commit, and retry after conflicts; when the job itself refused the commit, raise its ``refusal``."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            return commit()
        except ConcurrentModificationError as error:
            reason = refusal() or (None if left else error)
            if reason is not None:
                raise reason from None
    raise AssertionError("unreachable")
