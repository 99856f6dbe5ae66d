"""How a function fails: for one row, for a range of rows, or for good."""

from __future__ import annotations

from dataclasses import dataclass, replace

_MESSAGE_LIMIT = 4000
#: In the place of a row that is under suspicion: there is none.
NOBODY = -1


@dataclass(frozen=True)
class RowError:
    """Why a row has no value; rows count from 0 in the batch that was applied."""

    row: int
    type: str
    message: str
    attempt: int = 1

    def at(self, row: int) -> RowError:
        """Return the same error for another row."""
        return replace(self, row=row)


class FunctionFailedError(Exception):
    """A function failed, and its policy is to fail: with the first row it failed for, when there is such a row."""

    def __init__(self, name: str, error: RowError, *, row_known: bool = True) -> None:
        super().__init__(name, error)
        self.name = name
        self.error = error
        self.row: int | None = error.row if row_known else None
        #: Where that row is, once it is known of which rows the batch consisted.
        self.place: str | None = None

    def __str__(self) -> str:
        place = self.place or ("a batch" if self.row is None else f"row {self.row} of a batch")
        return f"The function {self.name!r} failed for {place}: {self.error.type}: {self.error.message}"


class RangeFailedError(Exception):
    """A function failed for a range of rows; dividing the range may show which of them it fails for."""

    def __init__(
        self, type_: str, message: str, *, attempt: int = 1, divisible: bool = True, suspect: int | None = None
    ) -> None:
        super().__init__(f"{type_}: {message}")
        self.type = type_
        self.message = message
        self.attempt = attempt
        self.divisible = divisible
        #: The row of the range, counted from 0, that was being computed, where that is known.
        self.suspect = suspect

    def at(self, row: int) -> RowError:
        """Return it as the error of a row."""
        return RowError(row, self.type, self.message, self.attempt)


def range_failed(error: BaseException, attempt: int = 1) -> RangeFailedError:
    """Return an exception of the user's code as the failure of the rows that were being computed."""
    return RangeFailedError(name_of(type(error)), text_of(error), attempt=attempt)


def name_of(kind: type) -> str:
    """Return the name by which people know an exception."""
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def text_of(error: BaseException) -> str:
    """Return an exception's message, short enough and clean enough to be stored anywhere."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - __str__ is the user's code
        text = "(its message cannot be shown)"
    return text[:_MESSAGE_LIMIT].encode(errors="replace").decode().replace("\x00", "\ufffd")
