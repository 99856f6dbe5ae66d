"""Flags of commands that submit a job."""

from __future__ import annotations

from typing import Annotated

import typer

PriorityOption = Annotated[int, typer.Option("--priority", help="Jobs with a higher priority run first.")]
TimeoutOption = Annotated[float | None, typer.Option("--timeout", metavar="SECONDS", help="Time limit of the job.")]
ConcurrencyOption = Annotated[int | None, typer.Option("--concurrency", min=1, help="Most concurrent tasks.")]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", metavar="NAME", help="Name of the Spark cluster, from the server's settings.")
]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the job has ended.")]
