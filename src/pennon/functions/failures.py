"""Failures of user functions: of one row, of a range of rows, or of the whole job."""

from __future__ import annotations

from dataclasses import dataclass, replace

_MAX_MESSAGE_LENGTH = 4000
#: The value of the shared current row while no row is being computed.
NO_ROW = -1


@dataclass(frozen=True)
class RowError:
    """Why a row has no value; rows are numbered from 0 within the batch."""

    row: int
    type: str
    message: str
    attempt: int = 1

    def at(self, row: int) -> RowError:
        """Return the same error for another row."""
        return replace(self, row=row)


class FunctionFailedError(Exception):
    """A function failed and its error policy is to fail; holds the first failed row where it is known."""

    def __init__(self, name: str, error: RowError, *, row_known: bool = True) -> None:
        super().__init__(name, error)
        self.name = name
        self.error = error
        self.row: int | None = error.row if row_known else None
        #: A description of the failed row, set by the caller that knows where the batch comes from.
        self.location: str | None = None

    def __str__(self) -> str:
        location = self.location or ("a batch" if self.row is None else f"row {self.row} of a batch")
        return f"The function {self.name!r} failed for {location}: {self.error.type}: {self.error.message}"


class RangeFailedError(Exception):
    """A function failed for a range of rows; unless it is indivisible, bisecting it finds the failing rows."""

    def __init__(
        self, type_: str, message: str, *, attempt: int = 1, divisible: bool = True, current_row: int | None = None
    ) -> None:
        super().__init__(f"{type_}: {message}")
        self.type = type_
        self.message = message
        self.attempt = attempt
        self.divisible = divisible
        #: The row of the range, numbered from 0, that was being computed, where that is known.
        self.current_row = current_row

    def at(self, row: int) -> RowError:
        """Return the failure as the error of a row."""
        return RowError(row, self.type, self.message, self.attempt)


def range_failed(error: BaseException, attempt: int = 1) -> RangeFailedError:
    """Return an exception from user code as the failure of the range that was being computed."""
    return RangeFailedError(name_of(type(error)), text_of(error), attempt=attempt)


def name_of(kind: type) -> str:
    """Return the name of an exception class, qualified by its module unless it is a builtin."""
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def text_of(error: BaseException) -> str:
    """Return an exception's message, truncated and free of characters that cannot be stored."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - __str__ is the user's code
        text = "(its message cannot be shown)"
    return text[:_MAX_MESSAGE_LENGTH].encode(errors="replace").decode().replace("\x00", "\ufffd")
