"""``tidemill schedules add``, ``pause``, ``resume``, ``trigger``, ``backfill``, ``remove`` and ``sync``."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from tidemill.cli.desk import Desk, ask_first, at_desk, own_tenant_option
from tidemill.cli.reading import duration, json_or_text, metadata, read_arguments, reference
from tidemill.cli.reading import instant as an_instant
from tidemill.cli.screen import STYLES, print_json, print_lines, stamp, thousands
from tidemill.client.documents import instant, schedule_document
from tidemill.client.scheduled import Schedule
from tidemill.client.schedules import Schedules
from tidemill.domain.schedule import (
    OVERLAPS,
    All,
    Cron,
    Daily,
    Every,
    Manual,
    Misfire,
    Monthly,
    MonthlyBusinessDay,
    Once,
    Trigger,
    Weekly,
)
from tidemill.domain.timetable import Scope
from tidemill.errors import BadSchedule

TRIGGERS = ("cron", "every", "daily", "weekly", "monthly", "business_day", "once", "manual")


@click.command()
@click.argument("key")
@click.argument("task")
@click.option("--cron", metavar="EXPRESSION", help='Such as "0 2 * * *".')
@click.option("--every", type=duration, metavar="DURATION", help="Such as 5m or 6h.")
@click.option("--daily", metavar="TIME", help="Such as 06:00 or 06:00,18:00.")
@click.option("--weekly", metavar='"DAYS TIME"', help='Such as "mon,fri 09:00".')
@click.option("--monthly", metavar='"DAY TIME"', help='Such as "1 00:00" or "-1 23:30".')
@click.option("--business-day", metavar='"N TIME"', help='Such as "10 18:00": the tenth business day.')
@click.option("--once", type=an_instant, metavar="INSTANT", help="Such as 2026-03-01T06:00Z.")
@click.option("--manual", is_flag=True, default=None, help="Only when triggered by hand.")
@click.option("--timezone", metavar="ZONE", default="UTC", show_default=True, help="Such as Europe/Berlin.")
@click.option("--arg", "words", multiple=True, metavar="NAME=VALUE", help="An argument; may be repeated.")
@click.option("--args", "given", metavar="JSON", help="The arguments as a JSON object; --arg goes over it.")
@click.option(
    "--misfire", metavar="RULE", default="once", show_default=True, help="skip, once, all or all:N."
)
@click.option("--overlap", type=click.Choice(OVERLAPS), default="skip", show_default=True)
@click.option("--scope", type=click.Choice(tuple(Scope)), help="Instead of the task's own.")
@click.option("--queue", metavar="NAME", help="Instead of the task's own.")
@click.option("--priority", type=int, help="-100 to 100, higher first.")
@click.option("--timeout", type=duration, metavar="DURATION", help="Instead of the task's own.")
@click.option("--expires", type=duration, metavar="DURATION", help="Cancelled if not begun so long after.")
@click.option("--jitter", type=duration, metavar="DURATION", help="Spread the jobs over so long.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="May be repeated.")
@click.option(
    "--metadata", "pairs", type=metadata, multiple=True, metavar="KEY=VALUE", help="May be repeated."
)
@click.option("--reference", type=reference, metavar="KIND:ID", help="Such as user:42.")
@click.option("--paused", is_flag=True, help="Do not fire before it is resumed.")
@own_tenant_option
@at_desk
def add(
    desk: Desk,
    /,
    key: str,
    task: str,
    words: tuple[str, ...],
    given: str | None,
    misfire: str,
    paused: bool,
    pairs: tuple[tuple[str, str], ...],
    **options: Any,
) -> None:
    """Save a schedule of TASK under KEY; all of it is checked before anything is written."""
    desk.need_app("adding a schedule")
    said = {name: options.pop(name) for name in TRIGGERS}
    trigger = read_trigger({name: value for name, value in said.items() if value is not None})
    declared = desk.registry.get(task)
    arguments = declared.arguments.load(read_arguments(given, words, declared.arguments.schema()))
    chosen = {name: value for name, value in options.items() if value not in (None, ())}
    if pairs:
        chosen["metadata"] = {name: json_or_text(value) for name, value in pairs}
    made = Schedules(desk.client).add(
        task, trigger, key, args=arguments, misfire=read_misfire(misfire), enabled=not paused, **chosen
    )
    _said(desk, made, f"schedule {made.key} is added: {made.words}, next {stamp(made.next_fire_at)}")


@click.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.option("--reason", metavar="TEXT", help="Why; whoever looks is told.")
@own_tenant_option
@at_desk
def pause(desk: Desk, keys: tuple[str, ...], reason: str | None, tenant: str | None) -> None:
    """Let these schedules fire no more."""
    face = Schedules(desk.client)
    done = [face.pause(key, reason=reason, tenant=tenant) for key in dict.fromkeys(keys)]
    _each(desk, done, lambda each: f"schedule {each.key} is paused")


@click.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@own_tenant_option
@at_desk
def resume(desk: Desk, keys: tuple[str, ...], tenant: str | None) -> None:
    """Let these schedules fire again, from now on."""
    face = Schedules(desk.client)
    done = [face.resume(key, tenant=tenant) for key in dict.fromkeys(keys)]
    _each(desk, done, lambda each: f"schedule {each.key} is resumed")


@click.command()
@click.argument("key")
@own_tenant_option
@at_desk
def trigger(desk: Desk, key: str, tenant: str | None) -> None:
    """Make a job of a schedule now."""
    job = Schedules(desk.client).trigger(key, tenant=tenant)
    if desk.as_json:
        print_json({"id": str(job.id), "task": job.task, "tenant": job.tenant})
    else:
        print_lines([(str(job.id), "")])


@click.command()
@click.argument("key")
@click.argument("start", type=an_instant)
@click.argument("end", type=an_instant)
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True)
@click.option("--dry-run", is_flag=True, help="Only say which fires would be made.")
@own_tenant_option
@at_desk
def backfill(
    desk: Desk, key: str, start: datetime, end: datetime, limit: int, dry_run: bool, tenant: str | None
) -> None:
    """Make the fires from START to END that do not exist yet."""
    face = Schedules(desk.client)
    done = face.backfill(key, start, end, limit=limit, dry_run=dry_run, tenant=tenant)
    if desk.as_json:
        print_json(
            {"fires": [instant(at) for at in done.fires], "existing": done.existing, "more": done.more}
            | {"dry_run": dry_run}
        )
        return
    verb = "would be" if dry_run else "are"
    lines = [(f"{thousands(len(done.fires))} fires {verb} made, {thousands(done.existing)} existed", "")]
    lines += [(f"  {stamp(at)}", "dim") for at in done.fires[:20]]
    if done.more:
        lines.append((f"there are more than {thousands(limit)}: ask again for the rest", STYLES["warn"]))
    print_lines(lines)


@click.command()
@click.argument("key")
@click.option(
    "--force", is_flag=True, help="Also one that an app declares, and that would come back with it."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask first.")
@own_tenant_option
@at_desk
def remove(desk: Desk, key: str, force: bool, yes: bool, tenant: str | None) -> None:
    """Remove a schedule; jobs it made stay."""
    face = Schedules(desk.client)
    found = face.get(key, tenant=tenant)
    if not yes:
        ask_first(f"remove schedule {found.key} of task {found.task}, tenant {found.tenant}?")
    face.remove(found.id, force=force, tenant=found.tenant)
    _said(desk, found, f"schedule {found.key} is removed")


@click.command()
@at_desk
def sync(desk: Desk) -> None:
    """Bring the stored schedules in line with those that the app declares."""
    desk.need_app("bringing schedules in line")
    done = desk.application.reconcile()
    if desk.as_json:
        print_json(
            {name: list(getattr(done, name)) for name in ("added", "updated", "disabled", "conflicts")}
            | {"unchanged": done.unchanged}
        )
        return
    lines = [
        (f"{word}: {', '.join(keys)}", "")
        for word, keys in (("added", done.added), ("updated", done.updated), ("disabled", done.disabled))
        if keys
    ]
    if done.conflicts:
        lines.append((f"not ours to change: {', '.join(done.conflicts)}", STYLES["error"]))
    lines.append((f"{thousands(done.unchanged)} unchanged", ""))
    print_lines(lines)
    if done.conflicts:
        click.get_current_context().exit(1)


def read_trigger(said: dict[str, Any]) -> Trigger:
    """The one trigger among the options."""
    if len(said) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in TRIGGERS)
        raise BadSchedule(f"trigger: say once when it fires, with one of {names}", field="trigger")
    ((kind, value),) = said.items()
    match kind:
        case "cron":
            return Cron(value)
        case "every":
            return Every(value if isinstance(value, timedelta) else timedelta(seconds=value))
        case "daily":
            return Daily(value)
        case "weekly":
            return Weekly(*_two(value, "weekly", "mon,fri 09:00"))
        case "monthly":
            day, at = _two(value, "monthly", "1 00:00")
            return Monthly(day=_number(day, "monthly"), at=at)
        case "business_day":
            day, at = _two(value, "business-day", "10 18:00")
            return MonthlyBusinessDay(_number(day, "business-day"), at)
        case "once":
            return Once(value)
        case _:
            return Manual()


def _two(text: str, option: str, example: str) -> tuple[str, str]:
    first, _, second = text.strip().rpartition(" ")
    if not first:
        raise BadSchedule(
            f'{option}: {text!r} is no day and time; write "{example}"', field=option, value=text
        )
    return first.strip(), second


def _number(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadSchedule(f"{option}: {text!r} is no number of a day", field=option, value=text) from None


def read_misfire(text: str) -> Misfire:
    """``skip``, ``once``, ``all`` or ``all:N``."""
    word, sign, number = text.partition(":")
    if word == "all":
        if sign and not number.isdecimal():
            raise BadSchedule(f"misfire: {text!r} is no misfire rule; write all:100", field="misfire")
        return All(int(number)) if sign else All()
    if text == "skip":
        return "skip"
    if text == "once":
        return "once"
    raise BadSchedule(
        f"misfire: {text!r} is no misfire rule; choose skip, once, all or all:N", field="misfire"
    )


def _said(desk: Desk, found: Schedule, words: str) -> None:
    if desk.as_json:
        print_json(schedule_document(found))
    else:
        print_lines([(words, "")])


def _each(desk: Desk, found: list[Schedule], words: Any) -> None:
    if desk.as_json:
        print_json([schedule_document(each) for each in found])
    else:
        print_lines([(words(each), "") for each in found])
