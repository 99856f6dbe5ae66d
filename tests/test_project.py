"""The files around the code agree with each other: workflows, classifiers, hooks and the Makefile."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.check_commit_message import find_fault

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
#: In the workflows and not promised yet.
UNPROVEN = {"3.14"}


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def workflow_ids(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", WORKFLOWS, ids=workflow_ids)
def test_a_workflow_has_no_more_rights_than_it_needs(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert "concurrency" in workflow
    for name, job in workflow["jobs"].items():
        assert "timeout-minutes" in job, name
        assert job.get("permissions", {}) in ({}, {"id-token": "write"}), name
        assert "permissions" not in job or (path.name, name) == ("release.yml", "publish")


@pytest.mark.parametrize("path", WORKFLOWS, ids=workflow_ids)
def test_every_action_is_pinned_to_a_major_version(path: Path) -> None:
    used = [step["uses"] for job in load(path)["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used
    for action in used:
        assert re.fullmatch(r"[\w./-]+@(v\d+|release/v\d+)", action), action


def test_the_workflow_and_the_classifiers_name_the_same_pythons() -> None:
    matrix = load(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["matrix"]["strategy"]["matrix"]
    named = {line.rpartition(" ")[2] for line in project()["classifiers"] if re.search(r":: 3\.\d+$", line)}
    assert set(matrix["python"]) - UNPROVEN == named
    assert matrix["os"] == ["ubuntu-latest", "macos-latest"]


def test_the_hooks_run_the_programs_of_make_lint() -> None:
    hooks = load(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    hooked = [re.sub(r" --force-exclude", "", hook["entry"]) for hook in hooks if "stages" not in hook]
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert recipe is not None
    lines = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    lines = [re.sub(r"\$\(wildcard (.*)\)", r"\1", line).removesuffix(" .") for line in lines]
    assert hooked == lines


def test_a_dependency_with_an_upper_bound_below_its_next_major_version_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name in ("cloudpickle", "lance-namespace", "lancedb", "pylance", "sqlglot", "uvicorn"):
        assert re.search(rf'^    "{name}>=[\d.]+,<[\d.]+", # \S', text, re.MULTILINE), name


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("Add a check\n\nBecause nothing checked.\n", None),
        ("Merge branch 'habits'\n", None),
        ("", "first line is empty"),
        ("Add a check\n# a comment of Git\n", "no body"),
        ("Add a check\nBecause nothing checked.\n", "second line has to be empty"),
        ("Add a check.\n\nBecause nothing checked.\n", "full stop"),
        (f"Add {'x' * 69}\n\nBecause nothing checked.\n", "73 characters"),
    ],
)
def test_the_message_of_a_commit_is_checked(message: str, fault: str | None) -> None:
    found = find_fault(message)
    assert found == fault if fault is None else fault in (found or "")
