"""The namespace: every published operation is a plain method, and delegates to its noun."""

from __future__ import annotations

import inspect

import pytest
from lance_namespace import LanceNamespace

from pennon.namespace import PennonNamespace

OPERATIONS = [name for name, value in vars(LanceNamespace).items() if inspect.isfunction(value) and name[0] != "_"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_published_operation_takes_the_published_arguments(name: str) -> None:
    published = list(inspect.signature(getattr(LanceNamespace, name)).parameters)
    own = inspect.signature(vars(PennonNamespace)[name]).parameters
    assert list(own)[: len(published)] == published
    assert all(own[more].default is not inspect.Parameter.empty for more in list(own)[len(published) :])


def test_it_inherits_from_the_published_class_only() -> None:
    assert PennonNamespace.__bases__ == (LanceNamespace,)
