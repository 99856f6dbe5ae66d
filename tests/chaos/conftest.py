"""Servers for the races and crashes: each test has its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.chaos.crashing import Crash
from tests.clients.lakes import Lake, s3_arguments

if TYPE_CHECKING:
    from tests.conftest import StartPennon
    from tests.support.s3 import S3Root, S3Server

#: Starts as many servers as asked for, all on the same catalog and storage.
StartLakes = Callable[[int], list[Lake]]


class PlanCrash(Protocol):
    """Prepare a server that dies at a step, on a folder and with the embedded catalog unless told otherwise."""

    def __call__(
        self, fault: str, arguments: Sequence[str] = (), *, s3: S3Server | None = None, lease_millis: int = 0
    ) -> Crash: ...


@pytest.fixture
def start_lakes(catalog_url: str, tmp_path: Path, start_pennon: StartPennon) -> StartLakes:
    """Servers on a folder; the test runs once on each kind of catalog."""

    def start(count: int) -> list[Lake]:
        arguments = ["--database", catalog_url, "--processes", "1"]
        return [Lake(start_pennon(*arguments, directory=tmp_path / "lake")) for _ in range(count)]

    return start


@pytest.fixture
def s3_lake(s3_server: S3Server, s3_root: S3Root, start_pennon: StartPennon) -> Lake:
    """A server on object storage, with the embedded catalog."""
    return Lake(start_pennon(*s3_arguments(s3_root)), s3_root.options, s3_server)


@pytest.fixture
def plan_crash(tmp_path: Path) -> Iterator[PlanCrash]:
    """A function that prepares servers that die; all are ended with the test."""
    planned: list[Crash] = []

    def plan(fault: str, arguments: Sequence[str] = (), *, s3: S3Server | None = None, lease_millis: int = 0) -> Crash:
        planned.append(Crash(tmp_path / "lake", fault, arguments, s3=s3, lease_millis=lease_millis))
        return planned[-1]

    yield plan
    for crash in planned:
        crash.close()
