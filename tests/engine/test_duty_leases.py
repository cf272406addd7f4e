"""Tests of duty loops with a lease for each duty, on a manual clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from tests.engine.cluster_kit import Line
from tests.engine.duty_kit import Deaf, Notebook, Yard

from tidemill.client.documents import duties_of
from tidemill.domain.cluster import Lease, duty_of_lease
from tidemill.engine.duties import usual_duties
from tidemill.engine.duty import Done, Duties, Duty
from tidemill.engine.leadership import ASK
from tidemill.engine.listener import TICK
from tidemill.ids import new_id
from tidemill.stores.base import Listener

NAMES = ("a", "b", "c", "d", "e", "f")
EVERY = timedelta(seconds=5)
MINUTE = timedelta(minutes=1)


class Fleet:
    """Loops with a lease for each duty. They receive the wake-ups of all others."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self.books = {name: Notebook(yard.clock) for name in NAMES}
        self.heard: dict[Duties, tuple[Deaf, Listener]] = {}
        self.lines: dict[Duties, Line] = {}

    def join(self, *, hears: bool = True, names: tuple[str, ...] = NAMES, **options: Any) -> Duties:
        """Add a process that offers to run every duty."""
        yard, listener, line = self.yard, None, Line(self.yard.memory)
        if hears:
            listener = Deaf(yard.memory, yard.clock)
        duties = [Duty(name, EVERY, self.books[name]) for name in names]
        loop = yard.loop(*duties, line=line, listener=listener, lease_per_duty=True, **options)
        if listener is not None:
            self.heard[loop] = (listener, yard.memory.listen())
        self.lines[loop] = line
        return loop

    def leave(self, loop: Duties) -> None:
        """Close a process in good order."""
        self.yard.loops.remove(loop)
        self.drop(loop)
        loop.close()

    def drop(self, loop: Duties) -> None:
        """Step this process no more, as if it were dead."""
        if loop in self.yard.loops:
            self.yard.loops.remove(loop)
        if loop in self.heard:
            self.heard.pop(loop)[1].close()

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, and pass wake-ups on every tenth of a second."""
        until = self.yard.clock.monotonic() + seconds
        while self.yard.clock.monotonic() < until:
            self.yard.pass_time(0.1)
            for listener, source in self.heard.values():
                if topics := source.wait(0):
                    listener.tell(topics)

    def leases(self) -> dict[str, Lease]:
        """The held lease of each duty."""
        now = self.yard.memory.now()
        leases = self.yard.memory.leases()
        return {lease.name: lease for lease in leases if duty_of_lease(lease.name) and lease.held(now)}

    def loads(self) -> list[int]:
        """How many leases each holder has, the most first."""
        held: Counter[UUID | None] = Counter(lease.holder for lease in self.leases().values())
        return sorted(held.values(), reverse=True)

    def close(self) -> None:
        for loop in list(self.heard):
            self.drop(loop)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    yard = Yard()
    fleet = Fleet(yard)
    yield fleet
    fleet.close()
    yard.close()


def test_each_duty_has_a_lease_with_its_own_holder_and_results(fleet: Fleet) -> None:
    fleet.join(describe=lambda: {"name": "host-1"})
    fleet.pass_time(11)
    assert list(fleet.leases()) == [f"duties:{name}" for name in NAMES]
    for name in NAMES:
        lease = fleet.leases()[f"duties:{name}"]
        assert lease.health(fleet.yard.memory.now()) == "ok"
        assert lease.metadata["holder"] == {"name": "host-1"}
        assert list(duties_of(lease)) == [name]
        assert len(fleet.books[name].times) >= 2


def test_processes_that_join_get_as_many_leases_as_the_others(fleet: Fleet) -> None:
    fleet.join()
    fleet.pass_time(5)
    assert fleet.loads() == [6]
    fleet.join()
    fleet.pass_time(60)
    assert fleet.loads() == [3, 3]
    fleet.join()
    fleet.pass_time(120)
    assert fleet.loads() == [2, 2, 2]


def test_no_duty_pauses_or_runs_twice_while_leases_change_hands(fleet: Fleet) -> None:
    loops = [fleet.join()]
    for _ in range(2):
        fleet.pass_time(60)
        loops.append(fleet.join())
    fleet.pass_time(60)
    fleet.leave(loops.pop())
    fleet.pass_time(30)
    for book in fleet.books.values():
        gaps = [after - before for before, after in zip(book.times, book.times[1:], strict=False)]
        assert max(gaps) <= EVERY.total_seconds() + 1
        # Each new holder runs its duty at once, and a duty changes hands a few times.
        assert len(book.times) <= 210 / EVERY.total_seconds() + 12


def test_the_duties_of_a_dead_process_are_taken_over_within_ten_seconds(fleet: Fleet) -> None:
    loops = [fleet.join() for _ in range(3)]
    fleet.pass_time(120)
    assert fleet.loads() == [2, 2, 2]
    # The process with the ticks lives on, so that the others keep hearing them.
    for listener, _ in fleet.heard.values():
        listener.tell(frozenset({TICK}))
    fleet.drop(loops[0])
    for _ in range(50):
        for listener, _ in fleet.heard.values():
            listener.tell(frozenset({TICK}))
        fleet.pass_time(0.2)
    assert len(fleet.loads()) == 2
    assert sum(fleet.loads()) == len(NAMES)


def test_the_duties_of_a_process_that_stops_are_taken_over_at_once(fleet: Fleet) -> None:
    first = fleet.join()
    fleet.join()
    fleet.pass_time(60)
    assert fleet.loads() == [3, 3]
    fleet.leave(first)
    assert fleet.loads() == [3]
    fleet.pass_time(1)
    assert fleet.loads() == [6]


def test_a_process_with_one_lease_keeps_it_when_asked(fleet: Fleet) -> None:
    fleet.join(names=("a",))
    fleet.pass_time(3)
    before = fleet.leases()["duties:a"]
    fleet.yard.memory.notify(["duties:a" + ASK])
    fleet.pass_time(3)
    after = fleet.leases()["duties:a"]
    assert (after.holder, after.term) == (before.holder, before.term)


def test_without_wake_ups_the_first_process_keeps_every_lease_until_rotation(fleet: Fleet) -> None:
    fleet.join(hears=False)
    fleet.pass_time(5)
    fleet.join(hears=False)
    fleet.pass_time(120)
    assert fleet.loads() == [6]


def test_with_rotation_every_lease_changes_its_holder_each_minute(fleet: Fleet) -> None:
    for _ in range(3):
        fleet.join(lease_rotation=MINUTE)
    fleet.pass_time(310)
    assert min(lease.term for lease in fleet.leases().values()) >= 5
    for book in fleet.books.values():
        gaps = [after - before for before, after in zip(book.times, book.times[1:], strict=False)]
        assert max(gaps) <= EVERY.total_seconds() + 1


def test_idle_processes_with_ticks_hardly_read_the_leases(fleet: Fleet) -> None:
    for _ in range(10):
        fleet.join()
    fleet.pass_time(600)
    # Six processes have a lease each, and look at the others; four rely on the ticks.
    calls = {loop: line.calls for loop, line in fleet.lines.items()}
    for made in calls.values():
        made.clear()
    for _ in range(60):
        fleet.yard.memory.notify([TICK])
        fleet.pass_time(1)
    holders = [loop for loop in calls if loop.leading]
    assert len(holders) == 6
    for loop, made in calls.items():
        count = Counter(made)
        assert count["leases"] <= (60 / 5 if loop.leading else 2)
        assert count["renew"] <= (60 / 2.5 + 2 if loop.leading else 0)
        assert count["acquire"] == 0


def test_a_process_that_loses_one_lease_keeps_the_others(fleet: Fleet) -> None:
    loop = fleet.join()
    fleet.pass_time(5)
    lease = fleet.leases()["duties:c"]
    assert lease.holder is not None
    fleet.yard.memory.release("duties:c", lease.holder, lease.term)
    fleet.yard.memory.acquire("duties:c", new_id(), ttl=MINUTE)
    fleet.books["c"].times.clear()
    fleet.pass_time(20)
    assert loop.leading
    # At most the run that was due before the next heartbeat showed the loss.
    assert len(fleet.books["c"].times) <= 1
    assert fleet.loads() == [5, 1]


def test_the_lease_of_all_duties_is_marked_as_unused(fleet: Fleet) -> None:
    fleet.yard.loop(Duty("a", EVERY, Done), describe=dict).step()
    fleet.yard.loops.pop().close()
    fleet.join(describe=dict)
    fleet.pass_time(3)
    (lease,) = [lease for lease in fleet.yard.memory.leases() if lease.name == "duties"]
    assert lease.unused_by == "a lease for each duty"
    assert lease.health(fleet.yard.memory.now()) == "unused"


def test_duties_that_share_state_share_a_lease(fleet: Fleet) -> None:
    yard = fleet.yard
    duties = usual_duties(yard.memory, yard.clock, lambda *_: None, Random(1), led=True)  # type: ignore[arg-type]
    loop = yard.loop(*duties, lease_per_duty=True)
    loop.step()
    assert len(fleet.leases()) == len(duties) - 1
    yard.pass_time(6)
    assert set(duties_of(fleet.leases()["duties:promote"])) == {"promote", "repeat"}
