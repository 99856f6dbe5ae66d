"""Child processes without coverage, for tests of what a process imports and of how fast it ends."""

from __future__ import annotations

import os


def environment_without_coverage() -> dict[str, str]:
    """Return the environment for a process that coverage neither imports modules into nor delays the end of."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
