"""Access to objects in Spark's JVM, for which py4j has no types."""

from __future__ import annotations

from typing import Any, TypeAlias

#: An object in the JVM: a plan, an expression, a filter or a Scala collection.
JavaObject: TypeAlias = Any


def items(sequence: JavaObject) -> list[JavaObject]:
    """Return the items of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]
