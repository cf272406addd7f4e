"""``tidemill tenants``: list, pause and configure tenants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tidemill.cli import pause_actions
from tidemill.cli.context import CommandContext, at_desk
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
@at_desk
def list_tenants(desk: CommandContext) -> None:
    """List tenants with their waiting jobs.

    The list holds tenants that had jobs in the last 24 hours, have pending jobs, are paused or have settings.
    """
    rows = _known(desk)
    if desk.as_json:
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


def _known(desk: CommandContext) -> list[dict[str, Any]]:
    loads = {row.tenant: row for row in StatsApi(desk.client).tenants().rows}
    paused = {pause.name for pause in desk.control.pauses() if pause.kind is PauseKind.TENANT}
    settings = {
        setting.key.removeprefix(TENANT_SETTING): setting.value
        for setting in desk.control.settings()
        if setting.key.startswith(TENANT_SETTING)
    }
    waiting = {lane.tenant for lane in waiting_lanes(desk.store)}
    found = []
    for name in sorted({*loads, *paused, *settings, *waiting}):
        load, value = loads.get(name), settings.get(name)
        chosen = value if isinstance(value, Mapping) else {}
        found.append({
            "tenant": name,
            "pending": desk.store.depth(tenant=name, most=COUNTED) if name in waiting else 0,
            "ended": 0 if load is None else load.jobs,
            "failed": 0 if load is None else load.failed,
            "weight": chosen.get("weight", 1),
            "max_priority": chosen.get("max_priority"),
            "paused": name in paused,
        })  # fmt: skip
    return found


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
@at_desk
def set_tenant(desk: CommandContext, name: str, weight: float | None, max_priority: int | None) -> None:
    """Set a tenant's share and highest priority.

    Options that are not given keep their value.
    """
    given = {"weight": weight, "max_priority": max_priority}
    said = {option: value for option, value in given.items() if value is not None}
    if not said:
        raise click.UsageError("nothing to set; pass --weight or --max-priority")
    control, key = Control(desk.client), f"{TENANT_SETTING}{name}"
    before = next((setting.value for setting in control.settings() if setting.key == key), None)
    value = (dict(before) if isinstance(before, Mapping) else {}) | said
    control.set(key, value)
    if desk.as_json:
        print_json({"tenant": name, **value})
        return
    words = ", ".join(f"{option.replace('_', ' ')} {shown}" for option, shown in sorted(value.items()))
    print_lines([(f"tenant {name}: {words}", "")])


@tenants.command("unset")
@click.argument("name")
@at_desk
def unset_tenant(desk: CommandContext, name: str) -> None:
    """Remove a tenant's share and highest priority."""
    removed = Control(desk.client).unset(f"{TENANT_SETTING}{name}")
    if desk.as_json:
        print_json({"tenant": name, "removed": removed})
        return
    print_lines([(f"tenant {name} {'settings removed' if removed else 'had no settings'}", "")])


@tenants.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--reason", metavar="TEXT", help="Reason, shown with the pause.")
@at_desk
def pause(desk: CommandContext, names: tuple[str, ...], reason: str | None) -> None:
    """Stop starting jobs of tenants; running jobs finish."""
    pause_actions.pause(desk, PauseKind.TENANT, names, reason)


@tenants.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@at_desk
def resume(desk: CommandContext, names: tuple[str, ...]) -> None:
    """Resume paused tenants."""
    pause_actions.resume(desk, PauseKind.TENANT, names)
