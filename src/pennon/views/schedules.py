"""Schedules of views, as cron writes them; all in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError
from lance_namespace.errors import InvalidInputError


def check_schedule(text: str) -> str:
    """Return a schedule, or raise the error that tells what is wrong with it."""
    try:
        next(CronSim(text, datetime.now(UTC)))
    except (CronSimError, StopIteration) as error:
        raise InvalidInputError(
            f"schedule is {text[:64]!r}, which is no time: {error or 'it never comes'}. Write minute, hour, day, "
            "month and weekday, as in '0 3 * * *'; a sixth field before them is the second."
        ) from None
    return text
