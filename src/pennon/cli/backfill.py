"""``pennon backfill``: compute a feature column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pennon.cli.job_options import ClusterOption, ConcurrencyOption, PriorityOption, TimeoutOption, WaitOption
from pennon.cli.jobs import follow_or_print
from pennon.cli.names import parse_table, table_route
from pennon.cli.output import OutputFormat, OutputOption, print_fields
from pennon.cli.servers import BranchOption, TableArgument, with_server
from pennon.core.identifiers import format_identifier

if TYPE_CHECKING:
    from pennon.client.backfill import BackfillOptions
    from pennon.client.transport import Transport

#: Repeated here because the client's modules are imported only when a command runs.
Mode = Literal["default", "only_missing", "only_failed", "all"]

_PLAN = ("rows", "fragments", "bytes", "udf_calls", "mode", "version")


@with_server
def backfill(
    server: Transport,
    table: TableArgument,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="Feature column to compute.")],
    where: Annotated[str | None, typer.Option("--where", "-w", help="SQL filter for the rows to compute.")] = None,
    mode: Annotated[
        Mode, typer.Option("--mode", help="Rows to compute; by default those without an up-to-date value.")
    ] = ("default"),
    cascade: Annotated[bool, typer.Option("--cascade", help="First backfill the columns it is computed from.")] = False,
    priority: PriorityOption = 0,
    timeout: TimeoutOption = None,
    concurrency: ConcurrencyOption = None,
    cluster: ClusterOption = None,
    branch: BranchOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan without computing anything.")] = False,
    wait: WaitOption = True,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Backfill a feature column: compute its UDF for rows without an up-to-date value, and wait for the job.

    The exit code is 7 if the job fails. Ctrl-C stops waiting; the job continues.
    """
    from pennon.client.backfill import backfill_body
    from pennon.client.job import job_from_response
    from pennon.client.transport import new_key

    identifier = parse_table(table)
    options: BackfillOptions = {"where": where, "mode": mode, "cascade": cascade, "priority": priority}
    options |= {"timeout": timeout, "concurrency": concurrency, "cluster": cluster}
    body = backfill_body(column, branch, options)
    route = table_route(identifier, "backfill_column")
    if dry_run:
        plan = server.read(route, {**body, "dry_run": True})
        print_fields(output, plan, ((name.replace("_", " "), plan.get(name)) for name in _PLAN))
        return
    response = server.post(route, body, idempotency_key=new_key())
    name = format_identifier(identifier)
    job = job_from_response(server, response, job_type="backfill", table=name, target=column)
    follow_or_print(job, output, wait=wait)
