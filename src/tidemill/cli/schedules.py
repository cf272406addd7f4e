"""``tidemill schedules``: list, show and preview schedules.

``schedules_act`` has the verbs that change schedules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import click

from tidemill.cli.completion import task_names
from tidemill.cli.context import CommandContext, at_desk, tenant_option
from tidemill.cli.groups import InOrder
from tidemill.cli.parsers import instant as an_instant
from tidemill.cli.schedule_actions import add, backfill, pause, remove, resume, sync, trigger
from tidemill.cli.screen import Column, age, heading, print_facts, print_json, print_table, stamp
from tidemill.client.documents import fire_document, instant, schedule_document
from tidemill.client.schedules.api import Schedules
from tidemill.client.schedules.schedule import Schedule
from tidemill.domain.schedules import Fired


@click.group(cls=InOrder)
def schedules() -> None:
    """List, add, pause, preview and trigger schedules."""


@schedules.command("list")
@click.option("--task", metavar="NAME", shell_complete=task_names, help="Schedules of this task.")
@tenant_option
@at_desk
def list_schedules(desk: CommandContext, task: str | None, tenant: str) -> None:
    """List schedules with their next fire."""
    found = Schedules(desk.client).list(task=task, tenant=tenant)
    if desk.as_json:
        print_json([schedule_document(each) for each in found])
        return
    now = desk.now()
    columns = (
        Column("key", flexible=True), Column("task", flexible=True), Column("status"), Column("next"),
        Column("when", flexible=True), Column("zone", optional=True), Column("last", optional=True),
        Column("scope", optional=True), Column("source", optional=True), Column("tenant", optional=True),
        Column("note", flexible=True, optional=True),
    )  # fmt: skip
    rows = [
        [
            each.key, each.task, state(each), None if each.next_fire_at is None else age(each.next_fire_at, now),
            each.words, each.timezone, None if each.last_fire_at is None else age(each.last_fire_at, now),
            each.scope.value, each.source.value, each.tenant, each.broken or each.note,
        ]
        for each in found
    ]  # fmt: skip
    print_table(columns, rows, empty="no schedules: add one, or declare it with app.schedule()")


@schedules.command()
@click.argument("key")
@click.option(
    "--fires", "count", type=click.IntRange(0, 1000), default=10, help="Number of past fires to show."
)
@tenant_option
@at_desk
def show(desk: CommandContext, key: str, count: int, tenant: str) -> None:
    """Show a schedule: rules, arguments and last fires."""
    face = Schedules(desk.client)
    found = face.get(key, tenant=tenant)
    fires = face.fires(found.id, limit=count, tenant=found.tenant) if count else []
    if desk.as_json:
        print_json(schedule_document(found) | {"fires": [fire_document(fire) for fire in fires]})
        return
    now = desk.now()
    print_facts(
        [
            ("schedule", found.key),
            ("task", found.task),
            ("status", state(found)),
            ("broken", found.broken),
            ("note", found.note),
            ("when", found.words),
            ("time zone", found.timezone),
            ("next", _both(found.next_fire_at, found.timezone, now)),
            ("last", _both(found.last_fire_at, found.timezone, now)),
            ("arguments", json.dumps(found.args) if found.args else None),
            ("options", json.dumps(found.options) if found.options else None),
            ("misfire", _misfire(found.facts.misfire)),
            ("overlap", found.overlap),
            ("scope", found.scope.value),
            ("source", found.source.value if found.app is None else f"{found.source.value}, {found.app}"),
            ("definition", found.definition_id),
            ("tenant", found.tenant),
            ("id", found.id),
        ]
    )
    heading("Fires")
    _print_fires(fires, now)


@schedules.command()
@click.argument("key")
@click.option(
    "--count", "-n", type=click.IntRange(1, 1000), default=10, show_default=True, help="Number of fires."
)
@click.option("--after", type=an_instant, metavar="INSTANT", help="Start from this time instead of now.")
@tenant_option
@at_desk
def preview(desk: CommandContext, key: str, count: int, after: datetime | None, tenant: str) -> None:
    """Show the next fires, in local time and UTC."""
    face = Schedules(desk.client)
    found = face.get(key, tenant=tenant)
    since = after or desk.now()
    fires = face.preview(found.id, count, after=since, tenant=found.tenant)
    zone = ZoneInfo(found.timezone)
    notes = clock_changes([since.astimezone(zone), *fires])
    if desk.as_json:
        print_json(
            [
                {"local": at.isoformat(), "utc": instant(at), "note": note}
                for at, note in zip(fires, notes, strict=True)
            ]
        )
        return
    rows = [
        [at.strftime("%a %Y-%m-%d %H:%M:%S %z"), stamp(at), note]
        for at, note in zip(fires, notes, strict=True)
    ]
    columns = (Column(f"local ({found.timezone})"), Column("utc"), Column("note", flexible=True))
    print_table(columns, rows, empty="it never fires by itself")


for _verb in (add, pause, resume, trigger, backfill, remove, sync):
    schedules.add_command(_verb)


def state(found: Schedule) -> str:
    """Return whether the schedule is enabled, paused or broken."""
    if found.broken is not None:
        return "broken"
    return "enabled" if found.enabled else "paused"


def clock_changes(fires: list[datetime]) -> list[str | None]:
    """Return a note for each fire but the first if its UTC offset differs from the previous one."""
    notes: list[str | None] = []
    for before, at in pairwise(fires):
        old, new = before.utcoffset() or timedelta(0), at.utcoffset() or timedelta(0)
        if old == new:
            notes.append(None)
        else:
            way = "forward" if new > old else "back"
            notes.append(f"clocks went {way}: {before:%z} to {at:%z}")
    return notes


def _both(at: datetime | None, timezone: str, now: datetime) -> str | None:
    if at is None:
        return None
    try:
        local = at.astimezone(ZoneInfo(timezone)).strftime("%Y-%m-%d %H:%M:%S %z")
    except (ValueError, OSError, KeyError):
        local = at.astimezone(UTC).isoformat()
    return f"{local} ({stamp(at)}, {age(at, now)})"


def _print_fires(fires: Any, now: datetime) -> None:
    rows = [_fire_row(fire, now) for fire in fires]
    columns = (
        Column("fire"), Column("outcome"), Column("job"), Column("node", optional=True),
        Column("reason", flexible=True), Column("age", optional=True),
    )  # fmt: skip
    print_table(columns, rows, empty="none yet")


def _fire_row(fire: Fired, now: datetime) -> list[object]:
    return [
        stamp(fire.fire_at),
        fire.outcome.value,
        fire.job_id,
        fire.scope_key or None,
        fire.reason,
        age(fire.fire_at, now),
    ]


def _misfire(rule: str | Mapping[str, object]) -> str:
    """Format a misfire policy as ``--misfire`` accepts it."""
    return rule if isinstance(rule, str) else ", ".join(f"{name}:{value}" for name, value in rule.items())
