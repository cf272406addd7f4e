"""Data and drawing of ``tidemill top``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidemill.cli import pause_actions
from tidemill.cli.context import CommandContext
from tidemill.cli.job_views import short_reason
from tidemill.cli.limits import USES, use_rows
from tidemill.cli.queues import QUEUES, queue_rows
from tidemill.cli.screen import STYLES, Column, age, clean, span, stamp, styled, table, thousands
from tidemill.cli.stats import stats_document, workers_line
from tidemill.cli.top_keys import RETRIED, Row, TopState, View, question_words
from tidemill.cli.workers import figures_of, state_words
from tidemill.client import documents
from tidemill.client.stats.api import StatsApi
from tidemill.client.stats.loads import QueueStats, Stats, gather, held_by_worker, is_living, liveness
from tidemill.client.stats.reports import RECENT, Pace, pace_of
from tidemill.domain.cluster import Worker
from tidemill.domain.estimate import eta_of, fraction_done
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import JobRow
from tidemill.domain.states import LIVE, JobState

MOST_JOBS = 30
MOST_WORKERS = 10
MOST_LIMITS = 10
MOST_QUEUES = 10
KEYS = "↑↓ select   p pause queue   c cancel   r retry   f {other}   q quit"


class Frame(NamedTuple):
    """The data of one refresh."""

    stats: Stats
    workers: list[tuple[Worker, int]]  #: live workers, and the number of jobs each holds
    jobs: list[JobRow]  #: running jobs, or those that failed last
    pace: Pace
    depths: Mapping[str, str] = MappingProxyType({})  #: sparklines of the last hour, by queue

    @property
    def queues(self) -> list[QueueStats]:
        """The queues that are drawn: the deepest, by name."""
        deepest = sorted(self.stats.queues, key=lambda queue: -queue.pending)[:MOST_QUEUES]
        return sorted(deepest, key=lambda queue: queue.name)

    @property
    def rows(self) -> list[Row]:
        """The rows that can be selected, from top to bottom."""
        queues = [Row(queue.name, queue.name, paused=queue.pause is not None) for queue in self.queues]
        return [*queues, *(Row(str(job.id), job.task, job.state) for job in self.jobs)]


def read_frame(context: CommandContext, tenant: str, view: View = View.RUNNING) -> Frame:
    """Read the data of one refresh."""
    now = context.now()
    stats = gather(context.store, now, tenant=tenant, ended=False)
    held = held_by_worker(context.store)
    workers = [
        (worker, held.get(worker.id, 0)) for worker in context.store.workers() if is_living(worker, now)
    ]
    if view is View.FAILED:
        where, sort = JobFilter(tenant, states=RETRIED - {JobState.CANCELLED}), Sort.NEWEST
    else:
        where, sort = JobFilter(tenant, states=frozenset({JobState.RUNNING})), Sort.OLDEST
    jobs = context.store.jobs(where, sort=sort, limit=MOST_JOBS).items
    minutes = list(StatsApi(context.client).throughput(timedelta(minutes=RECENT), "1m", tenant=tenant))
    # The running minute counts with the part that has passed, so that a change shows at once.
    passed = (now - minutes[-1].at) / timedelta(minutes=1) if minutes else 1.0
    pace = pace_of(minutes[-RECENT - 1 :], min(max(passed, 0.01), 1.0))
    return Frame(stats, workers, jobs, pace, _depths(context, now) if tenant == ALL_TENANTS else {})


def _depths(context: CommandContext, now: datetime) -> dict[str, str]:
    """Return a sparkline of the pending jobs of each queue in the last hour. Samples cover all tenants."""
    series = context.store.depth_series(timedelta(hours=1), timedelta(minutes=5), limit=MOST_QUEUES, now=now)
    return {
        queue: sparkline([None if cell is None else cell.pending for cell in cells])
        for queue, cells in series.queues.items()
    }


def sparkline(values: Sequence[int | None]) -> str:
    """Draw values as characters; a value that is not known is a blank.

    >>> sparkline([0, 1, 4, None, 8])
    '▁▂▅ █'
    """
    most = max((value for value in values if value is not None), default=0) or 1
    levels = "▁▂▃▄▅▆▇█"
    return "".join(
        " " if value is None else levels[-(-value * (len(levels) - 1) // most)] for value in values
    )


def document(frame: Frame) -> dict[str, object]:
    """Return a frame as a document."""
    now = frame.stats.at
    return {
        **stats_document(frame.stats),
        "pace": frame.pace._asdict(),
        "living": [documents.worker_document(worker, now, held) for worker, held in frame.workers],
        "running": [documents.job_document(job, now) for job in frame.jobs],
    }


def draw(
    frame: Frame, width: int, height: int | None = None, selection: TopState | None = None
) -> RenderableType:
    """Render a frame for a screen of this size. Rows that do not fit are omitted."""
    stats, now = frame.stats, frame.stats.at
    key = None if selection is None else selection.key
    oldest = stats.oldest_pending_at
    waits = "" if oldest is None else f"   oldest pending {span(now - oldest)}"
    parts: list[RenderableType] = [
        Text.assemble(("tidemill ", "bold"), f"{stamp(now)}   workers {workers_line(stats)}{waits}"),
        _counts(stats),
        Text(_pace_words(frame.pace), "bold"),
    ]
    parts += [Text(f"paused: {clean(pause_actions.what(pause))}", STYLES["paused"]) for pause in stats.pauses]
    queues = frame.queues
    if queues:
        chosen = next((number for number, queue in enumerate(queues) if queue.name == key), None)
        columns = (*QUEUES, Column("last hour", optional=True))
        rows = [
            [*row, frame.depths.get(queue.name)]
            for row, queue in zip(queue_rows(queues, now), queues, strict=True)
        ]
        parts += [
            Text(),
            table(columns, rows, empty="", fit=width, chosen_row=chosen),
        ]
    limits = use_rows(stats.limits, now)[:MOST_LIMITS]
    if limits:
        parts += [Text(), table(USES, limits, empty="", fit=width)]
    if frame.workers:
        parts += [Text(), table(WORKERS, _worker_rows(frame, now), empty="", fit=width)]
    above = len(stats.pauses) + len(queues) + min(len(frame.workers), MOST_WORKERS)
    above += len(limits) + 2 if limits else 0
    room = MOST_JOBS if height is None else max(3, height - 9 - above - (2 if selection else 0))
    parts += [Text(), _jobs(frame.jobs, room, now, width, selection)]
    if selection is not None:
        parts += [Text(), _footer(selection)]
    return Group(*parts)


def _counts(stats: Stats) -> Text:
    counts = Text()
    for state in JobState:
        if state in LIVE:
            counts.append(
                f"{thousands(stats.counts.get(state, 0))} {state.value}   ", STYLES.get(state.value, "")
            )
    return counts


def _pace_words(pace: Pace) -> str:
    """Describe the pace of the last minutes.

    >>> _pace_words(Pace(1240.4, 0.021, 1.25, 0.04))
    '1,240 jobs/min   2.1% failed   run p95 1.2s   wait p95 40ms   (last 5 min)'
    >>> _pace_words(Pace(0, None, None, None))
    'no jobs ended in the last 5 min'
    """
    if not pace.per_minute:
        return f"no jobs ended in the last {RECENT} min"
    rate = f"{pace.per_minute:,.0f}" if pace.per_minute >= 10 else f"{pace.per_minute:.1f}"
    words = [f"{rate} jobs/min"]
    if pace.failure_rate is not None:
        words.append(f"{pace.failure_rate * 100:.1f}".removesuffix(".0") + "% failed")
    for name, seconds in (("run p95", pace.run_p95), ("wait p95", pace.wait_p95)):
        if seconds is not None:
            words.append(f"{name} {span(timedelta(seconds=seconds))}")
    return "   ".join([*words, f"(last {RECENT} min)"])


WORKERS = (
    Column("worker", flexible=True), Column("alive"), Column("state"), Column("held", right=True), Column("beat", right=True),
    Column("cpu", optional=True, right=True), Column("memory", optional=True, right=True),
    Column("host", flexible=True, optional=True), Column("pid", optional=True, right=True),
)  # fmt: skip


def _worker_rows(frame: Frame, now: datetime) -> list[list[object]]:
    return [
        [
            worker.name or worker.id,
            liveness(worker, now),
            state_words(worker),
            f"{held}/{worker.concurrency or '?'}",
            None if worker.beat_at is None else span(now - worker.beat_at),
            *figures_of(worker),
            worker.host or None,
            worker.pid or None,
        ]
        for worker, held in frame.workers[:MOST_WORKERS]
    ]


def _jobs(
    jobs: Sequence[JobRow], room: int, now: datetime, width: int, selection: TopState | None
) -> RenderableType:
    failed = selection is not None and selection.view is View.FAILED
    if not jobs:
        return Text("no failed jobs" if failed else "nothing is running", "dim")
    key = None if selection is None else selection.key
    at = next((number for number, job in enumerate(jobs) if str(job.id) == key), None)
    # The selected row stays in view.
    first = 0 if at is None else max(0, at - room + 1)
    shown, chosen = jobs[first : first + room], None if at is None else at - first
    return _failed(shown, now, width, chosen) if failed else _running(shown, now, width, chosen)


FAILED = (
    Column("failed", flexible=True), Column("id"), Column("attempt", right=True, optional=True, rank=1),
    Column("ago", right=True), Column("reason", flexible=True, keeps=24),
)  # fmt: skip


def _failed(jobs: Sequence[JobRow], now: datetime, width: int, chosen: int | None) -> RenderableType:
    rows = [
        [
            job.task,
            str(job.id)[-12:],
            f"{job.attempt}/{job.max_attempts}",
            None if job.finished_at is None else span(now - job.finished_at),
            short_reason(job.reason),
        ]
        for job in jobs
    ]
    return table(FAILED, rows, empty="", fit=width, chosen_row=chosen)


def _running(jobs: Sequence[JobRow], now: datetime, width: int, chosen: int | None) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", expand=True)
    wide = width >= 70
    names = ["running", "for", "done", *(["ends", "says"] if wide else [])]
    for name in names:
        table.add_column(
            name, no_wrap=True, overflow="ellipsis", ratio=2 if name in ("running", "says") else None
        )
    for number, job in enumerate(jobs):
        progress = job.progress
        bar: RenderableType = Text("-", "dim")
        if progress is not None and progress.fraction is not None:
            bar = ProgressBar(total=1.0, completed=fraction_done(job), width=20 if wide else 8)
        cells: list[RenderableType] = [styled(job.task), Text(span(now - (job.started_at or now))), bar]
        table.add_row(
            *cells, *(_outlook(job, now) if wide else ()), style="reverse" if number == chosen else None
        )
    return table


def _outlook(job: JobRow, now: datetime) -> tuple[Text, Text]:
    """Return when a job is expected to end, and the stage and message that it reported last."""
    ends, progress = eta_of(job, now), job.progress
    reported = () if progress is None else (progress.stage, progress.message)
    return Text("" if ends is None else age(ends, now)), Text(
        clean(": ".join(text for text in reported if text))
    )


def _footer(selection: TopState) -> Text:
    if selection.question is not None:
        return Text(clean(question_words(selection.question)), STYLES["warning"])
    if selection.note:
        return Text(clean(selection.note), "bold")
    other = "failed jobs" if selection.view is View.RUNNING else "running jobs"
    return Text(KEYS.format(other=other), "dim", overflow="ellipsis", no_wrap=True)
