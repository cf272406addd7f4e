"""``tidemill stats``: summary of the store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import click

from tidemill.cli import pause_actions, stats_reports
from tidemill.cli.completion import queue_names, report_names
from tidemill.cli.context import CommandContext, tenant_option, with_context
from tidemill.cli.limits import USES, use_rows
from tidemill.cli.parsers import duration
from tidemill.cli.queues import QUEUES, queue_document, queue_rows
from tidemill.cli.retention import archive_of, retention_fields
from tidemill.cli.screen import Column, heading, print_fields, print_json, print_table, span, thousands
from tidemill.client.documents import instant, limit_document, pause_document
from tidemill.client.stats.loads import Stats, gather
from tidemill.client.stats.reports import document
from tidemill.domain.records import PauseKind
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter


@click.command()
@click.argument("name", required=False, metavar="[NAME]", shell_complete=report_names)
@click.option("--window", type=duration, help="Time window, such as 1h (only for reports that have one).")
@click.option("--longer-than", type=duration, help="Minimum duration (only for lag and stuck).")
@click.option("--limit", type=click.IntRange(1, 1000), help="Maximum number of rows.")
@click.option(
    "--queue", help="Only this queue (only for depth-history and throughput).", shell_complete=queue_names
)
@tenant_option
@with_context
def stats(
    context: CommandContext,
    name: str | None,
    window: timedelta | None,
    longer_than: timedelta | None,
    limit: int | None,
    queue: str | None,
    tenant: str,
) -> None:
    """Show counts, queues, limits and workers, or one report.

    The reports (NAME): queue-depth, depth-history, active-workers, orphans, overdue, stuck, lag, failures,
    worker-performance, retries, by-status, durations, tenants, throughput, errors, dead-letters, leaders, archival, health.
    """
    options = {"window": window, "longer_than": longer_than, "limit": limit, "queue": queue}
    if name is not None:
        stats_reports.show(context, name, {**options, "tenant": tenant})
        return
    for key, value in options.items():
        if value is not None:
            raise BadFilter(f"--{key.replace('_', '-')} needs a report; give its name: tidemill stats NAME")
    now = context.now()
    gathered = gather(context.store, now, tenant=tenant)
    if context.as_json:
        print_json({**stats_document(gathered), "retention": document(archive_of(context).status())})
        return
    rows = [
        (state.value, thousands(gathered.counts[state])) for state in JobState if state in gathered.counts
    ]
    print_table((Column("status"), Column("jobs", right=True)), rows, empty="no jobs")
    if gathered.queues:
        heading("Queues")
        print_table(QUEUES, queue_rows(gathered.queues, now), empty="")
    if gathered.tasks:
        heading("Pending by task")
        print_table(
            (Column("task", flexible=True), Column("pending", right=True)),
            [(task, thousands(number)) for task, number in gathered.tasks.items()],
            empty="",
        )
    if gathered.limits:
        heading("Limits")
        print_table(USES, use_rows(gathered.limits, now), empty="")
    heading("Jobs enqueued in the last")
    print_table(
        (
            Column(""),
            Column("enqueued", right=True),
            Column("completed", right=True),
            Column("failed", right=True),
        ),
        [(name, *(thousands(number) for number in recent)) for name, recent in gathered.recent.items()],
        empty="",
    )
    heading("Now")
    print_fields(_now(gathered, now))
    heading("Retention")
    print_fields(retention_fields(archive_of(context).status(), now))


def _now(stats: Stats, now: datetime) -> Iterator[tuple[str, object]]:
    yield "workers", workers_line(stats)
    yield "running", thousands(stats.counts.get(JobState.RUNNING, 0))
    oldest = stats.oldest_pending_at
    yield "oldest pending", None if oldest is None else span(now - oldest)
    if (declared := stats.declared) is not None:
        yield "definitions", _enabled(declared.definitions, declared.disabled_definitions, "disabled")
        yield "schedules", _enabled(declared.schedules, declared.disabled_schedules, "paused")
    for pause in stats.pauses:
        if pause.kind is not PauseKind.QUEUE:
            yield "paused", f"{pause_actions.what(pause)}, {pause_actions.pause_words(pause, now)}"


def _enabled(enabled: int, disabled: int, word: str) -> str | None:
    if not enabled and not disabled:
        return None
    return f"{thousands(enabled)} enabled, {thousands(disabled)} {word}"


def workers_line(stats: Stats) -> str:
    """Describe the workers in a few words."""
    crew = stats.crew
    words = [f"{crew.alive} alive"]
    words += [
        f"{number} {name}" for name, number in (("late", crew.late), ("draining", crew.draining)) if number
    ]
    if crew.slots:
        words.append("1 slot" if crew.slots == 1 else f"{thousands(crew.slots)} slots")
    return ", ".join(words)


def stats_document(stats: Stats) -> dict[str, object]:
    """Return the statistics as a document."""
    return {
        "at": instant(stats.at),
        "counts": {state.value: number for state, number in stats.counts.items()},
        "queues": [queue_document(queue) for queue in stats.queues],
        "tasks": stats.tasks,
        "oldest_pending_at": instant(stats.oldest_pending_at),
        "recent": {name: recent._asdict() for name, recent in stats.recent.items()},
        "workers": stats.crew._asdict(),
        "pauses": [pause_document(pause) for pause in stats.pauses],
        "limits": [limit_document(limit) for limit in stats.limits],
        "declared": None if stats.declared is None else stats.declared._asdict(),
    }
