"""The lock holds everything that pyproject.toml asks for, and says nothing about where it comes from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def locked(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def wanted() -> list[Requirement]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = table["project"]
    extras = project["optional-dependencies"].values()
    groups = table["dependency-groups"].values()
    lines = [*project["dependencies"], *(line for group in [*extras, *groups] for line in group)]
    return [found for found in map(Requirement, lines) if found.name != project["name"]]


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_every_dependency_is_locked_to_a_version_it_allows(requirement: Requirement) -> None:
    version = locked(ROOT / "requirements" / "dev.txt").get(canonicalize_name(requirement.name))
    assert version is not None, f"{requirement.name} is not locked: run `make lock`"
    assert requirement.specifier.contains(version, prereleases=True), "the lock is out of date: run `make lock`"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_has_only_names_and_versions(lock: Path) -> None:
    for line in lock.read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"# [^:/]*(`make lock`)?[^:/]*|[A-Za-z0-9._-]+==[A-Za-z0-9._+!]+", line), line
