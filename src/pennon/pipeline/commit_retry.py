"""Committing beside others: again when somebody was faster, but not when the job is to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lance_namespace.errors import ConcurrentModificationError

Result = TypeVar("Result")

_ATTEMPTS = 20


def commit_beside_others(commit: Callable[[], Result], stopped: Callable[[], Exception | None]) -> Result:
    """Return what a commit comes to in the end; where it was refused on purpose, raise what ``stopped`` says."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            return commit()
        except ConcurrentModificationError as error:
            reason = stopped() or (None if left else error)
            if reason is not None:
                raise reason from None
    raise AssertionError("unreachable")
