"""``tidemill stats``: summary of the store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import click

from tidemill.cli import pause_actions, stats_reports
from tidemill.cli.context import CommandContext, at_desk, tenant_option
from tidemill.cli.limits import USES, use_rows
from tidemill.cli.parsers import duration
from tidemill.cli.queues import QUEUES, queue_document, queue_rows
from tidemill.cli.screen import Column, heading, print_facts, print_json, print_table, span, thousands
from tidemill.client.documents import instant, limit_document, pause_document
from tidemill.client.stats.loads import Stats, gather
from tidemill.domain.records import PauseKind
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter


@click.command()
@click.argument("name", required=False, metavar="[NAME]")
@click.option("--window", type=duration, help="Time window, such as 1h (only for reports that have one).")
@click.option("--longer-than", type=duration, help="Minimum duration (only for lag and stuck).")
@click.option("--limit", type=click.IntRange(1, 1000), help="Maximum number of rows.")
@tenant_option
@at_desk
def stats(
    desk: CommandContext,
    name: str | None,
    window: timedelta | None,
    longer_than: timedelta | None,
    limit: int | None,
    tenant: str,
) -> None:
    """Show counts, queues, limits and workers, or one report.

    The reports (NAME): queue-depth, active-workers, orphans, overdue, stuck, lag, failures,
    worker-performance, retries, by-status, durations, tenants, throughput, errors, dead-letters, leaders, archival, health.
    """
    said = {"window": window, "longer_than": longer_than, "limit": limit}
    if name is not None:
        stats_reports.show(desk, name, {**said, "tenant": tenant})
        return
    for key, value in said.items():
        if value is not None:
            raise BadFilter(f"--{key.replace('_', '-')} needs a report; give its name: tidemill stats NAME")
    now = desk.now()
    found = gather(desk.store, now, tenant=tenant)
    if desk.as_json:
        print_json(stats_document(found))
        return
    rows = [(state.value, thousands(found.counts[state])) for state in JobState if state in found.counts]
    print_table((Column("status"), Column("jobs", right=True)), rows, empty="no jobs")
    if found.queues:
        heading("Queues")
        print_table(QUEUES, queue_rows(found.queues, now), empty="")
    if found.tasks:
        heading("Pending by task")
        print_table(
            (Column("task", flexible=True), Column("pending", right=True)),
            [(task, thousands(number)) for task, number in found.tasks.items()],
            empty="",
        )
    if found.limits:
        heading("Limits")
        print_table(USES, use_rows(found.limits, now), empty="")
    heading("Jobs enqueued in the last")
    print_table(
        (
            Column(""),
            Column("enqueued", right=True),
            Column("completed", right=True),
            Column("failed", right=True),
        ),
        [(name, *(thousands(number) for number in recent)) for name, recent in found.recent.items()],
        empty="",
    )
    heading("Now")
    print_facts(_now(found, now))


def _now(found: Stats, now: datetime) -> Iterator[tuple[str, object]]:
    yield "workers", workers_line(found)
    yield "running", thousands(found.counts.get(JobState.RUNNING, 0))
    oldest = found.oldest_pending_at
    yield "oldest pending", None if oldest is None else span(now - oldest)
    for pause in found.pauses:
        if pause.kind is not PauseKind.QUEUE:
            yield "paused", f"{pause_actions.what(pause)}, {pause_actions.said(pause, now)}"


def workers_line(found: Stats) -> str:
    """Describe the workers in a few words."""
    crew = found.crew
    words = [f"{crew.alive} alive"]
    words += [
        f"{number} {name}" for name, number in (("late", crew.late), ("draining", crew.draining)) if number
    ]
    if crew.slots:
        words.append("1 slot" if crew.slots == 1 else f"{thousands(crew.slots)} slots")
    return ", ".join(words)


def stats_document(found: Stats) -> dict[str, object]:
    """Return the statistics as a document."""
    return {
        "at": instant(found.at),
        "counts": {state.value: number for state, number in found.counts.items()},
        "queues": [queue_document(queue) for queue in found.queues],
        "tasks": found.tasks,
        "oldest_pending_at": instant(found.oldest_pending_at),
        "recent": {name: recent._asdict() for name, recent in found.recent.items()},
        "workers": found.crew._asdict(),
        "pauses": [pause_document(pause) for pause in found.pauses],
        "limits": [limit_document(limit) for limit in found.limits],
    }
