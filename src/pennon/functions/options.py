"""The options of a function: how it is called and where it wants to run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pennon.functions.error_policy import ErrorPolicy

#: The most that each may be: beyond what any machine has, and within what Spark, Arrow and Lance can count.
_WHOLE = {"batch_size": 2**31 - 1, "batch_bytes": 2**40, "memory": 2**50}
_AMOUNTS = {"timeout": 1e9, "num_cpus": 1e6, "num_gpus": 1e6}
MOST: Mapping[str, float] = {**_WHOLE, **_AMOUNTS}


@dataclass(frozen=True)
class Options:
    """How a function is called (batches, time, errors) and where it wants to run (resources, environment)."""

    batch_size: int | None = None
    batch_bytes: int | None = None
    timeout: float | None = None
    error_policy: ErrorPolicy = field(default_factory=ErrorPolicy)
    auto_backfill: bool = False
    num_cpus: float | None = None
    num_gpus: float | None = None
    memory: int | None = None
    image: str | None = None
    manifest: Mapping[str, Any] | None = None
    #: Of a table function: which rows belong together, and whether it gets them as one table.
    partition_by: str | None = None
    partition_by_indexed_column: str | None = None
    whole: bool = False

    def __post_init__(self) -> None:
        limits: tuple[tuple[dict[str, Any], tuple[type, ...], str], ...] = (
            (_WHOLE, (int,), "a whole number"),
            (_AMOUNTS, (int, float), "a number"),
        )
        for names, kinds, words in limits:
            for name, most in names.items():
                value = getattr(self, name)
                if value is not None and not (type(value) in kinds and 0 < value < math.inf):
                    raise ValueError(f"{name} is {words} greater than 0, not {value!r}.")
                if value is not None and value > most:
                    raise ValueError(f"{name} is {value!r}; it must be at most {most:.0f}.")
        if not isinstance(self.error_policy, ErrorPolicy):
            raise TypeError(f"error_policy is an ErrorPolicy, such as ErrorPolicy.skip(), not {self.error_policy!r}")
        if self.partition_by is not None and self.partition_by_indexed_column is not None:
            raise ValueError("Rows are partitioned by partition_by or by partition_by_indexed_column, not by both.")
        if self.manifest is not None:
            _check_manifest(self.manifest)

    def to_json(self) -> dict[str, Any]:
        """Return the options as JSON, without those that say nothing."""
        stated = {**asdict(self), "error_policy": self.error_policy.to_json()}
        return {name: value for name, value in stated.items() if value is not None and (name != "whole" or value)}

    @classmethod
    def from_json(cls, document: Any) -> Options:
        """Return the options that JSON describes."""
        if not isinstance(document, dict):
            raise ValueError("The function's options are no JSON object.")  # noqa: TRY004 - all bad documents are ValueErrors
        unknown = document.keys() - {known.name for known in fields(cls)}
        if unknown:
            raise ValueError(f"The function has unknown options: {', '.join(sorted(unknown))}.")
        policy = ErrorPolicy.from_json(document.get("error_policy", {}))
        try:
            return cls(**{**document, "error_policy": policy})
        except TypeError as error:
            raise ValueError(f"An option of the function has a wrong type: {error}.") from None


def _check_manifest(manifest: Mapping[str, Any]) -> None:
    unknown = manifest.keys() - {"pip", "py_modules", "env_vars"}
    if unknown:
        raise ValueError(
            f"The manifest has unknown keys: {', '.join(sorted(unknown))}. It holds 'pip', 'py_modules' and 'env_vars'."
        )
    for name in ("pip", "py_modules"):
        entries = manifest.get(name, [])
        if not isinstance(entries, list | tuple) or not all(isinstance(entry, str) for entry in entries):
            raise ValueError(f"The manifest's {name!r} is a list of strings, not {entries!r}.")
    variables = manifest.get("env_vars", {})
    if not isinstance(variables, Mapping) or not all(
        isinstance(text, str) for pair in variables.items() for text in pair
    ):
        raise ValueError(f"The manifest's 'env_vars' maps strings to strings, unlike {variables!r}.")
