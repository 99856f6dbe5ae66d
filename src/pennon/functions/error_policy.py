"""Error policies: whether a failed row fails the job or is skipped, retry rules, and the error budget."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Literal, Protocol, TypedDict, TypeVar, Unpack

from pennon.functions.failures import name_of, text_of


@dataclass(frozen=True)
class Retry:
    """A retry rule: which errors are retried, how often, and with which backoff."""

    exceptions: tuple[str, ...] = ()  # empty: every exception
    message: str | None = None
    attempts: int = 3
    backoff: float = 1.0
    factor: float = 2.0
    max_backoff: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, because it includes the first call, not {self.attempts}.")
        if not (self.backoff >= 0 and self.factor >= 1 and self.max_backoff >= 0):
            raise ValueError("backoff and max_backoff must be at least 0 seconds, and factor at least 1.")
        if self.message is not None:
            try:
                re.compile(self.message)
            except re.error as error:
                raise ValueError(f"message={self.message!r} is not a regular expression: {error}.") from None

    def matches(self, error: BaseException) -> bool:
        """Return whether the rule applies to an error."""
        if self.exceptions and not _names_of(type(error)).intersection(self.exceptions):
            return False
        return self.message is None or re.search(self.message, text_of(error)) is not None

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait after a failed attempt; the first attempt is 1."""
        try:
            return min(self.backoff * self.factor ** (attempt - 1), self.max_backoff)
        except OverflowError:
            return self.max_backoff


class _RetryLimits(TypedDict, total=False):
    message: str | None
    attempts: int
    backoff: float
    factor: float
    max_backoff: float


class AddRetry(Protocol):
    """The signature of ``ErrorPolicy.retry``."""

    def __call__(
        self,
        *exceptions: type[BaseException] | str,
        message: str | None = None,
        attempts: int = 3,
        backoff: float = 1.0,
        factor: float = 2.0,
        max_backoff: float = 60.0,
    ) -> ErrorPolicy:
        """Return the policy with a retry rule for these exceptions, and for messages that match the pattern."""
        ...


class _AddRetryToPolicy:
    """Lets ``retry`` be called on the class and on a policy: ``ErrorPolicy.retry(…)``, ``policy.retry(…)``."""

    def __get__(self, policy: ErrorPolicy | None, owner: type[ErrorPolicy]) -> AddRetry:
        return partial(_add_retry, owner() if policy is None else policy)


@dataclass(frozen=True)
class ErrorPolicy:
    """What happens when a UDF raises an error.

    ``fail`` fails the job on the first error. ``skip`` leaves the row null and records the error; the job fails when
    there are more than ``max_errors`` errors, or errors in more than ``max_error_ratio`` of the rows. ``retry`` adds a
    retry rule to either::

        ErrorPolicy.skip(max_errors=10).retry(ConnectionError, attempts=5)
    """

    on_error: Literal["fail", "skip"] = "fail"
    retries: tuple[Retry, ...] = ()
    max_errors: int | None = None
    max_error_ratio: float | None = None

    retry = _AddRetryToPolicy()

    def __post_init__(self) -> None:
        if self.on_error not in ("fail", "skip"):
            raise ValueError(f"on_error must be 'fail' or 'skip', not {self.on_error!r}.")
        if self.max_errors is not None and self.max_errors < 0:
            raise ValueError(f"max_errors must be at least 0, not {self.max_errors}.")
        if self.max_error_ratio is not None and not 0 <= self.max_error_ratio <= 1:
            raise ValueError(f"max_error_ratio must be between 0 and 1, not {self.max_error_ratio}.")

    @classmethod
    def fail(cls) -> ErrorPolicy:
        """Return the policy that fails the job on the first error."""
        return cls()

    @classmethod
    def skip(cls, *, max_errors: int | None = None, max_error_ratio: float | None = None) -> ErrorPolicy:
        """Return the policy that leaves failed rows null and records their errors, up to an error budget."""
        return cls("skip", max_errors=max_errors, max_error_ratio=max_error_ratio)

    def rule_for(self, error: BaseException) -> Retry | None:
        """Return the first retry rule that applies to an error."""
        return next((rule for rule in self.retries if rule.matches(error)), None)

    def exceeded(self, errors: int, rows: int) -> bool:
        """Return whether this number of errors among this number of rows exceeds the error budget."""
        if self.max_errors is not None and errors > self.max_errors:
            return True
        return self.max_error_ratio is not None and errors > self.max_error_ratio * rows

    def to_json(self) -> dict[str, object]:
        """Return the policy as JSON."""
        return {**asdict(self), "retries": [asdict(rule) | {"exceptions": [*rule.exceptions]} for rule in self.retries]}

    @classmethod
    def from_json(cls, document: object) -> ErrorPolicy:
        """Read a policy from JSON."""
        known = _known_keys(cls, document, "error policy")
        rules = known.pop("retries", [])
        if not isinstance(rules, list):
            raise ValueError("The error policy's 'retries' is not a list.")  # noqa: TRY004 - all bad documents are ValueErrors
        return _build(cls, {**known, "retries": tuple(_rule_from_json(rule) for rule in rules)}, "error policy")


def effective_policy(error_handling: Mapping[str, object] | None, default: ErrorPolicy) -> ErrorPolicy:
    """Return the policy of a view: its own ``error_handling``, else the policy stated in the decorator.

    ``{"on_error": "retry", "attempts": 3}`` is short for a policy with one retry rule.
    """
    if not error_handling:
        return default
    wanted = dict(error_handling)
    if wanted.get("on_error") != "retry" and "attempts" not in wanted:
        return ErrorPolicy.from_json(wanted)
    rule = {key: wanted.pop(key) for key in ("attempts", "backoff", "factor", "max_backoff") if key in wanted}
    if wanted.get("on_error") == "retry":
        wanted["on_error"] = "fail"
    retries = wanted.get("retries", [])
    return ErrorPolicy.from_json({**wanted, "retries": [*retries, rule] if isinstance(retries, list) else retries})


def _add_retry(
    policy: ErrorPolicy, *exceptions: type[BaseException] | str, **limits: Unpack[_RetryLimits]
) -> ErrorPolicy:
    return replace(policy, retries=(*policy.retries, Retry(tuple(map(_name_of, exceptions)), **limits)))


def _rule_from_json(document: object) -> Retry:
    known = _known_keys(Retry, document, "retry rule")
    names = known.pop("exceptions", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("The retry rule's 'exceptions' is not a list of names.")
    return _build(Retry, {**known, "exceptions": tuple(names)}, "retry rule")


def _known_keys(kind: type[Retry] | type[ErrorPolicy], document: object, what: str) -> dict[str, object]:
    if not isinstance(document, Mapping):
        raise ValueError(f"The {what} is not a JSON object.")  # noqa: TRY004 - all bad documents are ValueErrors
    unknown = document.keys() - {field.name for field in fields(kind)}
    if unknown:
        raise ValueError(f"The {what} has unknown keys: {', '.join(sorted(unknown))}.")
    return dict(document)


_Built = TypeVar("_Built")


def _build(kind: type[_Built], values: dict[str, object], what: str) -> _Built:
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"The {what} has a value of the wrong type: {error}.") from None


def _names_of(kind: type[BaseException]) -> set[str]:
    return {name for base in kind.__mro__ for name in (base.__name__, name_of(base))}


def _name_of(exception: object) -> str:
    if isinstance(exception, type) and issubclass(exception, BaseException):
        return name_of(exception)
    if isinstance(exception, str):
        return exception
    raise TypeError(f"retry() takes exception classes or their names, not {exception!r}.")
