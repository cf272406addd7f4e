"""Tests of ``reads="standby"`` with a real primary and its standby."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from tests.engine.cluster_kit import eventually
from tests.servers.processes import ServiceMissing
from tests.servers.replica import Pair, running_pair
from tests.services import go_without

from tidemill import App, ManualClock
from tidemill.client.access import acting
from tidemill.errors import BadSettings, StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores import standby_reads
from tidemill.stores.memory import MemoryStore
from tidemill.stores.server import ServerStatus
from tidemill.stores.standby_reads import StandbyReads


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    try:
        with running_pair() as pair:
            yield pair
    except ServiceMissing as missing:
        go_without("postgres", missing)


@pytest.mark.long
def test_lists_and_statistics_come_from_the_standby_until_it_lags_or_is_gone(pair: Pair) -> None:
    name = f"t{new_id().hex}"
    pair.primary.create_database(name)
    app = App(pair.url(name), reads="standby", migrate=True)

    @app.task
    def work(number: int) -> None: ...

    with closing(app):
        app.store.migrate()
        work.enqueue_many([{"number": number} for number in range(3)])
        pair.wait_for_receiver()
        assert app.jobs.count() == 3
        pair.halt_receiver()
        late = work.enqueue(number=3)
        assert app.jobs.get(late.id).status == "pending"  # a single job always comes from the primary
        assert app.jobs.count() == len(app.jobs.list().items) == 3
        assert [row.jobs for row in app.stats.by_status()] == [3]
        with acting("ann"):
            late.cancel("no")
            assert app.jobs.count(status="cancelled") == 1  # her own change
        assert app.jobs.count(status="cancelled") == 0
        pair.resume_receiver()
        eventually(lambda: app.jobs.count(status="cancelled") == 1)
        assert pair.standby is not None
        pair.standby.stop("immediate")
        assert app.jobs.count() == 4  # the primary answers


class FakeClockStandby(MemoryStore):
    """A standby in memory with an adjustable age, which counts its readings."""

    age: timedelta | None = timedelta(0)
    readings = 0

    def server(self) -> ServerStatus | None:
        self.readings += 1
        return ServerStatus("18", 100, 1, True, "on", "", 0, self.age)


def test_a_standby_that_lags_too_much_is_not_read_and_the_lag_is_read_once_a_second() -> None:
    clock = ManualClock()
    with closing(MemoryStore()) as primary, closing(FakeClockStandby()) as standby:
        reads = StandbyReads(primary, standby, clock)
        assert reads.reader("bea") is not primary
        assert reads.reader("bea") is not primary
        assert standby.readings == 1
        for age in (timedelta(seconds=31), None):
            standby.age = age
            clock.advance(1)
            assert reads.reader("bea") is primary
        standby.age = timedelta(seconds=30)
        clock.advance(1)
        assert reads.reader("bea") is not primary


def test_a_failed_read_is_answered_by_the_primary_and_the_standby_is_left_alone_for_a_while() -> None:
    clock = ManualClock()
    with closing(MemoryStore()) as primary:
        standby = FakeClockStandby()
        reads = StandbyReads(primary, standby, clock)
        reader = reads.reader("bea")
        standby.close()
        with pytest.raises(StoreUnavailable):
            standby.standing(tenant="*")
        assert reader.standing(tenant="*") == {}
        assert reads.reader("bea") is primary
        clock.advance(5)
        assert reads.reader("bea") is not primary


def test_every_verb_of_a_standby_is_one_of_a_store() -> None:
    assert all(callable(getattr(MemoryStore, verb)) for verb in standby_reads.VERBS)


@pytest.mark.parametrize(("store", "reads"), [("memory://", "standby"), ("memory://", "sqlite:///x.db")])
def test_reads_needs_a_standby_of_postgresql(store: str, reads: str) -> None:
    with pytest.raises(BadSettings, match="the postgresql:// URL of a standby"):
        App(store, reads=reads)
