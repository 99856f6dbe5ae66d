"""Cron schedules of views, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError
from lance_namespace.errors import InvalidInputError


def check_schedule(text: str) -> str:
    """Return a schedule, or raise InvalidInputError if it is not a valid cron expression."""
    try:
        next(CronSim(text, datetime.now(UTC)))
    except (CronSimError, StopIteration) as error:
        raise InvalidInputError(
            f"Invalid cron schedule {text[:64]!r}: {error or 'it never occurs'}. Write minute, hour, day, "
            "month and weekday, as in '0 3 * * *'; a sixth field before them is the second."
        ) from None
    return text
