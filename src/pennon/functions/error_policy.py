"""What happens when a function fails for a row: fail or skip, try again, and how many errors are too many."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from pennon.functions.failures import name_of, text_of


@dataclass(frozen=True)
class Retry:
    """A rule that calls a function again: for which errors, how often, and after which pause."""

    exceptions: tuple[str, ...] = ()  # empty: every exception
    message: str | None = None
    attempts: int = 3
    backoff: float = 1.0
    factor: float = 2.0
    max_backoff: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts counts the first call, too, so it is at least 1, not {self.attempts}.")
        if not (self.backoff >= 0 and self.factor >= 1 and self.max_backoff >= 0):
            raise ValueError("backoff and max_backoff are at least 0 seconds, and factor is at least 1.")
        if self.message is not None:
            try:
                re.compile(self.message)
            except re.error as error:
                raise ValueError(f"The message pattern {self.message!r} is no regular expression: {error}.") from None

    def matches(self, error: BaseException) -> bool:
        """Tell whether an error is one of those that the rule is for."""
        if self.exceptions and not _names_of(type(error)).intersection(self.exceptions):
            return False
        return self.message is None or re.search(self.message, text_of(error)) is not None

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait after an attempt has failed; the first attempt is 1."""
        try:
            return min(self.backoff * self.factor ** (attempt - 1), self.max_backoff)
        except OverflowError:
            return self.max_backoff


class AddRetry(Protocol):
    """Adds a retry rule to a policy."""

    def __call__(
        self,
        *exceptions: type[BaseException] | str,
        message: str | None = None,
        attempts: int = 3,
        backoff: float = 1.0,
        factor: float = 2.0,
        max_backoff: float = 60.0,
    ) -> ErrorPolicy:
        """Return a policy that also calls again, for exceptions of these classes and with such a message."""
        ...


class _AddRetryToPolicy:
    """Makes ``ErrorPolicy.retry(…)`` and ``ErrorPolicy.skip(…).retry(…)`` both mean what they say."""

    def __get__(self, policy: ErrorPolicy | None, owner: type[ErrorPolicy]) -> AddRetry:
        return partial(_add_retry, owner() if policy is None else policy)


@dataclass(frozen=True)
class ErrorPolicy:
    """What happens when a function fails.

    ``fail`` ends the job with the first error. ``skip`` leaves the row null and records its error, until there are
    more than ``max_errors`` of them, or more than ``max_error_ratio`` of the rows. ``retry`` adds a rule to either::

        ErrorPolicy.skip(max_errors=10).retry(ConnectionError, attempts=5)
    """

    on_error: Literal["fail", "skip"] = "fail"
    retries: tuple[Retry, ...] = ()
    max_errors: int | None = None
    max_error_ratio: float | None = None

    retry = _AddRetryToPolicy()

    def __post_init__(self) -> None:
        if self.on_error not in ("fail", "skip"):
            raise ValueError(f"on_error is 'fail' or 'skip', not {self.on_error!r}.")
        if self.max_errors is not None and self.max_errors < 0:
            raise ValueError(f"max_errors is at least 0, not {self.max_errors}.")
        if self.max_error_ratio is not None and not 0 <= self.max_error_ratio <= 1:
            raise ValueError(f"max_error_ratio is between 0 and 1, not {self.max_error_ratio}.")

    @classmethod
    def fail(cls) -> ErrorPolicy:
        """Return the policy that ends a job with its first error."""
        return cls()

    @classmethod
    def skip(cls, *, max_errors: int | None = None, max_error_ratio: float | None = None) -> ErrorPolicy:
        """Return the policy that leaves failed rows null and records their errors, within a budget."""
        return cls("skip", max_errors=max_errors, max_error_ratio=max_error_ratio)

    def rule_for(self, error: BaseException) -> Retry | None:
        """Return the first retry rule that an error matches."""
        return next((rule for rule in self.retries if rule.matches(error)), None)

    def exceeded(self, errors: int, rows: int) -> bool:
        """Tell whether so many errors among so many rows are more than the budget allows."""
        if self.max_errors is not None and errors > self.max_errors:
            return True
        return self.max_error_ratio is not None and errors > self.max_error_ratio * rows

    def to_json(self) -> dict[str, Any]:
        """Return the policy as JSON."""
        return {**asdict(self), "retries": [asdict(rule) | {"exceptions": [*rule.exceptions]} for rule in self.retries]}

    @classmethod
    def from_json(cls, document: Any) -> ErrorPolicy:
        """Return the policy that JSON describes."""
        known = _known_keys(cls, document, "error policy")
        rules = known.pop("retries", [])
        if not isinstance(rules, list):
            raise ValueError("The error policy's 'retries' is no list.")  # noqa: TRY004 - all bad documents are ValueErrors
        return _build(cls, {**known, "retries": tuple(_rule_from_json(rule) for rule in rules)}, "error policy")


def policy_of(error_handling: dict[str, Any] | None, stated: ErrorPolicy) -> ErrorPolicy:
    """Return what happens to partitions that fail: as a view was asked for, else as the function's author said.

    ``{"on_error": "retry", "attempts": 3}`` is short for a policy with one rule.
    """
    if not error_handling:
        return stated
    wanted = dict(error_handling)
    if wanted.get("on_error") != "retry" and "attempts" not in wanted:
        return ErrorPolicy.from_json(wanted)
    rule = {key: wanted.pop(key) for key in ("attempts", "backoff", "factor", "max_backoff") if key in wanted}
    if wanted.get("on_error") == "retry":
        wanted["on_error"] = "fail"
    return ErrorPolicy.from_json({**wanted, "retries": [*wanted.get("retries", []), rule]})


def _add_retry(policy: ErrorPolicy, *exceptions: type[BaseException] | str, **limits: Any) -> ErrorPolicy:
    return replace(policy, retries=(*policy.retries, Retry(tuple(map(_name_of, exceptions)), **limits)))


def _rule_from_json(document: Any) -> Retry:
    known = _known_keys(Retry, document, "retry rule")
    names = known.pop("exceptions", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("The retry rule's 'exceptions' is no list of names.")
    return _build(Retry, {**known, "exceptions": tuple(names)}, "retry rule")


def _known_keys(kind: type[Any], document: Any, what: str) -> dict[str, Any]:
    if not isinstance(document, Mapping):
        raise ValueError(f"The {what} is no JSON object.")  # noqa: TRY004 - all bad documents are ValueErrors
    unknown = document.keys() - {field.name for field in fields(kind)}
    if unknown:
        raise ValueError(f"The {what} has unknown keys: {', '.join(sorted(unknown))}.")
    return dict(document)


_Built = TypeVar("_Built")


def _build(kind: type[_Built], values: dict[str, Any], what: str) -> _Built:
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"The {what} has a value of a wrong type: {error}.") from None


def _names_of(kind: type[BaseException]) -> set[str]:
    return {name for base in kind.__mro__ for name in (base.__name__, name_of(base))}


def _name_of(exception: object) -> str:
    if isinstance(exception, type) and issubclass(exception, BaseException):
        return name_of(exception)
    if isinstance(exception, str):
        return exception
    raise TypeError(f"A function is called again for classes of exceptions, or for their names, not for {exception!r}.")
