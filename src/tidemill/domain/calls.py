"""Calls: which idle workers a wake-up for new jobs concerns.

A wake-up reaches every listening worker, and each of them would ask the store for jobs. So the sender adds a call, a random number
with the number of jobs, and only a few workers answer it. The leader repeats a wake-up without a call if its jobs are still
pending a moment later. A worker that does not know the size of the fleet answers every call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.cluster import Worker, WorkerState
from tidemill.domain.job import NewJob

SMALL = 16
"""A fleet below this size answers every call."""

FEWEST = 8
"""How many workers a call wakes at least, on average: some of them may be busy or may not know the task."""

_CALL, _FLEET = "call:", "fleet:"
_NAMED = 100  # queues whose number of workers is announced

NUMBERS = 1 << 30
"""The numbers of calls are below this one."""


class Call(NamedTuple):
    """A call for about ``wanted`` workers, beginning at a place in the fleet that ``number`` decides."""

    number: int
    wanted: int

    @property
    def topic(self) -> str:
        """The topic that carries it."""
        return call_for(self.wanted, self.number)


def call_for(wanted: int, number: int) -> str:
    """The topic of a call for this many jobs. ``number`` is random, such as the id of one of them."""
    return f"{_CALL}{number % NUMBERS}:{max(1, wanted)}"  # no Call, because every enqueue comes here


def call_pattern(wanted: int) -> str:
    """The topic of a call for this many jobs, with ``%d`` for its number."""
    return f"{_CALL}%d:{max(1, wanted)}"


def read_calls(topics: Iterable[str]) -> list[Call]:
    """The calls among these topics; unreadable ones are left out."""
    calls = []
    for topic in topics:
        if topic.startswith(_CALL):
            number, _, wanted = topic.removeprefix(_CALL).partition(":")
            if number.isdecimal() and wanted.isdecimal():
                calls.append(Call(int(number), int(wanted)))
    return calls


def without_calls(topics: Iterable[str]) -> frozenset[str]:
    """The topics that are no calls."""
    return frozenset(topic for topic in topics if not topic.startswith(_CALL))


def merged(topics: frozenset[str]) -> frozenset[str]:
    """The same topics with one call for the jobs of all calls."""
    calls = read_calls(topics)
    if len(calls) < 2:
        return topics
    one = Call(min(calls).number, sum(call.wanted for call in calls))
    return without_calls(topics) | {one.topic}


def new_job_topics(jobs: Iterable[NewJob], number: int | None = None) -> set[str]:
    """The topics for new jobs: for these, or for ``number`` jobs like the only one given."""
    topics = set[str]()
    due: list[NewJob] = []
    for job in jobs:
        if job.run_at or job.delay:
            # It wakes no worker, but the process that promotes scheduled jobs must learn its due time.
            topics.add("scheduled")
        else:
            topics.add(f"ready:{job.queue}")
            due.append(job)
    if due:
        topics.add(call_for(number or len(due), due[0].id.int))
    return topics


class Fleet(NamedTuple):
    """The number of workers that serve every queue, and for queues that other workers name, of all that serve it."""

    everywhere: int
    named: Mapping[str, int] = {}

    @property
    def topics(self) -> frozenset[str]:
        """The topics that announce it; none for a small fleet."""
        if max([self.everywhere, *self.named.values()]) < SMALL:
            return frozenset()
        return frozenset(
            {f"{_FLEET}{self.everywhere}", *(f"{_FLEET}{n}:{queue}" for queue, n in self.named.items())}
        )

    def serving(self, queue: str) -> int:
        """How many workers serve the queue."""
        return self.named.get(queue, self.everywhere)


UNKNOWN = Fleet(0)
"""A fleet of unknown size, whose workers answer every call."""


def fleet_of(workers: Iterable[Worker]) -> Fleet:
    """The fleet of these living workers. Of more than 100 named queues, the size for the others stays unknown."""
    everywhere, named = 0, Counter[str]()
    for worker in workers:
        if worker.state is not WorkerState.ACTIVE:
            continue
        if worker.queues:
            named.update(set(worker.queues))
        else:
            everywhere += 1
    if len(named) > _NAMED:
        return UNKNOWN
    return Fleet(everywhere, {queue: everywhere + number for queue, number in sorted(named.items())})


def read_fleet(topics: Iterable[str]) -> Fleet:
    """The fleet that these topics announce; unknown if they announce none."""
    everywhere, named = 0, dict[str, int]()
    for topic in topics:
        if topic.startswith(_FLEET):
            number, _, queue = topic.removeprefix(_FLEET).partition(":")
            if not number.isdecimal():
                continue
            if queue:
                named[queue] = int(number)
            else:
                everywhere = int(number)
    return Fleet(everywhere, named)


def is_called(worker: UUID, calls: Collection[Call], size: int) -> bool:
    """Whether one of these calls concerns this worker, in a fleet of this size."""
    if not calls or size < SMALL:
        return True
    return any((worker.int + call.number) % size < max(FEWEST, call.wanted) for call in calls)
