"""``pennon backfill``: have a feature column filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pennon.cli.job_options import ClusterOption, ConcurrencyOption, PriorityOption, TimeoutOption, WaitOption
from pennon.cli.jobs import follow
from pennon.cli.names import parse_table, table_route
from pennon.cli.output import Form, FormOption, note, show, table_of
from pennon.cli.servers import BranchOption, TableArgument, with_server
from pennon.core.identifiers import format_identifier

if TYPE_CHECKING:
    from pennon.client.backfill import BackfillOptions
    from pennon.client.transport import Transport

#: Written once more here, because the client's modules are imported when a command is run.
Mode = Literal["default", "only_missing", "only_failed", "all"]

_PLAN = ("rows", "fragments", "bytes", "udf_calls", "mode", "version")


@with_server
def backfill(
    server: Transport,
    table: TableArgument,
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="Column to fill.")],
    where: Annotated[str | None, typer.Option("--where", "-w", help="SQL condition that rows must meet.")] = None,
    mode: Annotated[Mode, typer.Option("--mode", help="Which rows: by default those without an up-to-date value.")] = (
        "default"
    ),
    cascade: Annotated[bool, typer.Option("--cascade", help="First fill the columns it is computed from.")] = False,
    priority: PriorityOption = 0,
    timeout: TimeoutOption = None,
    concurrency: ConcurrencyOption = None,
    cluster: ClusterOption = None,
    branch: BranchOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
    wait: WaitOption = True,
    output: FormOption = Form.TABLE,
) -> None:
    """Have a column filled by its function, and wait for it; what is up to date is not computed again.

    The exit code is 7 when the job fails. An interrupt ends the waiting, not the job.
    """
    from pennon.client.backfill import backfill_body
    from pennon.client.job import submitted
    from pennon.client.transport import new_key

    identifier = parse_table(table)
    options: BackfillOptions = {"where": where, "mode": mode, "cascade": cascade, "priority": priority}
    options |= {"timeout": timeout, "concurrency": concurrency, "cluster": cluster}
    body: dict[str, Any] = backfill_body(column, branch, options)
    route = table_route(identifier, "backfill_column")
    if dry_run:
        plan = server.ask(route, {**body, "dry_run": True})
        show(output, plan, table_of(("What", "Value"), ((name.replace("_", " "), plan.get(name)) for name in _PLAN)))
        return
    answer = server.post(route, body, idempotency_key=new_key())
    job = submitted(server, answer, job_type="backfill", table=format_identifier(identifier), target=column)
    if wait:
        follow(job, output)
        return
    if output is Form.TABLE:
        note("The job is submitted; `pennon jobs watch` follows it. Its id:")
    show(output, {"job_id": job.id}, job.id)
