"""A process that ends with its parent and keeps to its memory, on Linux and where only the fallback works."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from pennon.core.process import (
    MEMORY_LIMIT_EXIT_CODE,
    _cgroup_limits,
    available_memory_bytes,
    held_memory_bytes,
    peak_memory_bytes,
)
from tests.support.waiting import wait_until

MEGABYTE = 1024**2

CHILD = """
import os, sys, time
from pennon.core.process import exit_with_parent
sys.platform = sys.argv[1]
exit_with_parent(int(sys.argv[2]))
print(os.getpid(), flush=True)
time.sleep(60)
"""

PARENT = """
import os, subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1], sys.argv[2], str(os.getpid())])
"""

HUNGRY = """
import sys, time
from pennon.core.process import limit_memory, peak_memory_bytes
sys.platform = "darwin"
unit = 1024  # ru_maxrss of this Linux, which is taken for that of macOS
limit_memory(peak_memory_bytes() + 100 * 1024**2 // unit)
kept = []
for _ in range(100):
    kept.append(bytearray(b"x" * 10 * 1024**2))
    time.sleep(0.02)
"""

WATCHED = """
import sys, time
from pennon.core.process import API_OOM_SCORE, held_memory_bytes, prefer_oom_kill, watch_memory
prefer_oom_kill(API_OOM_SCORE)
watch_memory(held_memory_bytes() + 100 * 1024**2, lambda held: print(held, flush=True))
freed = [bytearray(b"x" * 10 * 1024**2) for _ in range(8)]
del freed  # what is not held any more does not count
kept = []
for _ in range(100):
    kept.append(bytearray(b"x" * 10 * 1024**2))
    time.sleep(0.02)
"""

PLATFORMS = ("linux", "darwin")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_process_ends_when_its_parent_is_killed(platform: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD, platform], stdout=subprocess.PIPE) as parent:
        child = _first_number(parent.stdout)
        parent.kill()
        parent.wait()
        wait_until(lambda: not _runs(child))


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_process_whose_parent_is_gone_already_ends_at_once(platform: str) -> None:
    other = os.getppid()
    ended = subprocess.run([sys.executable, "-c", CHILD, platform, str(other)], capture_output=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (1, b"")


def test_where_the_address_space_has_no_limit_a_process_is_killed_for_its_memory() -> None:
    # By a shell: a process starts with the peak memory of the one that starts it, which here is that of many tests.
    command = ["sh", "-c", '"$0" -c "$1"; exit $?', sys.executable, HUNGRY]
    ended = subprocess.run(command, capture_output=True, timeout=60)
    assert ended.returncode == 128 + signal.SIGKILL, ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak counts")
def test_a_process_that_holds_more_memory_than_its_limit_reports_it_and_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, timeout=60)
    assert ended.returncode == MEMORY_LIMIT_EXIT_CODE, ended.stderr
    assert 100 * MEGABYTE < int(ended.stdout) < 300 * MEGABYTE


def test_held_memory_grows_and_shrinks() -> None:
    before = held_memory_bytes()
    block = bytearray(b"x" * 200 * MEGABYTE)
    held = held_memory_bytes()
    del block
    assert held > before + 150 * MEGABYTE
    assert sys.platform != "linux" or held_memory_bytes() < held - 150 * MEGABYTE


def test_memory_of_a_container_is_that_of_its_nearest_limit(tmp_path: Path) -> None:
    group = tmp_path / "app" / "inner"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group.parent / "memory.max").write_text("4000000000\n")
    assert _cgroup_limits(tmp_path, "0::/app/inner\n") == [4_000_000_000]
    (tmp_path / "memory.max").write_text("3000000000\n")
    assert min(_cgroup_limits(tmp_path, "0::/elsewhere/on/the/host\n")) == 3_000_000_000
    old = tmp_path / "memory" / "app"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("2000000000\n")
    (old.parent / "memory.limit_in_bytes").write_text("9223372036854771712\n")  # no limit
    assert _cgroup_limits(tmp_path / "none", "3:cpu:/app\n") == []
    assert _cgroup_limits(tmp_path, "4:cpu,memory:/app\n") == [2_000_000_000]
    assert available_memory_bytes() > 100 * MEGABYTE


def test_memory_is_counted_in_the_unit_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    assert peak_memory_bytes() > 10 * MEGABYTE
    counted = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    monkeypatch.setattr(sys, "platform", "darwin")
    assert counted <= peak_memory_bytes() < 10 * counted


def _first_number(stream: IO[bytes] | None) -> int:
    assert stream is not None
    return int(stream.readline())


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
