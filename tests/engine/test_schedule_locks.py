"""Tests of the coordination mode ``redis``: schedules that fire under locks of a real Redis server."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.worker_kit import WorkerProcess, until
from tests.interfaces.cli_kit import call
from tests.servers.restartable import RestartableServer

from tidemill import App, Every, ManualClock
from tidemill.clock import SystemClock
from tidemill.domain.cluster import Coordination
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.engine.duties.fire import FireDuty
from tidemill.engine.duties.schedule_locks import ScheduleLocks, lock_name, schedule_locks
from tidemill.errors import BadSettings, StoreUnavailable
from tidemill.stores.base import Store
from tidemill.stores.lock_server import LockServer
from tidemill.stores.open import open_store
from tidemill.stores.redis_locks import RedisLocks

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
SHORT = timedelta(seconds=0.3)


@pytest.fixture
def redis(redis_server: RestartableServer) -> RestartableServer:
    return redis_server


@pytest.fixture
def url(migrated_postgres_url: str, redis: RestartableServer) -> str:
    return f"{migrated_postgres_url}?locks={redis.url}"


def locks_of(store: Store) -> LockServer:
    locks = store.locks()
    assert locks is not None
    return locks


def some_locks(
    redis: RestartableServer, owner: str, duration: timedelta = timedelta(minutes=5)
) -> RedisLocks:
    return RedisLocks(redis.url, redis.url, lambda: f"{redis.port}:", owner, duration=duration)


# Locks -----------------------------------------------------------------------------------------------------------------


def test_only_the_owner_releases_a_lock(redis: RestartableServer) -> None:
    with closing(some_locks(redis, "one")) as one, closing(some_locks(redis, "two")) as two:
        assert one.take(["a", "b"]) == {"a", "b"}
        assert two.take(["b", "c"]) == {"c"}
        two.release(["a", "b", "c"])
        assert one.take(["a", "b"]) == {"a", "b"}  # taken again by its owner
        one.release(["a", "b"])
        assert two.take(["a"]) == {"a"}
        assert two.drop("a")
        assert not two.drop("a")


def test_a_lock_lasts_five_minutes_unless_it_is_released(redis: RestartableServer) -> None:
    with closing(some_locks(redis, "box-7")) as locks:
        locks.take(["schedule:1"])
        (lock,) = locks.held(NOW)
        assert lock.expires_at is not None
        assert timedelta(minutes=4, seconds=50) < lock.expires_at - NOW <= timedelta(minutes=5)
        assert (lock.name, lock.kind, lock.metadata["holder"]) == (
            "schedule:1",
            "redis",
            {"name": "box-7", "workers": []},
        )
        assert lock.health(NOW) == "ok"
        locks.release(["schedule:1"])
        assert locks.held(NOW) == []


def test_a_former_owner_cannot_release_the_lock_of_the_next_one(redis: RestartableServer) -> None:
    with closing(some_locks(redis, "one", SHORT)) as one, closing(some_locks(redis, "two")) as two:
        assert one.take(["a"])
        eventually(lambda: two.take(["a"]))  # it expired
        one.release(["a"])
        assert not one.take(["a"])
        two.release(["a"])


def test_a_server_that_does_not_answer_is_an_outage(redis: RestartableServer) -> None:
    with closing(some_locks(redis, "one")) as locks:
        locks.take(["a"])
        with redis.halted(), pytest.raises(StoreUnavailable, match="does not answer"):
            locks.take(["a"])
        assert locks.take(["a"]) == {"a"}  # the connection is replaced
        locks.release(["a"])


# Firing ----------------------------------------------------------------------------------------------------------------


class Setup:
    """An app with due schedules on a manual clock, and a second store of another process."""

    def __init__(self, url: str, number: int) -> None:
        self.clock = ManualClock(NOW)
        self.app = App(url, clock=self.clock)
        self.store, self.other = self.app.store, open_store(url)

        @self.app.task
        def note() -> None: ...

        for index in range(number):
            self.app.schedules.add(note, Every(HOUR), key=f"s{index}")
        self.clock.advance(HOUR.total_seconds())
        self.rows = self.store.due(number, now=self.clock.now()).schedules
        self.names = [lock_name(row) for row in self.rows]

    def duty(self, batch: int = 500) -> FireDuty:
        locks = schedule_locks(self.store, self.clock, Coordination.REDIS)
        return FireDuty(self.store, self.clock, pinned=True, locks=locks, batch=batch)

    def fired(self) -> set[str]:
        """The locks of the schedules that have fired."""
        fires = [(row, self.store.fires(row.id, tenant=row.tenant)) for row in self.rows]
        assert all(len(found) <= 1 for _, found in fires)
        return {lock_name(row) for row, found in fires if found}

    def close(self) -> None:
        self.app.close()
        self.other.close()


def test_a_scheduler_leaves_locked_schedules_to_their_owner(url: str) -> None:
    with closing(Setup(url, 3)) as setup:
        assert locks_of(setup.other).take(setup.names[:2]) == set(setup.names[:2])
        done = setup.duty()()
        assert (done.items, setup.fired()) == (1, {setup.names[2]})
        assert done.next_at == setup.clock.now() + timedelta(seconds=1)
        locks_of(setup.other).release(setup.names[:2])
        assert setup.duty()().items == 2
        assert locks_of(setup.store).held(NOW) == []  # released after the commit


def test_schedules_that_stay_locked_do_not_hide_the_others(url: str) -> None:
    with closing(Setup(url, 6)) as setup:
        locks_of(setup.other).take(setup.names[:4])
        fire = setup.duty(batch=2)
        for _ in range(4):
            fire()
        assert setup.fired() == set(setup.names[4:])


def test_schedules_fire_without_locks_while_the_server_is_away(
    url: str, redis: RestartableServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidemill.engine")
    with closing(Setup(url, 3)) as setup:
        fire = setup.duty()
        with redis.halted():
            assert fire().items == 3
        setup.clock.advance(HOUR.total_seconds())
        assert fire().items == 3
    words = [record.getMessage() for record in caplog.records]
    assert ["without locks" in line for line in words] == [True, False], words


def test_a_release_that_was_not_answered_is_repeated(url: str, redis: RestartableServer) -> None:
    with closing(Setup(url, 1)) as setup:
        locks = ScheduleLocks(locks_of(setup.store), setup.clock)
        assert locks.take(setup.rows) == setup.rows
        with redis.halted():
            locks.release()
        assert not locks_of(setup.other).take(setup.names)
        setup.clock.advance(60)
        assert locks.take([]) == []
        assert locks_of(setup.other).take(setup.names)


def test_a_store_without_redis_refuses_the_mode() -> None:
    with closing(open_store("memory://")) as store, pytest.raises(BadSettings, match="locks=redis://"):
        schedule_locks(store, SystemClock(), Coordination.REDIS)


# Commands --------------------------------------------------------------------------------------------------------------


def shown_locks(url: str) -> list[dict[str, Any]]:
    rows = json.loads(call("leases", "list", "--store", url, "--json").stdout)
    return [row for row in rows if row["name"].startswith("schedule:")]


def test_the_list_of_leases_shows_locks_with_their_owners(url: str) -> None:
    with closing(open_store(url)) as store:
        # The databases of tests are copies with one name, so locks that other tests kept are shown as well.
        for lock in locks_of(store).held(NOW):
            locks_of(store).drop(lock.name)
        locks_of(store).take(["schedule:7"])
        (row,) = shown_locks(url)
        assert (row["name"], row["coordination"], row["health"], row["held"]) == (
            "schedule:7",
            "redis",
            "ok",
            True,
        )
        assert row["holder_name"].endswith(f"-{os.getpid()}")
        done = call("leases", "release", "schedule:7", "--store", url, "--json")
        assert json.loads(done.stdout)["released"] is True
        assert shown_locks(url) == []


# Processes ---------------------------------------------------------------------------------------------------------------

MODULE = """
from datetime import timedelta
from tidemill import All, App, Every

app = App({url!r})

@app.task
def note(number: int) -> None:
    pass

for number in range(10):
    app.schedule(note, Every(timedelta(seconds=1)), f"s{{number}}", overlap="allow", misfire=All(limit=1000), args={{"number": number}})
"""


@pytest.mark.long
def test_two_schedulers_double_no_fire_while_redis_restarts_and_halts(
    url: str, redis: RestartableServer, tmp_path: Path
) -> None:
    (tmp_path / "ticking.py").write_text(MODULE.format(url=url), encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "tidemill", "worker", "ticking:app", "--json", "--processes", "1"]
    words += ["--coordination", "redis"]
    workers: list[WorkerProcess] = []
    with closing(open_store(url)) as store:
        try:
            for name in ("one", "two"):
                environment = {**os.environ, "PYTHONPATH": path}
                workers.append(WorkerProcess(words, tmp_path / name, environment))
            for worker in workers:
                worker.ready(1)

            def made() -> int:
                return sum(jobs_of_fires(store).values())

            for trouble in (redis.restart, redis.restart, None):
                before = made()
                until(lambda: made() >= before + 20, "two seconds of fires")  # noqa: B023
                if trouble is not None:
                    trouble()
                    continue
                with redis.halted():
                    before = made()
                    until(lambda: made() >= before + 30, "three seconds of fires while Redis is halted")  # noqa: B023
            before = made()
            until(lambda: made() >= before + 20, "two more seconds of fires")
        finally:
            for worker in workers:
                worker.signal(signal.SIGTERM)
            for worker in workers:
                worker.exit_code()
        jobs = jobs_of_fires(store)
        assert len(jobs) >= 110
        assert [key for key, number in jobs.items() if number > 1] == []
        for row in store.schedules(tenant=ALL_TENANTS):
            instants = sorted(at for id, at in jobs if id == row.id)
            assert {after - before for before, after in pairwise(instants)} == {timedelta(seconds=1)}


def jobs_of_fires(store: Store) -> Counter[tuple[UUID | None, datetime]]:
    """The number of jobs of each instant of each schedule."""
    found = Counter[tuple[UUID | None, datetime]]()
    after = None
    while True:
        page = store.jobs(JobFilter(ALL_TENANTS), limit=1000, after=after)
        for job in page.items:
            if job.details.fire_at is not None:
                found[job.details.schedule_id, job.details.fire_at] += 1
        if (after := page.next) is None:
            return found
