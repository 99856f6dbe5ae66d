"""The options of a UDF: how it is called, and the resources and environment it needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TypedDict, cast

from pennon.functions.error_policy import ErrorPolicy

#: Upper bounds: more than any machine has, and within what Spark, Arrow and Lance can represent.
_INTEGER_LIMITS: Mapping[str, float] = {"batch_size": 2**31 - 1, "batch_bytes": 2**40, "memory": 2**50}
_NUMBER_LIMITS: Mapping[str, float] = {"timeout": 1e9, "num_cpus": 1e6, "num_gpus": 1e6}
OPTION_LIMITS: Mapping[str, float] = {**_INTEGER_LIMITS, **_NUMBER_LIMITS}


class FunctionOptions(TypedDict, total=False):
    """The keyword options that ``@udf``, ``@chunker`` and ``@udtf`` share."""

    #: Most rows, and most bytes, that one call gets.
    batch_size: int | None
    batch_bytes: int | None
    #: Time limit of one call, in seconds.
    timeout: float | None
    #: Whether new rows are computed without being asked for.
    auto_backfill: bool
    #: Resources that one call needs; memory in bytes.
    num_cpus: float | None
    num_gpus: float | None
    memory: int | None
    #: Container image, for clusters that run functions in containers.
    image: str | None
    #: Python environment: ``pip`` packages, ``py_modules`` and ``env_vars``.
    manifest: Mapping[str, object] | None


@dataclass(frozen=True)
class Options:
    """How a UDF is called (batch size, timeout, error policy) and what it needs (resources, environment)."""

    batch_size: int | None = None
    batch_bytes: int | None = None
    timeout: float | None = None
    error_policy: ErrorPolicy = field(default_factory=ErrorPolicy)
    auto_backfill: bool = False
    num_cpus: float | None = None
    num_gpus: float | None = None
    memory: int | None = None
    image: str | None = None
    manifest: Mapping[str, object] | None = None
    #: For a UDTF: the partitioning column, and whether each call gets its partition as one pyarrow Table.
    partition_by: str | None = None
    partition_by_indexed_column: str | None = None
    whole: bool = False

    def __post_init__(self) -> None:
        _check_numbers(self, _INTEGER_LIMITS, (int,), "an integer")
        _check_numbers(self, _NUMBER_LIMITS, (int, float), "a number")
        if not isinstance(self.error_policy, ErrorPolicy):
            raise TypeError(
                f"error_policy must be an ErrorPolicy, such as ErrorPolicy.skip(), not {self.error_policy!r}"
            )
        if self.partition_by is not None and self.partition_by_indexed_column is not None:
            raise ValueError("Set either partition_by or partition_by_indexed_column, not both.")
        if self.manifest is not None:
            _check_manifest(self.manifest)

    @property
    def py_modules(self) -> Sequence[str]:
        """The Python modules of the manifest."""
        return cast(Sequence[str], (self.manifest or {}).get("py_modules", ()))

    def to_json(self) -> dict[str, object]:
        """Return the options as JSON, without unset ones."""
        values = {**asdict(self), "error_policy": self.error_policy.to_json()}
        return {name: value for name, value in values.items() if value is not None and (name != "whole" or value)}

    @classmethod
    def from_json(cls, document: object) -> Options:
        """Read options from JSON."""
        if not isinstance(document, dict):
            raise ValueError("The function's options are not a JSON object.")  # noqa: TRY004 - all bad documents are ValueErrors
        unknown = document.keys() - {known.name for known in fields(cls)}
        if unknown:
            raise ValueError(f"The function has unknown options: {', '.join(sorted(unknown))}.")
        policy = ErrorPolicy.from_json(document.get("error_policy", {}))
        try:
            return cls(**{**document, "error_policy": policy})
        except TypeError as error:
            raise ValueError(f"An option of the function has the wrong type: {error}.") from None


def _check_numbers(options: Options, limits: Mapping[str, float], kinds: tuple[type, ...], what: str) -> None:
    for name, limit in limits.items():
        value = getattr(options, name)
        if value is None:
            continue
        if not (type(value) in kinds and 0 < value < math.inf):
            raise ValueError(f"{name} must be {what} greater than 0, not {value!r}.")
        if value > limit:
            raise ValueError(f"{name} is {value!r}; it must be at most {limit:.0f}.")


def _check_manifest(manifest: Mapping[str, object]) -> None:
    unknown = manifest.keys() - {"pip", "py_modules", "env_vars"}
    if unknown:
        raise ValueError(
            f"The manifest has unknown keys: {', '.join(sorted(unknown))}. Use 'pip', 'py_modules' and 'env_vars'."
        )
    for name in ("pip", "py_modules"):
        entries = manifest.get(name, [])
        if not isinstance(entries, list | tuple) or not all(isinstance(entry, str) for entry in entries):
            raise ValueError(f"The manifest's {name!r} must be a list of strings, not {entries!r}.")
    variables = manifest.get("env_vars", {})
    if not isinstance(variables, Mapping) or not all(
        isinstance(text, str) for pair in variables.items() for text in pair
    ):
        raise ValueError(f"The manifest's 'env_vars' must map strings to strings, not {variables!r}.")
