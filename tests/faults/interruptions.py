"""Interruption of every write path at every failpoint, and checks of the result.

An interruption is a place, its ordinal on the path, and what happens there: the process is killed, the database is gone, the
response is lost, or the process pauses for longer than its lease while others continue. Afterwards the store must show its state
after the last commit and nothing in between; repeating the path must lead to the same result as without an interruption; and
every stored job must still reach its one end.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple, Protocol, cast

import psycopg
import pytest
from tests.faults import flow_paths, other_paths  # noqa: F401  (they register their paths)
from tests.faults.checks import was_free
from tests.faults.failpoints import Failpoint, Failpoints, Passed, give_points
from tests.faults.fork_server import ForkServer
from tests.faults.job_paths import policy_of
from tests.faults.write_paths import LARGE, PATHS, Path

from tidemill.clock import SystemClock
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.graph import FlowFilter
from tidemill.domain.job import Finish
from tidemill.domain.states import HELD, ExecutionState, JobState
from tidemill.engine.duties import Promote, Reclaim
from tidemill.errors import JobError, StoreBusy, StoreError, StoreUnavailable, TidemillError, UsageError
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.stores.sql.store import SqlStore
from tidemill.testing.conformance.kit import OTHER, T0, WORKER, at, hire, wants

KILLED = 86
"""Exit code of a process that died at its failpoint."""

KILL, ERROR, PAUSE, LOST = "kill", "error", "pause", "answer lost"
WAYS = {
    Failpoint.BEFORE: (KILL, ERROR, PAUSE),
    Failpoint.WITHIN: (KILL, ERROR, PAUSE),
    Failpoint.AFTER: (KILL, LOST, PAUSE),
}
"""The possible errors at each place: an error after the commit is a lost response, and before it there is no response to lose."""

OPEN = HELD | {JobState.PENDING, JobState.SCHEDULED}
"""States in which a job still makes progress."""

_ID = re.compile(r"(?<!0197a000-0000-7000-8000-)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_NUMBER = re.compile(
    r"\b[0-9a-f]{8}\b(?=', name='ci')|(?<=key:)[0-9a-f]{8}\b|hash='[0-9a-f]+'|(?<=')[0-9a-f]{64}(?=')"
)
_INSTANT = re.compile(
    r"datetime\.datetime\((?!2026, 3, 1,)[^()]*?(?:\([^()]*\)[^()]*?)?\)|\b20\d\d-(?!03-01)[\d-]+T[\d:.+]+"
)


class Interruption(NamedTuple):
    """A place, its ordinal on the path, and what happens there."""

    place: Failpoint
    nth: int
    way: str


class Database(Protocol):
    """A database of one dialect."""

    url: str

    def wipe(self) -> None:
        """Empty the database."""

    def other(self) -> AbstractContextManager[Store]:
        """Open another process's store of the same database."""

    def break_connection(self) -> None:
        """Terminate the connection that has an open transaction; without a server, raise the driver's error."""

    def wait_for_cleanup(self) -> None:
        """Wait until the server has noticed the killed process and released its locks."""


@contextmanager
def opened(url: str) -> Iterator[Store]:
    """Open a separate store with a short lock timeout."""
    short = "busy_timeout=0.05" if url.startswith("sqlite") else "lock_timeout=0.05"
    store = open_store(f"{url}{'&' if '?' in url else '?'}{short}")
    try:
        yield store
    finally:
        store.close()


# Observation ---------------------------------------------------------------------------------------------------------------


def snapshot(store: Store) -> str:
    """Return everything the store shows, as text, without values that differ between runs."""
    jobs = store.jobs(JobFilter(ALL_TENANTS), sort=Sort.OLDEST, limit=1000).items
    ids = [job.id for job in jobs]
    schedules = store.schedules(tenant=ALL_TENANTS)
    rules = {rule.name: rule for rule in store.rules()}
    places = store.archive_places()
    flows = store.flows(FlowFilter(ALL_TENANTS), limit=1000)
    graph = [*ids, *(flow.id for flow in flows)]
    seen: list[object] = [
        *jobs,
        *store.executions(ids, tenant=ALL_TENANTS),
        *(entry for id in ids for _, entry in store.logs(id, tenant=ALL_TENANTS)),
        *(store.checkpoints(id, tenant=ALL_TENANTS) for id in ids),
        *flows,
        *store.joins_of(graph),
        *store.edges_of(graph),
        *store.unreachable(1000),
        *(signal for id in ids for signal in store.signals(id, tenant=ALL_TENANTS)),
        *store.waits(ids, tenant=ALL_TENANTS),
        *store.events(tenant=ALL_TENANTS),
        *store.sessions(),
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
        *store.uses(rules, now=at(5)),
        store.release_of("shop"),
        store.blob_parts(LARGE),
        *store.orphan_blobs(timedelta(0), 1000, now=at(60)),
        *(file for place in places for file in store.archive_files(place)),
        *(store.search_archive_entries(place, tenant=ALL_TENANTS, limit=1000).items for place in places),
        *store.keys(),
        *store.audit(tenant=ALL_TENANTS),
    ]
    text = "\n".join(map(repr, seen))
    return re.sub(
        r"(beats|position)=[1-9]\d*",
        r"\1=some",
        _INSTANT.sub("<now>", _NUMBER.sub("<n>", _ID.sub("<id>", text))),
    )


def check_jobs(store: Store, *, restarted: bool) -> None:
    """Check each job: executions without gaps, attempts accounted for, at most one success."""
    jobs = store.jobs(JobFilter(ALL_TENANTS), limit=1000).items
    executions = store.executions([job.id for job in jobs], tenant=ALL_TENANTS)
    for job in jobs:
        mine = [execution for execution in executions if execution.job_id == job.id]
        assert [execution.number for execution in mine] == [*range(1, job.token + 1)]
        running = [execution for execution in mine if execution.state is ExecutionState.RUNNING]
        assert bool(running) == (job.state in HELD)
        assert sum(execution.state is ExecutionState.SUCCEEDED for execution in mine) <= 1
        if not restarted:
            assert job.attempt == sum(not was_free(execution) for execution in mine)
        assert all(before.attempt <= after.attempt + 1 for before, after in pairwise(mine))


def go_on(store: Store) -> None:
    """Act as the other workers: declare the first one gone, reclaim its jobs, promote, claim and finish."""
    Reclaim(store, SystemClock(), policy_of, Random(1)).now([WORKER])
    Promote(store)()
    # A worker writes a result again if a lock was held for too long.
    claims = [*store.held(OTHER), *store.claim(wants(store, worker=OTHER))]
    store.finish([Finish(claim, COMPLETED) for claim in claims])


def conclude(store: Store, *, restarted: bool) -> None:
    """Check that every open job reaches its end."""
    for _ in range(10):
        check_jobs(store, restarted=restarted)
        if not OPEN & set(store.count(JobFilter(ALL_TENANTS))):
            return
        go_on(store)
    raise AssertionError(f"some jobs do not end: {store.count(JobFilter(ALL_TENANTS))}")


# One path ----------------------------------------------------------------------------------------------------------------


class PathRun:
    """A path without interruption: the places it passes, and the state after each commit."""

    def __init__(self, database: Database, path: Path, fork_server: ForkServer) -> None:
        self.path, self._database, self._victims = path, database, fork_server
        points, called = Failpoints(), set[str]()
        with self._fresh() as (store, given), database.other() as observer:
            self.seen = [snapshot(observer)]
            points.watching = lambda passed: self._look(passed, observer)
            for verb in path.verbs:
                _spy(store, verb, called)
            give_points(cast(SqlStore, store), points)
            _act(path, store, given, points)
            self.passed = points.passed
            assert len(self.seen) == path.commits + 1, f"the path takes {len(self.seen) - 1} transactions"
            assert called == path.verbs or path.by_hand is not None, (
                f"the path did not call {path.verbs - called}"
            )

    def _look(self, passed: Passed, observer: Store) -> None:
        if passed.place is Failpoint.AFTER:
            self.seen.append(snapshot(observer))

    @contextmanager
    def _fresh(self) -> Iterator[tuple[Store, Any]]:
        self._database.wipe()
        with opened(self._database.url) as store:
            store.check()
            hire(store, OTHER)
            yield store, self.path.arrange(store)

    def interruptions(self) -> list[Interruption]:
        """Return every way to interrupt the path at every place it passes."""
        numbers = {place: sum(passed.place is place for passed in self.passed) for place in Failpoint}
        return [
            Interruption(place, nth, way)
            for place, ways in WAYS.items()
            for nth in range(1, numbers[place] + 1)
            for way in ways
        ]

    def commits_before(self, interruption: Interruption) -> int:
        """Return how many transactions were committed before this place."""
        there = [passed for passed in self.passed if passed.place is interruption.place][interruption.nth - 1]
        return there.transaction if interruption.place is Failpoint.AFTER else there.transaction - 1

    # Interrupting --------------------------------------------------------------------------------------------------------

    def check_interruption(self, interruption: Interruption) -> None:
        """Interrupt the path, and check the result."""
        with self._fresh() as (store, given), self._database.other() as other:
            observed: list[str] = []
            if interruption.way == KILL:
                self._kill(interruption, given)
            else:
                self._interrupt(interruption, store, given, other, observed)
            if interruption.way == PAUSE:
                if self.path.fenced and interruption.place is not Failpoint.WITHIN:
                    assert snapshot(other) == observed[0], "a superseded token changed the store"
            else:
                assert snapshot(other) == self.seen[self.commits_before(interruption)]
                self._again(other, given, interruption)
            conclude(other, restarted="retry" in self.path.name)

    def _kill(self, interruption: Interruption, given: Any) -> None:
        code = self._victims.run(_die, self._database.url, self.path.name, given, interruption)
        assert code == KILLED, f"the process was not killed there; it exited with {code}"
        self._database.wait_for_cleanup()

    def _interrupt(
        self, interruption: Interruption, store: Store, given: Any, other: Store, observed: list[str]
    ) -> None:
        def let_others_continue() -> None:
            try:
                go_on(other)
            except StoreBusy:
                assert interruption.place is Failpoint.WITHIN, (
                    "a process without an open transaction blocks no other"
                )
            observed.append(snapshot(other))

        def fail() -> None:
            if interruption.place is Failpoint.WITHIN:
                self._database.break_connection()
            else:
                raise StoreUnavailable(f"the connection is lost ({interruption.way})")

        points = Failpoints()
        points.arm(
            interruption.place,
            let_others_continue if interruption.way == PAUSE else fail,
            nth=interruption.nth,
        )
        give_points(cast(SqlStore, store), points)
        if interruption.way == PAUSE:
            try:
                _act(self.path, store, given, points)
            except (JobError, UsageError, StoreBusy) as error:
                # Others were faster, and the path reports it.
                observed.append(str(error))
        else:
            with pytest.raises((StoreError, *_DRIVER)):
                _act(self.path, store, given, points)
        assert points.reached

    def _again(self, store: Store, given: Any, interruption: Interruption) -> None:
        """Repeat the path, as a caller without a response does."""
        committed = self.commits_before(interruption) == len(self.seen) - 1
        try:
            self.path.act(store, given)
        except TidemillError:
            assert committed, "the write did not happen, and cannot be repeated"
        if not committed or self.path.repeats is None:
            assert snapshot(store) == self.seen[-1], "repeating the path leads to a different state"


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


def _die(url: str, name: str, given: Any, interruption: Interruption) -> None:
    """Run the path in a child process that exits at the failpoint."""
    points = Failpoints()
    points.arm(interruption.place, lambda: os._exit(KILLED), nth=interruption.nth)
    with opened(url) as store:
        give_points(cast(SqlStore, store), points)
        _act(PATHS[name], store, given, points)


_DRIVER = (sqlite3.Error, psycopg.Error)
"""Errors that a user's own connection raises."""
