"""``tidemill top``: live view of the store.

Every refresh runs a few bounded queries that do not read ended jobs.
"""

from __future__ import annotations

import os
import re
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidemill.cli import pause_actions
from tidemill.cli.context import CommandContext, tenant_option, with_context
from tidemill.cli.limits import USES, use_rows
from tidemill.cli.queues import QUEUES, queue_rows
from tidemill.cli.screen import (
    STYLES,
    Column,
    age,
    can_draw_over,
    clean,
    console,
    print_json_line,
    span,
    stamp,
    styled,
    table,
    thousands,
)
from tidemill.cli.stats import stats_document, workers_line
from tidemill.client import documents
from tidemill.client.stats.loads import Stats, gather, held_by_worker, is_living, liveness
from tidemill.domain.cluster import Worker
from tidemill.domain.estimate import eta_of, fraction_done
from tidemill.domain.filters import JobFilter, Sort
from tidemill.domain.job import JobRow
from tidemill.domain.states import LIVE, JobState
from tidemill.errors import StoreError

EVERY = 1.0
CTRL_C = "\x03"
_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.)")
"""Escape sequences that a terminal sends for special keys."""

MOST_RUNNING = 30
MOST_WORKERS = 10
MOST_LIMITS = 10


class Frame(NamedTuple):
    """The data of one refresh."""

    stats: Stats
    workers: list[tuple[Worker, int]]  #: live workers, and the number of jobs each holds
    running: list[JobRow]


def look(context: CommandContext, tenant: str) -> Frame:
    """Read the data of one refresh."""
    now = context.now()
    stats = gather(context.store, now, tenant=tenant, ended=False)
    held = held_by_worker(context.store)
    workers = [
        (worker, held.get(worker.id, 0)) for worker in context.store.workers() if is_living(worker, now)
    ]
    where = JobFilter(tenant, states=frozenset({JobState.RUNNING}))
    running = context.store.jobs(where, sort=Sort.OLDEST, limit=MOST_RUNNING).items
    return Frame(stats, workers, running)


@click.command()
@click.option("--once", is_flag=True, help="Print one snapshot and exit.")
@click.option(
    "--every",
    default=EVERY,
    show_default=True,
    type=click.FloatRange(0.1, 3600),
    help="Seconds between refreshes.",
)
@tenant_option
@with_context
def top(context: CommandContext, once: bool, every: float, tenant: str) -> None:
    """Show live counts, queues and workers; q quits.

    --json prints one line per refresh.
    """
    screen = console()
    if context.as_json or once or not can_draw_over(screen):
        _lines(context, tenant, screen, once=once, every=every)
        return
    with Live(console=screen, screen=True, auto_refresh=False) as live, _keys() as pressed:
        while True:
            live.update(_seen(context, tenant, screen), refresh=True)
            try:
                if _ends(pressed(every)):
                    return
            except KeyboardInterrupt:
                return


def _lines(context: CommandContext, tenant: str, screen: Console, *, once: bool, every: float) -> None:
    """Print frame after frame, for pipes and programs."""
    pause = threading.Event()
    try:
        while True:
            frame = look(context, tenant)
            if context.as_json:
                print_json_line(_document(frame))
            else:
                screen.print(draw(frame, screen.width), soft_wrap=not screen.is_terminal)
            if once:
                return
            pause.wait(every)
    except KeyboardInterrupt:
        return


def _seen(context: CommandContext, tenant: str, screen: Console) -> RenderableType:
    """Render a frame, or the error while the store is unavailable. It may recover."""
    try:
        return draw(look(context, tenant), screen.width, screen.height)
    except StoreError as error:
        return Text(clean(error), STYLES["error"])


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for keys for some seconds. Without a keyboard it only waits."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    try:
        import termios
        import tty
    except ImportError:
        yield _no_key
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([number], [], [], seconds)
        if not ready:
            return ""
        # Read all pending input directly, because ``select`` does not report bytes in Python's own buffer.
        return os.read(number, 64).decode(errors="replace") or CTRL_C  # end of input: treat it as Ctrl-C

    try:
        yield pressed
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _no_key(seconds: float) -> str:
    threading.Event().wait(seconds)
    return ""


def _ends(typed: str) -> bool:
    """Whether these keys quit: q, Ctrl-C or Escape. Arrow keys and the like also start with Escape, but do not quit.

    >>> _ends("q"), _ends("\\x1b[Aq"), _ends("\\x1b"), _ends("\\x1b[A\\x1bOP"), _ends("")
    (True, True, True, False, False)
    """
    return any(key in "qQ\x03\x1b" for key in _SEQUENCES.sub("", typed))


# Drawing ---------------------------------------------------------------------------------------------------------------


def draw(frame: Frame, width: int, height: int | None = None) -> RenderableType:
    """Render a frame for a screen of this size. Rows that do not fit are omitted."""
    stats, now = frame.stats, frame.stats.at
    counts = Text()
    for state in JobState:
        if state in LIVE:
            counts.append(
                f"{thousands(stats.counts.get(state, 0))} {state.value}   ", STYLES.get(state.value, "")
            )
    oldest = stats.oldest_pending_at
    waits = "" if oldest is None else f"   oldest pending {span(now - oldest)}"
    parts: list[RenderableType] = [
        Text.assemble(("tidemill ", "bold"), f"{stamp(now)}   workers {workers_line(stats)}{waits}"),
        counts,
    ]
    parts += [Text(f"paused: {clean(pause_actions.what(pause))}", STYLES["paused"]) for pause in stats.pauses]
    if stats.queues:
        parts += [Text(), table(QUEUES, queue_rows(stats.queues, now), empty="", fit=width)]
    limits = use_rows(stats.limits, now)[:MOST_LIMITS]
    if limits:
        parts += [Text(), table(USES, limits, empty="", fit=width)]
    if frame.workers:
        parts += [Text(), table(WORKERS, _worker_rows(frame, now), empty="", fit=width)]
    above = len(stats.pauses) + len(stats.queues) + min(len(frame.workers), MOST_WORKERS)
    above += len(limits) + 2 if limits else 0
    room = MOST_RUNNING if height is None else max(3, height - 8 - above)
    parts += [Text(), _running(frame.running[:room], now, width)]
    return Group(*parts)


WORKERS = (
    Column("worker", flexible=True), Column("alive"), Column("state"), Column("held", right=True), Column("beat", right=True),
    Column("host", flexible=True, optional=True), Column("pid", optional=True, right=True),
)  # fmt: skip


def _worker_rows(frame: Frame, now: datetime) -> list[list[object]]:
    return [
        [
            worker.name or worker.id,
            liveness(worker, now),
            worker.state.value,
            f"{held}/{worker.concurrency or '?'}",
            None if worker.beat_at is None else span(now - worker.beat_at),
            worker.host or None,
            worker.pid or None,
        ]
        for worker, held in frame.workers[:MOST_WORKERS]
    ]


def _running(jobs: list[JobRow], now: datetime, width: int) -> RenderableType:
    if not jobs:
        return Text("nothing is running", "dim")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold", expand=True)
    wide = width >= 70
    names = ["running", "for", "done", *(["ends", "says"] if wide else [])]
    for name in names:
        table.add_column(
            name, no_wrap=True, overflow="ellipsis", ratio=2 if name in ("running", "says") else None
        )
    for job in jobs:
        progress = job.progress
        bar: RenderableType = Text("-", "dim")
        if progress is not None and progress.fraction is not None:
            bar = ProgressBar(total=1.0, completed=fraction_done(job), width=20 if wide else 8)
        cells: list[RenderableType] = [styled(job.task), Text(span(now - (job.started_at or now))), bar]
        table.add_row(*cells, *(_outlook(job, now) if wide else ()))
    return table


def _outlook(job: JobRow, now: datetime) -> tuple[Text, Text]:
    """Return when a job is expected to end, and the stage and message that it reported last."""
    ends, progress = eta_of(job, now), job.progress
    reported = () if progress is None else (progress.stage, progress.message)
    return Text("" if ends is None else age(ends, now)), Text(
        clean(": ".join(text for text in reported if text))
    )


def _document(frame: Frame) -> dict[str, object]:
    now = frame.stats.at
    return {
        **stats_document(frame.stats),
        "living": [documents.worker_document(worker, now, held) for worker, held in frame.workers],
        "running": [documents.job_document(job, now) for job in frame.running],
    }
