"""Samples of the depth of queues over time.

A sample is taken per minute and queue. Samples are merged into longer units at the age at which rollups are
(``rollups.KEPT``); the merged sample has the highest value of each figure. Empty queues have no samples, apart from one when
they become empty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from tidemill.domain.rollups import KEPT, LENGTHS, Unit, floored

LOOK_BACK = KEPT[Unit.MINUTE]
"""How far back a sample is compared with the previous one, to notice that a queue has become empty."""


class DepthSample(NamedTuple):
    """The jobs of one queue at one time."""

    queue: str
    pending: int  #: due, and waiting for a worker
    scheduled: int  #: due later
    oldest: timedelta  #: since when the oldest pending job has been due; zero if none is pending


class DepthStep(NamedTuple):
    """The highest values of one step."""

    pending: int
    scheduled: int
    oldest: timedelta


EMPTY_STEP = DepthStep(0, 0, timedelta(0))


class DepthSeries(NamedTuple):
    """The depth of queues by step, deepest queue first. A step is None if nothing was sampled although jobs were waiting."""

    steps: Sequence[datetime]
    step: timedelta
    queues: Mapping[str, Sequence[DepthStep | None]]


def sample_minute(now: datetime) -> datetime:
    """Return the minute that a sample taken now is for."""
    return floored(now, LENGTHS[Unit.MINUTE])


def sampled_depths(
    now: datetime, depths: Iterable[tuple[str, int, int, datetime | None]], later: Mapping[str, int]
) -> list[DepthSample]:
    """Return samples, from queue, pending, late and oldest due time of the waiting jobs, and the number of later jobs by queue.

    >>> sampled_depths(datetime.min, [("mail", 2, 1, datetime.min)], {"sms": 5})[1]
    DepthSample(queue='sms', pending=0, scheduled=5, oldest=datetime.timedelta(0))
    """
    waiting = {queue: (pending + late, oldest_at) for queue, pending, late, oldest_at in depths}
    samples = []
    for queue in sorted({*waiting, *later}):
        pending, oldest_at = waiting.get(queue, (0, None))
        age = timedelta(0) if oldest_at is None else max(now - oldest_at, timedelta(0))
        samples.append(DepthSample(queue, pending, later.get(queue, 0), age))
    return samples


def depth_series(
    steps: Sequence[datetime], step: timedelta, rows: Iterable[tuple[str, datetime, DepthStep]], limit: int
) -> DepthSeries:
    """Arrange samples by queue and step; only the ``limit`` deepest queues.

    >>> from datetime import UTC
    >>> minute, at = timedelta(minutes=1), datetime(2026, 1, 1, tzinfo=UTC)
    >>> steps = [at + n * minute for n in range(4)]
    >>> full = DepthStep(3, 0, minute)
    >>> series = depth_series(steps, minute, [("mail", at + minute, full)], 10)
    >>> [None if cell is None else cell.pending for cell in series.queues["mail"]]
    [0, 3, None, None]
    """
    by_queue: dict[str, dict[datetime, DepthStep]] = defaultdict(dict)
    for queue, at, cell in rows:
        by_queue[queue][at] = cell
    deepest = sorted(
        by_queue, key=lambda queue: (-max(cell.pending for cell in by_queue[queue].values()), queue)
    )
    return DepthSeries(
        steps, step, {queue: _filled(steps, by_queue[queue]) for queue in deepest[: max(limit, 0)]}
    )


def _filled(steps: Sequence[datetime], cells: Mapping[datetime, DepthStep]) -> list[DepthStep | None]:
    """Every step. A queue without a sample is empty, unless jobs were waiting at its last one."""
    filled: list[DepthStep | None] = []
    last = EMPTY_STEP
    for at in steps:
        cell = cells.get(at)
        if cell is not None:
            last = cell
        is_unknown = cell is None and (last.pending or last.scheduled)
        filled.append(None if is_unknown else cell or EMPTY_STEP)
    return filled


def add_depth_series(answers: Sequence[DepthSeries], limit: int) -> DepthSeries:
    """Add the series of several stores."""
    steps = sorted({at for answer in answers for at in answer.steps})
    steps = steps[-max(len(answer.steps) for answer in answers) :]
    sums: dict[tuple[str, datetime], DepthStep] = {}
    for answer in answers:
        for queue, cells in answer.queues.items():
            for at, cell in zip(answer.steps, cells, strict=True):
                if cell is not None:
                    before = sums.get((queue, at), EMPTY_STEP)
                    sums[queue, at] = DepthStep(
                        before.pending + cell.pending,
                        before.scheduled + cell.scheduled,
                        max(before.oldest, cell.oldest),
                    )
    rows = [(queue, at, cell) for (queue, at), cell in sums.items() if at in set(steps)]
    return depth_series(steps, answers[0].step, rows, limit)
