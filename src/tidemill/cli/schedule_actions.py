"""``tidemill schedules`` verbs that change schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from tidemill.cli.completion import queue_names, schedule_keys, task_names
from tidemill.cli.context import CommandContext, ask_first, own_tenant_option, with_context
from tidemill.cli.parsers import duration, json_or_text, metadata, read_arguments, reference
from tidemill.cli.parsers import instant as an_instant
from tidemill.cli.screen import STYLES, print_json, print_lines, stamp, thousands
from tidemill.cli.suggestions import OneOf
from tidemill.client.documents import instant, schedule_document
from tidemill.client.schedules.api import Schedules
from tidemill.client.schedules.schedule import Schedule
from tidemill.domain.schedule_rules import (
    OVERLAPS,
    After,
    All,
    Cron,
    Daily,
    Every,
    Manual,
    Misfire,
    Monthly,
    MonthlyBusinessDay,
    On,
    Once,
    Trigger,
    Weekly,
)
from tidemill.domain.schedules import Scope
from tidemill.errors import BadSchedule

TRIGGERS = ("cron", "every", "daily", "weekly", "monthly", "business_day", "once", "manual", "after", "on")


@click.command()
@click.argument("key")
@click.argument("task", shell_complete=task_names)
@click.option("--cron", metavar="EXPRESSION", help='Cron expression, such as "0 2 * * *".')
@click.option("--every", type=duration, metavar="DURATION", help="Interval, such as 5m or 6h.")
@click.option("--daily", metavar="TIME", help="Every day at this time, such as 06:00 or 06:00,18:00.")
@click.option("--weekly", metavar='"DAYS TIME"', help='Weekdays and time, such as "mon,fri 09:00".')
@click.option(
    "--monthly", metavar='"DAY TIME"', help='Day of the month and time, such as "1 00:00" or "-1 23:30".'
)
@click.option("--business-day", metavar='"N TIME"', help='N-th business day and time, such as "10 18:00".')
@click.option(
    "--once", type=an_instant, metavar="INSTANT", help="Once, at this time, such as 2026-03-01T06:00Z."
)
@click.option("--manual", is_flag=True, default=None, help="Only when triggered manually.")
@click.option(
    "--after",
    metavar="KEYS",
    help="After jobs of these definitions completed, such as extract-orders,extract-stock.",
)
@click.option("--on", metavar="EVENT", help="On every event of this name, such as order.paid.")
@click.option(
    "--take",
    "takes",
    multiple=True,
    metavar="NAME=PATH",
    help="With --on: argument from the payload, such as order=$.id; repeatable.",
)
@click.option(
    "--timezone", metavar="ZONE", default="UTC", show_default=True, help="Time zone, such as Europe/Berlin."
)
@click.option("--arg", "words", multiple=True, metavar="NAME=VALUE", help="Argument of the task; repeatable.")
@click.option("--args", "given", metavar="JSON", help="Arguments as a JSON object; --arg overrides.")
@click.option(
    "--misfire",
    metavar="RULE",
    default="once",
    show_default=True,
    help="What to do about missed fires: skip, once, all or all:N.",
)
@click.option(
    "--overlap",
    type=OneOf(OVERLAPS),
    help="What to do while a job still runs: skip by default, with --after queue, with --on allow.",
)
@click.option(
    "--scope", type=OneOf([scope.value for scope in Scope]), help="Scope, instead of the task's own."
)
@click.option("--queue", metavar="NAME", shell_complete=queue_names, help="Queue, instead of the task's own.")
@click.option("--priority", type=int, help="-100 to 100; higher runs first.")
@click.option(
    "--timeout",
    type=duration,
    metavar="DURATION",
    help="Time limit of one attempt, instead of the task's own.",
)
@click.option(
    "--expires", type=duration, metavar="DURATION", help="Cancel a job that has not started after this long."
)
@click.option(
    "--jitter", type=duration, metavar="DURATION", help="Delay each job by a random time up to this."
)
@click.option("--heartbeat", metavar="URL", help="Ping this address when its jobs start, complete and fail.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag; repeatable.")
@click.option(
    "--metadata", "pairs", type=metadata, multiple=True, metavar="KEY=VALUE", help="Metadata; repeatable."
)
@click.option("--reference", type=reference, metavar="KIND:ID", help="Reference, such as user:42.")
@click.option("--paused", is_flag=True, help="Add it paused.")
@own_tenant_option
@with_context
def add(
    context: CommandContext,
    /,
    key: str,
    task: str,
    words: tuple[str, ...],
    given: str | None,
    misfire: str,
    paused: bool,
    pairs: tuple[tuple[str, str], ...],
    takes: tuple[str, ...],
    **options: Any,
) -> None:
    """Add or replace the schedule KEY of TASK."""
    context.need_app("adding a schedule")
    trigger_options = {name: options.pop(name) for name in TRIGGERS}
    trigger = read_trigger(
        {name: value for name, value in trigger_options.items() if value is not None}, takes
    )
    declared = context.registry.get(task)
    codec = declared.arguments.without(trigger.args) if isinstance(trigger, On) else declared.arguments
    arguments = codec.load(read_arguments(given, words, declared.arguments.schema()))
    chosen = {name: value for name, value in options.items() if value not in (None, ())}
    if pairs:
        chosen["metadata"] = {name: json_or_text(value) for name, value in pairs}
    made = Schedules(context.client).add(
        task, trigger, key, args=arguments, misfire=read_misfire(misfire), enabled=not paused, **chosen
    )
    _print_result(
        context,
        made,
        f"schedule {made.key} is added: {made.words}"
        + ("" if made.next_fire_at is None else f", next {stamp(made.next_fire_at)}"),
    )


@click.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...", shell_complete=schedule_keys)
@click.option("--reason", metavar="TEXT", help="Reason, shown with the schedule.")
@own_tenant_option
@with_context
def pause(context: CommandContext, keys: tuple[str, ...], reason: str | None, tenant: str | None) -> None:
    """Pause schedules."""
    face = Schedules(context.client)
    done = [face.pause(key, reason=reason, tenant=tenant) for key in dict.fromkeys(keys)]
    _each(context, done, lambda schedule: f"schedule {schedule.key} is paused")


@click.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...", shell_complete=schedule_keys)
@own_tenant_option
@with_context
def resume(context: CommandContext, keys: tuple[str, ...], tenant: str | None) -> None:
    """Resume schedules, from now on."""
    face = Schedules(context.client)
    done = [face.resume(key, tenant=tenant) for key in dict.fromkeys(keys)]
    _each(context, done, lambda schedule: f"schedule {schedule.key} is resumed")


@click.command()
@click.argument("key", shell_complete=schedule_keys)
@click.option(
    "--force",
    is_flag=True,
    help="Also while its definition is disabled, or while a manual schedule is paused.",
)
@own_tenant_option
@with_context
def trigger(context: CommandContext, key: str, force: bool, tenant: str | None) -> None:
    """Enqueue a job of a schedule now."""
    job = Schedules(context.client).trigger(key, force=force, tenant=tenant)
    if context.as_json:
        print_json({"id": str(job.id), "task": job.task, "tenant": job.tenant})
    else:
        print_lines([(str(job.id), "")])


@click.command()
@click.argument("key", shell_complete=schedule_keys)
@click.argument("start", type=an_instant)
@click.argument("end", type=an_instant)
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Maximum number of fires.",
)
@click.option("--dry-run", is_flag=True, help="Only list the fires.")
@own_tenant_option
@with_context
def backfill(
    context: CommandContext,
    key: str,
    start: datetime,
    end: datetime,
    limit: int,
    dry_run: bool,
    tenant: str | None,
) -> None:
    """Enqueue the missing fires between START and END."""
    face = Schedules(context.client)
    done = face.backfill(key, start, end, limit=limit, dry_run=dry_run, tenant=tenant)
    if context.as_json:
        print_json(
            {"fires": [instant(at) for at in done.fires], "existing": done.existing, "more": done.more}
            | {"dry_run": dry_run}
        )
        return
    verb = "would be" if dry_run else "are"
    lines = [(f"{thousands(len(done.fires))} fires {verb} made, {thousands(done.existing)} existed", "")]
    lines += [(f"  {stamp(at)}", "dim") for at in done.fires[:20]]
    if done.more:
        lines.append(
            (f"there are more than {thousands(limit)}: run the command again for the rest", STYLES["warn"])
        )
    print_lines(lines)


@click.command()
@click.argument("key", shell_complete=schedule_keys)
@click.option(
    "--force",
    is_flag=True,
    help="Also remove a schedule that an app declares; the app adds it again when it starts.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@own_tenant_option
@with_context
def remove(context: CommandContext, key: str, force: bool, yes: bool, tenant: str | None) -> None:
    """Remove a schedule; its jobs stay."""
    face = Schedules(context.client)
    schedule = face.get(key, tenant=tenant)
    if not yes:
        ask_first(f"remove schedule {schedule.key} of task {schedule.task}, tenant {schedule.tenant}?")
    face.remove(schedule.id, force=force, tenant=schedule.tenant)
    _print_result(context, schedule, f"schedule {schedule.key} is removed")


@click.command()
@click.option(
    "--force",
    is_flag=True,
    help="Also while a newer deployment is alive. Deployments that started earlier do not change it back.",
)
@with_context
def sync(context: CommandContext, force: bool) -> None:
    """Store the schedules that the app declares.

    The exit code is 1 if some could not be stored.
    """
    context.need_app("bringing schedules in line")
    done = context.application.reconcile(force=force)
    if context.as_json:
        lists = ("added", "updated", "disabled", "conflicts", "refused")
        print_json(
            {name: list(getattr(done, name)) for name in lists}
            | {"unchanged": done.unchanged, "newer": done.newer}
        )
        if done.conflicts or done.refused:
            click.get_current_context().exit(1)
        return
    lines = [
        (f"{word}: {', '.join(keys)}", "")
        for word, keys in (("added", done.added), ("updated", done.updated), ("disabled", done.disabled))
        if keys
    ]
    if done.conflicts:
        lines.append((f"conflicts, not changed: {', '.join(done.conflicts)}", STYLES["error"]))
    if done.refused:
        why = f"{done.newer} is newer or was forced; give --force to change them anyway"
        lines.append((f"not changed: {', '.join(done.refused)}; {why}", STYLES["error"]))
    lines.append((f"{thousands(done.unchanged)} unchanged", ""))
    print_lines(lines)
    if done.conflicts or done.refused:
        click.get_current_context().exit(1)


def read_trigger(options: dict[str, Any], takes: Sequence[str] = ()) -> Trigger:
    """Return the trigger that the options specify; exactly one is required. ``takes`` are the arguments of an event."""
    if takes and "on" not in options:
        raise BadSchedule("take: only --on takes arguments from an event", field="take")
    if len(options) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in TRIGGERS)
        raise BadSchedule(f"trigger: give exactly one of {names}", field="trigger")
    ((kind, value),) = options.items()
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
        case "after":
            return After(*(key.strip() for key in value.split(",")))
        case "on":
            return On(value, args=dict(_pair(text) for text in takes))
        case _:
            return Manual()


def _pair(text: str) -> tuple[str, str]:
    name, sign, path = text.partition("=")
    if not sign or not name:
        raise BadSchedule(f"take: {text!r} is not NAME=PATH; write order=$.id", field="take", value=text)
    return name, path


def _two(text: str, option: str, example: str) -> tuple[str, str]:
    first, _, second = text.strip().rpartition(" ")
    if not first:
        raise BadSchedule(
            f'{option}: {text!r} is not a day and time; write "{example}"', field=option, value=text
        )
    return first.strip(), second


def _number(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadSchedule(
            f"{option}: {text!r} is not the number of a day", field=option, value=text
        ) from None


def read_misfire(text: str) -> Misfire:
    """Parse ``skip``, ``once``, ``all`` or ``all:N``."""
    word, sign, number = text.partition(":")
    if word == "all":
        if sign and not number.isdecimal():
            raise BadSchedule(f"misfire: {text!r} is not a misfire rule; write all:100", field="misfire")
        return All(int(number)) if sign else All()
    if text == "skip":
        return "skip"
    if text == "once":
        return "once"
    raise BadSchedule(
        f"misfire: {text!r} is not a misfire rule; expected skip, once, all or all:N", field="misfire"
    )


def _print_result(context: CommandContext, schedule: Schedule, words: str) -> None:
    if context.as_json:
        print_json(schedule_document(schedule))
    else:
        print_lines([(words, "")])


def _each(context: CommandContext, schedules: list[Schedule], words: Any) -> None:
    if context.as_json:
        print_json([schedule_document(schedule) for schedule in schedules])
    else:
        print_lines([(words(schedule), "") for schedule in schedules])
