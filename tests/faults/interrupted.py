"""Interrupting a write path at each of its places, in each way, and looking at what is left.

A cell is one place, its number on the way, and what happens there: the process is killed, the database is gone, the answer is
lost, or the process stands still for longer than its lease while others go on. Afterwards the store must show what it showed
after the last commit that happened, and nothing in between; doing it again must lead to where it leads without trouble; and every
job that is there must still come to its one end.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple, Protocol, cast

import psycopg
import pytest
from tests.faults import paths_of_plans  # noqa: F401  (it writes the paths down)
from tests.faults.paths_of_jobs import policy_of
from tests.faults.victims import Victims
from tests.faults.write_paths import PATHS, Path

from tidemill.clock import SystemClock
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import Finish
from tidemill.domain.states import HELD, ExecutionState, JobState
from tidemill.engine.duties import Promote, Reclaim
from tidemill.errors import JobError, StoreBusy, StoreError, StoreUnavailable, TidemillError, UsageError
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.stores.sql.store import SqlStore
from tidemill.testing.conformance.kit import OTHER, T0, wants
from tidemill.testing.failpoints import Failpoints, Passed, Place, give_points

KILLED = 86
"""The exit code of a process that died at its failpoint."""

KILL, ERROR, PAUSE, LOST = "kill", "error", "pause", "answer lost"
WAYS = {
    Place.BEFORE: (KILL, ERROR, PAUSE),
    Place.WITHIN: (KILL, ERROR, PAUSE),
    Place.AFTER: (KILL, LOST, PAUSE),
}
"""What can happen where: an error after the commit is an answer that was lost, and before it there is none to lose."""

OPEN = HELD | {JobState.PENDING, JobState.SCHEDULED}
"""What goes on by itself."""

_ID = re.compile(r"(?<!0197a000-0000-7000-8000-)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_NUMBER = re.compile(
    r"\b[0-9a-f]{8}\b(?=', name='ci')|(?<=key:)[0-9a-f]{8}\b|hash='[0-9a-f]+'|(?<=')[0-9a-f]{64}(?=')"
)
_INSTANT = re.compile(
    r"datetime\.datetime\((?!2026, 3, 1,)[^()]*?(?:\([^()]*\)[^()]*?)?\)|\b20\d\d-(?!03-01)[\d-]+T[\d:.+]+"
)


class Cell(NamedTuple):
    """Where on the way, for which time, and what happens there."""

    place: Place
    nth: int
    way: str


class Ground(Protocol):
    """A database of one dialect."""

    url: str

    def wipe(self) -> None:
        """Empty it."""

    def other(self) -> AbstractContextManager[Store]:
        """Somebody else's store of the same database."""

    def sever(self) -> None:
        """End the connection that has a transaction open, where there are connections; else raise what a driver would."""

    def bury(self) -> None:
        """Wait until the server knows that who was killed is dead, and has let go of what he held."""


@contextmanager
def opened(url: str) -> Iterator[Store]:
    """A store of its own, with little patience for others."""
    short = "busy_timeout=0.05" if url.startswith("sqlite") else "lock_timeout=0.05"
    store = open_store(f"{url}{'&' if '?' in url else '?'}{short}")
    try:
        yield store
    finally:
        store.close()


# What there is to see ----------------------------------------------------------------------------------------------------


def snapshot(store: Store) -> str:
    """All that the store shows, as text, without what differs from run to run."""
    jobs = store.jobs(JobFilter(ALL_TENANTS), sort=Sort.OLDEST, limit=1000).items
    ids = [job.id for job in jobs]
    schedules = store.schedules(tenant=ALL_TENANTS)
    rules = {rule.name: rule for rule in store.rules()}
    seen: list[object] = [
        *jobs,
        *store.executions(ids, tenant=ALL_TENANTS),
        *(entry for id in ids for _, entry in store.logs(id, tenant=ALL_TENANTS)),
        *(store.checkpoints(id, tenant=ALL_TENANTS) for id in ids),
        *store.workers(),
        *store.leases(),
        *store.settings(),
        *store.pauses(),
        *store.search_archive(JobFilter(ALL_TENANTS), sort=Sort.OLDEST, limit=1000).items,
        *store.definitions(tenant=ALL_TENANTS, deleted=True),
        *schedules,
        *(fire for row in schedules for fire in store.fires(row.id, tenant=ALL_TENANTS)),
        *rules.values(),
        *store.uses(rules, now=T0),
        *store.uses(rules, ["b"], now=T0),
        *store.keys(),
        *store.audit(tenant=ALL_TENANTS),
    ]
    text = "\n".join(map(repr, seen))
    return re.sub(
        r"beats=[1-9]\d*", "beats=some", _INSTANT.sub("<now>", _NUMBER.sub("<n>", _ID.sub("<id>", text)))
    )


def check_jobs(store: Store, *, restarted: bool) -> None:
    """Each job is in one place and explains itself: executions without gaps, attempts accounted for, one end."""
    jobs = store.jobs(JobFilter(ALL_TENANTS), limit=1000).items
    executions = store.executions([job.id for job in jobs], tenant=ALL_TENANTS)
    for job in jobs:
        mine = [execution for execution in executions if execution.job_id == job.id]
        assert [execution.number for execution in mine] == [*range(1, job.token + 1)]
        running = [execution for execution in mine if execution.state is ExecutionState.RUNNING]
        assert bool(running) == (job.state in HELD)
        assert sum(execution.state is ExecutionState.SUCCEEDED for execution in mine) <= 1
        given_back = {ExecutionState.RELEASED, ExecutionState.SUSPENDED}
        if not restarted:
            assert job.attempt == sum(execution.state not in given_back for execution in mine)
        assert all(before.attempt <= after.attempt + 1 for before, after in pairwise(mine))


def go_on(store: Store) -> None:
    """What other workers do meanwhile: take orphans back, promote, claim, and finish."""
    Reclaim(store, SystemClock(), policy_of, Random(1))()
    Promote(store)()
    claims = store.claim(wants(store, worker=OTHER))
    store.finish([Finish(claim, COMPLETED) for claim in claims])


def conclude(store: Store, *, restarted: bool) -> None:
    """Whatever happened, every job that can go on comes to its end."""
    for _ in range(10):
        check_jobs(store, restarted=restarted)
        if not OPEN & set(store.count(JobFilter(ALL_TENANTS))):
            return
        go_on(store)
    raise AssertionError(f"some do not end: {store.count(JobFilter(ALL_TENANTS))}")


# One path ----------------------------------------------------------------------------------------------------------------


class Course:
    """A path as it goes without trouble: the places it passes, and what there is to see after each commit."""

    def __init__(self, ground: Ground, path: Path, victims: Victims) -> None:
        self.path, self._ground, self._victims = path, ground, victims
        points, called = Failpoints(), set[str]()
        with self._fresh() as (store, given), ground.other() as observer:
            self.seen = [snapshot(observer)]
            points.watching = lambda passed: self._look(passed, observer)
            for verb in path.verbs:
                _spy(store, verb, called)
            give_points(cast(SqlStore, store), points)
            _act(path, store, given, points)
            self.passed = points.passed
            assert len(self.seen) == path.commits + 1, f"it takes {len(self.seen) - 1} transactions"
            assert called == path.verbs or path.by_hand is not None, f"it did not call {path.verbs - called}"

    def _look(self, passed: Passed, observer: Store) -> None:
        if passed.place is Place.AFTER:
            self.seen.append(snapshot(observer))

    @contextmanager
    def _fresh(self) -> Iterator[tuple[Store, Any]]:
        self._ground.wipe()
        with opened(self._ground.url) as store:
            store.check()
            yield store, self.path.arrange(store)

    def cells(self) -> list[Cell]:
        """Every place it passes, in every way."""
        numbers = {place: sum(passed.place is place for passed in self.passed) for place in Place}
        return [
            Cell(place, nth, way)
            for place, ways in WAYS.items()
            for nth in range(1, numbers[place] + 1)
            for way in ways
        ]

    def commits_before(self, cell: Cell) -> int:
        """How many of its transactions have been committed when it comes there."""
        there = [passed for passed in self.passed if passed.place is cell.place][cell.nth - 1]
        return there.transaction if cell.place is Place.AFTER else there.transaction - 1

    # Visiting ------------------------------------------------------------------------------------------------------------

    def visit(self, cell: Cell) -> None:
        """Let it happen, and look at what is left."""
        with self._fresh() as (store, given), self._ground.other() as other:
            meanwhile: list[str] = []
            if cell.way == KILL:
                self._kill(cell, given)
            else:
                self._interrupt(cell, store, given, other, meanwhile)
            if cell.way == PAUSE:
                if self.path.fenced and cell.place is not Place.WITHIN:
                    assert snapshot(other) == meanwhile[0], "a token that had passed on wrote something"
            else:
                assert snapshot(other) == self.seen[self.commits_before(cell)]
                self._again(other, given, cell)
            conclude(other, restarted="retry" in self.path.name)

    def _kill(self, cell: Cell, given: Any) -> None:
        code = self._victims.run(_die, self._ground.url, self.path.name, given, cell)
        assert code == KILLED, f"it was not killed there, but ended with {code}"
        self._ground.bury()

    def _interrupt(self, cell: Cell, store: Store, given: Any, other: Store, meanwhile: list[str]) -> None:
        def stand_still() -> None:
            try:
                go_on(other)
            except StoreBusy:
                assert cell.place is Place.WITHIN, "nobody waits for one who has nothing open"
            meanwhile.append(snapshot(other))

        def fail() -> None:
            if cell.place is Place.WITHIN:
                self._ground.sever()
            else:
                raise StoreUnavailable(f"the line is cut ({cell.way})")

        points = Failpoints()
        points.arm(cell.place, stand_still if cell.way == PAUSE else fail, nth=cell.nth)
        give_points(cast(SqlStore, store), points)
        if cell.way == PAUSE:
            try:
                _act(self.path, store, given, points)
            except (JobError, UsageError, StoreBusy) as said:
                meanwhile.append(str(said))  # it finds that others were quicker, and says so
        else:
            with pytest.raises((StoreError, *_DRIVER)):
                _act(self.path, store, given, points)
        assert points.reached

    def _again(self, store: Store, given: Any, cell: Cell) -> None:
        """Whoever does not know does it again."""
        known = self.commits_before(cell) == len(self.seen) - 1
        try:
            self.path.act(store, given)
        except TidemillError:
            assert known, "it was not done, and cannot be done"
        if not known or self.path.repeats is None:
            assert snapshot(store) == self.seen[-1], "doing it again leads somewhere else"


def _act(path: Path, store: Store, given: Any, points: Failpoints) -> None:
    if path.by_hand is not None:
        path.by_hand(store, given, points)
    else:
        path.act(store, given)


def _spy(store: Store, verb: str, called: set[str]) -> None:
    target: Callable[..., Any] = getattr(store, verb)

    def spied(*args: Any, **named: Any) -> Any:
        called.add(verb)
        return target(*args, **named)

    setattr(store, verb, spied)


def _die(url: str, name: str, given: Any, cell: Cell) -> None:
    """In a process of its own."""
    points = Failpoints()
    points.arm(cell.place, lambda: os._exit(KILLED), nth=cell.nth)
    with opened(url) as store:
        give_points(cast(SqlStore, store), points)
        _act(PATHS[name], store, given, points)


_DRIVER = (sqlite3.Error, psycopg.Error)
"""What a user's own connection raises."""
