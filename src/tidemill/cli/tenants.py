"""``tidemill tenants``: list, pause and configure tenants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tidemill.cli import pause_actions
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import Column, print_json, print_lines, print_table, thousands
from tidemill.client.control import TENANT_SETTING, Control
from tidemill.client.limits import waiting_lanes
from tidemill.client.stats.api import StatsApi
from tidemill.domain.records import PauseKind

COUNTED = 10_000
"""Maximum number of pending jobs to count per tenant."""


@click.group(cls=InOrder)
def tenants() -> None:
    """List, pause and configure tenants."""


@tenants.command("list")
@with_context
def list_tenants(context: CommandContext) -> None:
    """List tenants with their waiting jobs.

    The list holds tenants that had jobs in the last 24 hours, have pending jobs, are paused or have settings.
    """
    rows = _known(context)
    if context.as_json:
        print_json(rows)
        return
    columns = (
        Column("tenant", flexible=True), Column("pending", right=True), Column("ended 24h", right=True),
        Column("failed", right=True), Column("weight", right=True), Column("max priority", right=True, optional=True),
        Column("paused", optional=True),
    )  # fmt: skip
    cells = [
        [
            row["tenant"], _counted(row["pending"]), thousands(row["ended"]), thousands(row["failed"]),
            f"{row['weight']:g}", row["max_priority"], "paused" if row["paused"] else None,
        ]
        for row in rows
    ]  # fmt: skip
    print_table(columns, cells, empty="no tenants")


def _known(context: CommandContext) -> list[dict[str, Any]]:
    loads = {row.tenant: row for row in StatsApi(context.client).tenants().rows}
    paused = {pause.name for pause in context.control.pauses() if pause.kind is PauseKind.TENANT}
    settings = {
        setting.key.removeprefix(TENANT_SETTING): setting.value
        for setting in context.control.settings()
        if setting.key.startswith(TENANT_SETTING)
    }
    waiting = {lane.tenant for lane in waiting_lanes(context.store)}
    rows = []
    for name in sorted({*loads, *paused, *settings, *waiting}):
        load, value = loads.get(name), settings.get(name)
        chosen = value if isinstance(value, Mapping) else {}
        rows.append({
            "tenant": name,
            "pending": context.store.depth(tenant=name, most=COUNTED) if name in waiting else 0,
            "ended": 0 if load is None else load.jobs,
            "failed": 0 if load is None else load.failed,
            "weight": chosen.get("weight", 1),
            "max_priority": chosen.get("max_priority"),
            "paused": name in paused,
        })  # fmt: skip
    return rows


def _counted(number: int) -> str:
    return f"{thousands(number)}+" if number >= COUNTED else thousands(number)


@tenants.command("set")
@click.argument("name")
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
    control, key = Control(context.client), f"{TENANT_SETTING}{name}"
    before = next((setting.value for setting in control.settings() if setting.key == key), None)
    value = (dict(before) if isinstance(before, Mapping) else {}) | chosen
    control.set(key, value)
    if context.as_json:
        print_json({"tenant": name, **value})
        return
    words = ", ".join(f"{option.replace('_', ' ')} {shown}" for option, shown in sorted(value.items()))
    print_lines([(f"tenant {name}: {words}", "")])


@tenants.command("unset")
@click.argument("name")
@with_context
def unset_tenant(context: CommandContext, name: str) -> None:
    """Remove a tenant's share and highest priority."""
    removed = Control(context.client).unset(f"{TENANT_SETTING}{name}")
    if context.as_json:
        print_json({"tenant": name, "removed": removed})
        return
    print_lines([(f"tenant {name} {'settings removed' if removed else 'had no settings'}", "")])


@tenants.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--reason", metavar="TEXT", help="Reason, shown with the pause.")
@with_context
def pause(context: CommandContext, names: tuple[str, ...], reason: str | None) -> None:
    """Stop starting jobs of tenants; running jobs finish."""
    pause_actions.pause(context, PauseKind.TENANT, names, reason)


@tenants.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@with_context
def resume(context: CommandContext, names: tuple[str, ...]) -> None:
    """Resume paused tenants."""
    pause_actions.resume(context, PauseKind.TENANT, names)
