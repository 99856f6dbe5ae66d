"""Tests that share a Spark are run by one process."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.xdist_groups import GROUPS, group_of

ROOT = Path(__file__).resolve().parents[2]
TESTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py")}


def test_every_group_has_tests() -> None:
    paths = [start.partition("::")[0] for start in GROUPS]
    assert [start for start in paths if not any(path.startswith(start) for path in TESTS)] == []


@pytest.mark.parametrize(
    ("fixture", "group"),
    [
        ("spark_server", "worker"),
        ("distant_lake", "worker"),
        ("stormy", "storms"),
        ("console_server", "console"),
        ("standalone", "clusters"),
    ],
)
def test_those_who_share_a_spark_are_of_one_group(fixture: str, group: str) -> None:
    parameter = re.compile(rf"def \w+\([^)]*\b{fixture}\b")
    assert {group_of(path) for path, text in TESTS.items() if parameter.search(text)} <= {group}


def test_a_group_is_run_by_one_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler")
    (tmp_path / "pytest.ini").touch()
    for path in ("tests/console/test_a.py", "tests/console/test_b.py", "tests/unit/test_c.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("import pytest\n@pytest.mark.parametrize('n', range(9))\ndef test(n): pass")
    command = [sys.executable, "-m", "pytest", "tests", "-p", "xdist", "-n", "2", "-v"]
    env = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    said = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stdout + said.stderr
    processes: dict[str, set[str]] = defaultdict(set)
    for process, path in re.findall(r"^\[(gw\d)\] .* PASSED (\S+?)::", said.stdout, re.MULTILINE):
        processes[path].add(process)
    assert [len(found) for found in processes.values()] == [1, 1, 1]
    assert processes["tests/console/test_a.py"] == processes["tests/console/test_b.py"]
