"""``tidemill archive policies``, ``explain`` and ``settings``: retention as operators see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import click

from tidemill.archive.status import PolicyStatus, RetentionStatus
from tidemill.cli.completion import job_ids
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.job_views import one
from tidemill.cli.parsers import duration
from tidemill.cli.screen import (
    Column,
    age,
    print_fields,
    print_json,
    print_lines,
    print_table,
    span,
    stamp,
    thousands,
)
from tidemill.client.archive import Archive
from tidemill.client.stats.reports import document
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.retention_settings import ENABLED, INTERVAL, OVERRIDES, USE_DEFAULTS
from tidemill.errors import BadSettings


def archive_of(context: CommandContext) -> Archive:
    """Return the archive API of the command's app or store."""
    return Archive(context.client, context.jobs)


@click.command()
@with_context
def policies(context: CommandContext) -> None:
    """List the retention policies, their totals and the latest run.

    The policies are those of the app; without --app, the defaults.
    """
    status = archive_of(context).status()
    if context.as_json:
        print_json(document(status))
        return
    now = context.now()
    columns = (
        Column("policy", flexible=True), Column("applies to", flexible=True), Column("from", optional=True),
        Column("after"), Column("goes to", flexible=True), Column("archived", right=True),
        Column("last", optional=True, right=True),
    )  # fmt: skip
    rows = [
        [
            policy.name,
            applies_to(policy),
            policy.from_tier or "live",
            after_words(policy),
            goes_to(policy),
            thousands(policy.archived),
            age(policy.last_at, now),
        ]
        for policy in status.policies
    ]
    print_table(columns, rows, empty="there are no policies")
    print_fields(retention_fields(status, now))


def applies_to(policy: PolicyStatus) -> str:
    """Describe the jobs of a policy."""
    parts = [", ".join(policy.states)]
    parts += [f"tasks {', '.join(policy.tasks)}"] if policy.tasks else []
    parts += [f"tenants {', '.join(policy.tenants)}"] if policy.tenants else []
    return "; ".join(parts)


def after_words(policy: PolicyStatus) -> str:
    """Describe when a policy applies."""
    parts = [] if policy.max_age is None else [span(policy.max_age)]
    parts += [] if policy.max_count is None else [f"{thousands(policy.max_count)} newer"]
    return " or ".join(parts)


def goes_to(policy: PolicyStatus) -> str:
    """Describe the target of a policy."""
    if policy.to is None:
        return "deleted"
    copied = "" if policy.delete_from_source else ", copied"
    place = policy.tier if policy.tier == policy.to else f"{policy.to}: {policy.tier}"
    return f"{place}{copied}"


def retention_fields(status: RetentionStatus, now: datetime) -> Iterator[tuple[str, object]]:
    """Yield the state of retention as names and texts."""
    yield "retention", retention_line(status, now)
    if status.oldest_ended_at is not None:
        yield "oldest ended job", age(status.oldest_ended_at, now)
    for policy in status.policies:
        if policy.overdue_since is not None:
            yield "overdue", f"{policy.name}, since {stamp(policy.overdue_since)}"


def retention_line(status: RetentionStatus, now: datetime) -> str:
    """Describe in one line whether retention is on, its latest run and its next run."""
    if not status.enabled:
        return "off"
    words = [f"on, every {span(status.interval)}"]
    if status.last is not None:
        words.append(f"last run {age(status.last.at, now)}, {thousands(status.last.archived)} archived")
    else:
        words.append("no run yet")
    if status.running:
        words.append("running now")
    elif status.last is None or status.next_at is None or status.next_at <= now:
        words.append("next run due")
    else:
        words.append(f"next run in {span(status.next_at - now)}")
    return ", ".join(words)


@click.command()
@click.argument("id", shell_complete=job_ids)
@with_context
def explain(context: CommandContext, id: str) -> None:
    """Explain which policy governs a job.

    It lists the policies that were considered, when the job is due, and where it goes.
    """
    job = one(context, id)
    choice = archive_of(context).explain(job.id, tenant=ALL_TENANTS)
    now = context.now()
    if context.as_json:
        print_json(
            {
                **document(choice),
                "considered": [item._asdict() for item in choice.considered],
                "text": choice.lines(now),
            }
        )
        return
    print_lines(
        [(line, "bold" if number == 0 else "") for number, line in enumerate(choice.lines(now))], hang=4
    )


@click.command()
@click.option("--on/--off", "enabled", default=None, help="Turn archive runs of the workers on or off.")
@click.option("--interval", type=duration, metavar="DURATION", help="Time between two runs of the workers.")
@click.option("--defaults/--no-defaults", default=None, help="Whether the default policies apply.")
@click.option(
    "--max-age",
    "ages",
    multiple=True,
    metavar="POLICY=DURATION",
    help="Age at which a policy applies, such as completed=90d. Repeatable.",
)
@click.option("--reset", is_flag=True, help="Return to the settings of the app.")
@with_context
def settings(
    context: CommandContext,
    enabled: bool | None,
    interval: timedelta | None,
    defaults: bool | None,
    ages: tuple[str, ...],
    reset: bool,
) -> None:
    """Show or change the run-time settings of retention.

    They apply to all workers of the store and take precedence over the app.
    """
    if reset and (ages or any(value is not None for value in (enabled, interval, defaults))):
        raise BadSettings("--reset removes all these settings; give it alone")
    if interval is not None and (interval < timedelta(seconds=1) or interval % timedelta(seconds=1)):
        raise BadSettings(f"--interval is {span(interval)}; give whole seconds, one or more")
    changes: dict[str, object] = dict.fromkeys((ENABLED, INTERVAL, USE_DEFAULTS, OVERRIDES)) if reset else {}
    if enabled is not None:
        changes[ENABLED] = enabled
    if interval is not None:
        changes[INTERVAL] = int(interval.total_seconds())
    if defaults is not None:
        changes[USE_DEFAULTS] = defaults
    if ages:
        changes[OVERRIDES] = _with_ages(context, ages)
    if changes:
        context.control.set_all(changes)
    status = archive_of(context).status()
    if context.as_json:
        print_json(
            document({"enabled": status.enabled, "interval": status.interval, "next_at": status.next_at})
        )
        return
    print_fields(retention_fields(status, context.now()))


def _with_ages(context: CommandContext, ages: tuple[str, ...]) -> dict[str, object]:
    """The changed policies of the store with further ages."""
    stored = next((item.value for item in context.control.settings() if item.key == OVERRIDES), None)
    changed: dict[str, Any] = dict(stored) if isinstance(stored, Mapping) else {}
    for text in ages:
        name, found, age = text.partition("=")
        if not found:
            raise BadSettings(f"--max-age is {text!r}; write POLICY=DURATION, such as completed=90d")
        fields = changed.get(name)
        changed[name] = {**(fields if isinstance(fields, Mapping) else {}), "max_age": age}
    return changed
