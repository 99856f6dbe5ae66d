"""Quiet hours: a daily period in UTC in which no maintenance starts automatically."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator

_PERIOD = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")
_DAY_MINUTES = 24 * 60


def check_quiet_hours(text: str) -> str:
    """Return a valid period, or an empty text for no quiet hours."""
    if text and not _PERIOD.fullmatch(text):
        raise ValueError("quiet hours are a period in UTC such as 08:00-18:30, or empty for none")
    if text and _minutes(text)[0] == _minutes(text)[1]:
        raise ValueError("quiet hours must end at another time than they begin; to stop maintenance, disable it")
    return text


QuietHours = Annotated[str, AfterValidator(check_quiet_hours)]


def end_of_quiet_hours(text: str, millis: int) -> int | None:
    """Return when the quiet hours end that a time falls into, in milliseconds; None outside of them.

    A period that ends before it begins lasts over midnight.
    """
    if not text:
        return None
    begin, end = _minutes(text)
    now = datetime.fromtimestamp(millis / 1000, UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    minute = (now - midnight) / timedelta(minutes=1)
    if (minute - begin) % _DAY_MINUTES >= (end - begin) % _DAY_MINUTES:
        return None
    return millis + int((end - minute) % _DAY_MINUTES * 60_000)


def _minutes(text: str) -> tuple[int, int]:
    match = _PERIOD.fullmatch(text)
    assert match is not None  # noqa: S101 (it was checked)
    hours = [int(part) for part in match.groups()]
    return hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]
