"""``tidemill tenants``: list, pause, configure and move tenants."""

from __future__ import annotations

import click
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tidemill.cli import pause_actions
from tidemill.cli.completion import tenant_names
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.known_names import NOTHING, check_known
from tidemill.cli.screen import Column, console, print_json, print_lines, print_table, thousands
from tidemill.client.control import COUNTED, TENANT_SETTING
from tidemill.client.documents import placement_document, tenant_document
from tidemill.domain.records import PauseKind
from tidemill.domain.tenant_placement import TenantPlacement
from tidemill.shards.move import MoveProgress


@click.group(cls=InOrder)
def tenants() -> None:
    """List, pause, configure and move tenants."""


@tenants.command("list")
@with_context
def list_tenants(context: CommandContext) -> None:
    """List tenants with their waiting jobs.

    The list holds tenants that had jobs in the last 24 hours, have pending jobs, are paused or have settings.
    """
    states = context.control.tenants()
    if context.as_json:
        print_json([tenant_document(state) for state in states])
        return
    columns = (
        Column("tenant", flexible=True), Column("pending", right=True), Column("ended 24h", right=True),
        Column("failed", right=True), Column("weight", right=True), Column("max priority", right=True, optional=True),
        Column("paused", optional=True),
    )  # fmt: skip
    cells = [
        [
            state.name, _counted(state.pending), thousands(state.ended), thousands(state.failed),
            f"{state.weight:g}", state.max_priority, "paused" if state.paused else None,
        ]
        for state in states
    ]  # fmt: skip
    print_table(columns, cells, empty="no tenants")


def _counted(number: int) -> str:
    return f"{thousands(number)}+" if number >= COUNTED else thousands(number)


@tenants.command("set")
@click.argument("name", shell_complete=tenant_names)
@click.option(
    "--weight",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Share of the workers, compared with other tenants.  [default: 1]",
)
@click.option(
    "--max-priority",
    type=click.IntRange(-100, 100),
    metavar="N",
    help="Refuse jobs with a higher priority.",
)
@with_context
def set_tenant(context: CommandContext, name: str, weight: float | None, max_priority: int | None) -> None:
    """Set a tenant's share and highest priority.

    Options that are not given keep their value.
    """
    given = {"weight": weight, "max_priority": max_priority}
    chosen = {option: value for option, value in given.items() if value is not None}
    if not chosen:
        raise click.UsageError("nothing to set; pass --weight or --max-priority")
    value = context.control.set_tenant(name, chosen)
    if context.as_json:
        print_json({"tenant": name, **value})
        return
    words = ", ".join(f"{option.replace('_', ' ')} {shown}" for option, shown in sorted(value.items()))
    print_lines([(f"tenant {name}: {words}", "")])


@tenants.command("unset")
@click.argument("name", shell_complete=tenant_names)
@with_context
def unset_tenant(context: CommandContext, name: str) -> None:
    """Remove a tenant's share and highest priority."""
    removed = context.control.unset(f"{TENANT_SETTING}{name}")
    if context.as_json:
        print_json({"tenant": name, "removed": removed})
        return
    print_lines([(f"tenant {name} {'settings removed' if removed else 'had no settings'}", "")])


@tenants.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=tenant_names)
@click.option("--reason", metavar="TEXT", help="Reason, shown with the pause.")
@click.option("--new", is_flag=True, help="Allow a tenant that is not known yet.")
@with_context
def pause(context: CommandContext, names: tuple[str, ...], reason: str | None, new: bool) -> None:
    """Stop starting jobs of tenants; running jobs finish."""
    if not new:
        check_known(context, PauseKind.TENANT, names, hint="pass --new to pause it before its first job")
    pause_actions.pause(context, PauseKind.TENANT, names, reason)


@tenants.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=tenant_names)
@with_context
def resume(context: CommandContext, names: tuple[str, ...]) -> None:
    """Resume paused tenants."""
    check_known(context, PauseKind.TENANT, names, hint=NOTHING)
    pause_actions.resume(context, PauseKind.TENANT, names)


@tenants.command()
@click.argument("name", shell_complete=tenant_names)
@click.option("--to", metavar="SHARD", help="The shard that the tenant moves to.")
@click.option(
    "--cancel", is_flag=True, help="Take back a move that has not sent new jobs to the new shard yet."
)
@with_context
def move(context: CommandContext, name: str, to: str | None, cancel: bool) -> None:
    """Move a tenant to another shard while the app runs.

    Jobs that have not begun are carried. Jobs that have begun end in the old shard, and the new one starts no job of the tenant
    before that. Run the command again to continue a move that was interrupted.
    """
    context.need_app("a move to another shard")
    if cancel == (to is not None):
        raise click.UsageError("pass --to SHARD, or --cancel")
    shards = context.application.shards
    if to is None:
        row = shards.cancel_move(name)
        words = f"the move of tenant {name} is cancelled; it stays in the shard {row.shard}"
    else:
        row, carried = _moved(context, name, to)
        words = f"tenant {name} is in the shard {row.shard}; jobs carried: {thousands(carried)}"
    if context.as_json:
        print_json(placement_document(row))
        return
    print_lines([(words, "")])


def _moved(context: CommandContext, name: str, to: str) -> tuple[TenantPlacement, int]:
    """Move a tenant with a line about the progress; return the placement and the number of carried jobs."""
    screen = console(err=True)
    shown = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
        disable=context.as_json or not screen.is_terminal,
    )
    carried = 0
    with shown:
        line = shown.add_task(f"moving {name} to {to}: waiting until every client knows", total=None)

        def show(progress: MoveProgress) -> None:
            nonlocal carried
            carried = progress.carried
            words = f"jobs carried: {thousands(carried)}, left in the old shard: {thousands(progress.left)}"
            shown.update(line, description=f"moving {name} to {to}: {words}")

        row = context.application.shards.move(name, to, report=show)
    return row, carried
