"""Workers as a tree: host, supervisor, runner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.cluster import Worker
from tidemill.domain.stats import HeldRow
from tidemill.domain.worker_reports import ProcessFigures, SupervisorReport

NO_FIGURES = ProcessFigures()


class WorkerSlot(NamedTuple):
    """A worker, its liveness, and its visible held jobs, oldest claim first."""

    worker: Worker
    how: str
    claimed: int
    running: int
    held: list[HeldRow]

    @property
    def living(self) -> bool:
        return self.how in ("alive", "late")

    @property
    def number(self) -> int:
        return self.claimed + self.running

    @property
    def fraction(self) -> float:
        """The share of its slots in use."""
        slots = self.worker.concurrency
        return min(self.number / slots, 1.0) if slots else 0.0

    @property
    def figures(self) -> ProcessFigures:
        """The memory and the CPU use of its process; those of a process that ended mean nothing."""
        report = self.worker.report
        return report.figures if report is not None and self.living else NO_FIGURES

    @property
    def takes_requests(self) -> bool:
        """Whether it can be paused and scaled."""
        return self.living and self.worker.supervisor is not None


class _Group:
    """Sums over the workers of a group."""

    seats: list[WorkerSlot]

    @property
    def slots(self) -> int:
        return sum(seat.worker.concurrency for seat in self.seats if seat.living)

    @property
    def held(self) -> int:
        return sum(seat.number for seat in self.seats)

    @property
    def fraction(self) -> float:
        """The share of the slots in use."""
        return min(self.held / self.slots, 1.0) if self.slots else 0.0


class SupervisorGroup(_Group):
    """The runners of one supervisor, by place; or one worker without a supervisor, and then ``report`` is None."""

    def __init__(self, seats: list[WorkerSlot]) -> None:
        self.seats = seats
        living = [seat for seat in seats if seat.living and seat.worker.report is not None]
        newest = max(living, key=lambda seat: seat.worker.beats, default=None)
        #: the runner whose address leads to the supervisor
        self.addressed = newest.worker if newest is not None and newest.takes_requests else None
        report = None if newest is None else newest.worker.report
        self.report: SupervisorReport | None = None if report is None else report.supervisor


class HostGroup(_Group):
    """The workers of one host, by supervisor."""

    def __init__(self, name: str, groups: list[SupervisorGroup]) -> None:
        self.name, self.groups = name, groups
        self.seats = [seat for group in groups for seat in group.seats]


def by_host(seats: Iterable[WorkerSlot]) -> list[HostGroup]:
    """Group workers by their host, in the order of the names, and by their supervisor, the busiest first."""
    hosts: dict[str, dict[UUID, list[WorkerSlot]]] = defaultdict(lambda: defaultdict(list))
    for seat in seats:
        hosts[seat.worker.host][seat.worker.supervisor or seat.worker.id].append(seat)
    return [
        HostGroup(
            host,
            sorted(
                (SupervisorGroup(sorted(group, key=_place)) for group in groups.values()),
                key=lambda group: (-group.held, group.seats[0].worker.name),
            ),
        )
        for host, groups in sorted(hosts.items())
    ]


def _place(seat: WorkerSlot) -> tuple[int, str]:
    return seat.worker.place, seat.worker.name
