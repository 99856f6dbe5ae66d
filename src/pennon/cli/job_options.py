"""Flags of commands that submit a job."""

from __future__ import annotations

from typing import Annotated

import typer

PriorityOption = Annotated[int, typer.Option("--priority", help="Jobs with a higher one go first.")]
TimeoutOption = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", help="Time after which the server ends the job.")
]
ConcurrencyOption = Annotated[int | None, typer.Option("--concurrency", min=1, help="Tasks at the same time, at most.")]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", metavar="NAME", help="The Spark to use, as the server's settings name it.")
]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the job has ended.")]
