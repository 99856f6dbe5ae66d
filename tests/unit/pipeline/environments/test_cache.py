"""Environments on the cache: built once, whole or not at all, and removed when there are too many."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pennon.pipeline.environments.cache import EnvironmentCache, _size
from pennon.pipeline.environments.environment import BuildError, Environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KILOBYTE = 1000
PLENTY = 1000 * KILOBYTE


def environment(name: str) -> Environment:
    """Return an environment of one module, of a kilobyte."""
    return Environment(modules={f"{name}.py": f"NAME = {name!r}".ljust(KILOBYTE).encode()})


def put(cache: EnvironmentCache, *names: str) -> None:
    """Use environments one after the other."""
    for name in names:
        with cache.acquire(environment(name)) as folder:
            assert [path.name for path in folder.iterdir()] == [f"{name}.py"]


def kept(folder: Path) -> set[str]:
    """Return which modules are on a cache."""
    return {path.stem for path in folder.rglob("*.py")}


@pytest.fixture
def room_for_two(tmp_path: Path) -> EnvironmentCache:
    """A cache that holds two environments, with their folders, and not three."""
    put(EnvironmentCache(tmp_path / "one", PLENTY), "one")
    size = sum(path.stat().st_size for path in (tmp_path / "one").rglob("*") if path.suffix != ".lock")
    return EnvironmentCache(tmp_path / "cache", int(2.5 * size))


def test_an_environment_is_built_once_also_by_many(tmp_path: Path) -> None:
    cache, cups = EnvironmentCache(tmp_path, PLENTY), environment("cups")

    def look(_: int) -> tuple[int, int]:
        with cache.acquire(cups) as folder, cache.acquire_archive(cups) as archive:
            assert zipfile.ZipFile(archive).namelist() == ["cups.py"]
            return (folder / "cups.py").stat().st_ino, archive.stat().st_ino

    with ThreadPoolExecutor(4) as threads:
        seen = set(threads.map(look, range(8)))
    assert len(seen) == 1


def test_a_failed_build_leaves_nothing_and_says_what_pip_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    coffee = Environment(requirements=("pennon-test-coffee",))
    with (
        pytest.raises(BuildError, match="No matching distribution found for pennon-test-coffee"),
        EnvironmentCache(tmp_path, PLENTY).acquire(coffee),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_build_is_abandoned_when_its_job_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silence: int
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{silence}/")

    def refuse() -> None:
        raise InterruptedError

    coffee = Environment(requirements=("pennon-test-coffee",))
    with pytest.raises(InterruptedError), EnvironmentCache(tmp_path, PLENTY).acquire(coffee, refuse):
        pass
    assert list(tmp_path.iterdir()) == []


def test_those_used_least_recently_make_room(room_for_two: EnvironmentCache, tmp_path: Path) -> None:
    put(room_for_two, "tea", "milk", "tea", "sugar")
    assert kept(tmp_path / "cache") == {"tea", "sugar"}
    put(room_for_two, "milk")
    assert kept(tmp_path / "cache") == {"sugar", "milk"}
    assert len(list((tmp_path / "cache").iterdir())) == 4


def test_a_too_large_environment_is_used_once_and_evicted_by_the_next(tmp_path: Path) -> None:
    cache = EnvironmentCache(tmp_path, 1)
    put(cache, "tea")
    assert kept(tmp_path) == {"tea"}
    put(cache, "milk")
    assert kept(tmp_path) == {"milk"}


def test_the_size_of_what_another_process_removes_is_no_matter(tmp_path: Path) -> None:
    folder = tmp_path / "package"

    def build_and_remove() -> None:
        for _ in range(20):
            for number in range(20):
                (folder / str(number) / "module").mkdir(parents=True)
            shutil.rmtree(folder)

    with ThreadPoolExecutor(1) as threads:
        busy = threads.submit(build_and_remove)
        while not busy.done():
            assert _size(folder) >= 0
        busy.result()


def test_none_is_removed_that_is_in_use(room_for_two: EnvironmentCache, tmp_path: Path) -> None:
    with room_for_two.acquire(environment("tea")) as folder:
        put(room_for_two, "milk", "sugar", "honey")
        assert (folder / "tea.py").exists()
        assert kept(tmp_path / "cache") == {"tea", "honey"}


@pytest.fixture
def user(room_for_two: EnvironmentCache, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which uses the environment "tea"."""
    put(room_for_two, "tea")
    program = (
        "import sys, pathlib; from tests.unit.pipeline.environments.test_cache import EnvironmentCache, environment\n"
        "with EnvironmentCache(pathlib.Path(sys.argv[1]), 1000000).acquire(environment('tea')):\n"
        "    print('in use', flush=True); input()"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "cache")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in use\n"
        yield process
        process.kill()


def test_none_is_removed_that_another_process_uses_until_it_dies(
    room_for_two: EnvironmentCache, tmp_path: Path, user: subprocess.Popen[str]
) -> None:
    put(room_for_two, "milk", "sugar")
    assert kept(tmp_path / "cache") == {"tea", "sugar"}
    user.kill()
    user.wait()
    put(room_for_two, "honey")
    assert kept(tmp_path / "cache") == {"sugar", "honey"}


def test_what_a_killed_process_left_is_removed_with_the_rest(room_for_two: EnvironmentCache, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    left = environment("left").checksum
    (tmp_path / "cache" / f"{left}.lock").touch()
    (tmp_path / "cache" / f"staged-{left}").write_bytes(bytes(PLENTY))
    put(room_for_two, "tea", "milk")
    assert kept(tmp_path / "cache") == {"tea", "milk"}
    assert not list((tmp_path / "cache").glob(f"*{left}*"))
