"""What to do about a program that this machine does not have."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def unavailable(component: str) -> NoReturn:
    """Skip a test that needs a missing program; where every test has to run, fail it instead."""
    message = f"{component} is not on this machine; `make setup` installs it where it may"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
