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

from tidemill.cli.completion import schedule_keys, task_names
from tidemill.cli.context import CommandContext, tenant_option, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.parsers import instant as an_instant
from tidemill.cli.schedule_actions import add, backfill, pause, remove, resume, sync, trigger
from tidemill.cli.screen import (
    Column,
    age,
    heading,
    print_fields,
    print_json,
    print_lines,
    print_table,
    stamp,
)
from tidemill.client.documents import fire_document, instant, schedule_document
from tidemill.client.jobs.api import SHOWN
from tidemill.client.schedules.api import Schedules
from tidemill.client.schedules.schedule import Schedule
from tidemill.domain.schedules import Fired
from tidemill.domain.triggers.reactive import ReactiveTrigger


@click.group(cls=InOrder)
def schedules() -> None:
    """List, add, pause, preview and trigger schedules."""


@schedules.command("list")
@click.option("--task", metavar="NAME", shell_complete=task_names, help="Schedules of this task.")
@tenant_option
@with_context
def list_schedules(context: CommandContext, task: str | None, tenant: str) -> None:
    """List schedules with their next fire."""
    schedules = Schedules(context.client).list(task=task, tenant=tenant)
    if context.as_json:
        print_json([schedule_document(schedule) for schedule in schedules])
        return
    now = context.now()
    columns = (
        Column("key", flexible=True), Column("task", flexible=True), Column("status"), Column("next"),
        Column("when", flexible=True), Column("zone", optional=True), Column("last", optional=True),
        Column("scope", optional=True), Column("source", optional=True), Column("tenant", optional=True),
        Column("note", flexible=True, optional=True),
    )  # fmt: skip
    rows = [
        [
            schedule.key, schedule.task, state(schedule), None if schedule.next_fire_at is None else age(schedule.next_fire_at, now),
            schedule.words, schedule.timezone, None if schedule.last_fire_at is None else age(schedule.last_fire_at, now),
            schedule.scope.value, schedule.source.value, schedule.tenant, schedule.broken or schedule.note,
        ]
        for schedule in schedules
    ]  # fmt: skip
    print_table(columns, rows, empty="no schedules: add one, or declare it with app.schedule()")


@schedules.command()
@click.argument("key", shell_complete=schedule_keys)
@click.option(
    "--fires", "count", type=click.IntRange(0, 1000), default=10, help="Number of past fires to show."
)
@tenant_option
@with_context
def show(context: CommandContext, key: str, count: int, tenant: str) -> None:
    """Show a schedule: rules, arguments and last fires."""
    face = Schedules(context.client)
    schedule = face.get(key, tenant=tenant)
    fires = face.fires(schedule.id, limit=count, tenant=schedule.tenant) if count else []
    if context.as_json:
        print_json(schedule_document(schedule) | {"fires": [fire_document(fire) for fire in fires]})
        return
    now = context.now()
    reacts = isinstance(schedule.trigger, ReactiveTrigger)
    waits = face.why(schedule.id, tenant=schedule.tenant) if reacts else None
    print_fields(
        [
            ("schedule", schedule.key),
            ("task", schedule.task),
            ("status", state(schedule)),
            ("broken", schedule.broken),
            ("note", schedule.note),
            ("when", schedule.words),
            ("waits", waits),
            ("time zone", schedule.timezone),
            ("next", _both(schedule.next_fire_at, schedule.timezone, now)),
            ("last", _both(schedule.last_fire_at, schedule.timezone, now)),
            ("arguments", json.dumps(schedule.args) if schedule.args else None),
            ("options", json.dumps(schedule.options) if schedule.options else None),
            ("misfire", _misfire(schedule.row.misfire)),
            ("overlap", schedule.overlap),
            ("scope", schedule.scope.value),
            (
                "source",
                schedule.source.value if schedule.app is None else f"{schedule.source.value}, {schedule.app}",
            ),
            ("definition", schedule.definition_id),
            ("tenant", schedule.tenant),
            ("id", schedule.id),
        ]
    )
    heading("Fires")
    _print_fires(fires, now)


@schedules.command()
@click.argument("key", shell_complete=schedule_keys)
@click.option(
    "--count", "-n", type=click.IntRange(1, 1000), default=10, show_default=True, help="Number of fires."
)
@click.option("--after", type=an_instant, metavar="INSTANT", help="Start from this time instead of now.")
@tenant_option
@with_context
def preview(context: CommandContext, key: str, count: int, after: datetime | None, tenant: str) -> None:
    """Show the next fires, in local time and UTC."""
    face = Schedules(context.client)
    schedule = face.get(key, tenant=tenant)
    since = after or context.now()
    fires = face.preview(schedule.id, count, after=since, tenant=schedule.tenant)
    zone = ZoneInfo(schedule.timezone)
    notes = clock_changes([since.astimezone(zone), *fires])
    if context.as_json:
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
    columns = (Column(f"local ({schedule.timezone})"), Column("utc"), Column("note", flexible=True))
    print_table(columns, rows, empty=_no_fires(schedule))


@schedules.command()
@click.argument("key", shell_complete=schedule_keys)
@tenant_option
@with_context
def why(context: CommandContext, key: str, tenant: str) -> None:
    """Tell what a schedule waits for."""
    face = Schedules(context.client)
    schedule = face.get(key, tenant=tenant)
    words = face.why(schedule.id, tenant=schedule.tenant)
    if context.as_json:
        print_json({"schedule": schedule.key, "waits": words})
    else:
        print_lines([(f"{schedule.key} {words}", "")])


for _verb in (add, pause, resume, trigger, backfill, remove, sync):
    schedules.add_command(_verb)


def _no_fires(schedule: Schedule) -> str:
    if isinstance(schedule.trigger, ReactiveTrigger):
        return f"it has no times: {schedule.words}"
    return "it never fires by itself"


def state(schedule: Schedule) -> str:
    """Return whether the schedule is enabled, paused or broken."""
    if schedule.broken is not None:
        return "broken"
    return "enabled" if schedule.enabled else "paused"


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
        Column("fire"), Column("outcome"), Column("job", tail=SHOWN), Column("node", optional=True),
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
