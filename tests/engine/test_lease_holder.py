"""Tests of the lease holder's name, and of leases that are not in use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.duty_kit import Yard, every
from tests.engine.harness import STORES, Harness, Place, a_place, opened
from tests.engine.worker_kit import World, until

from tidemill.client.documents import lease_document
from tidemill.domain.cluster import Coordination, Lease, Worker, WorkerState, holder_data, holder_of
from tidemill.engine.duty import Done
from tidemill.engine.node import process_name
from tidemill.ids import new_id

MODES = [mode for mode in Coordination if mode is not Coordination.LEASE]


@pytest.fixture(scope="module", params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def harness(place: Place, tmp_path: Path) -> Iterator[Harness]:
    with place(tmp_path) as url, opened(url) as harness:
        yield harness


@pytest.fixture
def yard() -> Iterator[Yard]:
    yard = Yard()
    yield yard
    yard.close()


def test_an_embedded_worker_that_holds_the_lease_is_named(harness: Harness) -> None:
    with harness.worker(coordination="lease") as worker:

        def leader() -> bool:
            return any(row.holder_name is not None for row in harness.app.stats.leaders())

        eventually(leader)
        (row,) = harness.app.stats.leaders()
        (lease,) = harness.app.store.leases()
        found = lease_document(lease, harness.app.store.now(), harness.app.store.workers())
        assert (row.holder_name, found["holder_name"]) == (process_name(), process_name())
        assert (found["holder_workers"], found["coordination"]) == ([str(worker.id)], "lease")
        assert found["duties"]
    (lease,) = harness.app.store.leases()
    found = lease_document(lease, harness.app.store.now(), harness.app.store.workers())
    assert (found["held"], found["holder_name"], found["duties"]) == (False, None, {})


def test_a_supervisor_that_holds_the_lease_is_named_with_its_runners(tmp_path: Path) -> None:
    world = World(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path)
    try:
        process = world.supervised(processes=2, coordination="lease")

        def held() -> dict[str, object] | None:
            workers = world.app.store.workers()
            for lease in world.app.store.leases():
                found = lease_document(lease, world.app.store.now(), workers)
                if len(found["holder_workers"]) == 2:  # type: ignore[arg-type]
                    return found
            return None

        found = until(held, "the lease names both runners")
        assert found["holder_name"] == process_name().rpartition("-")[0] + f"-{process.pid}"
        living = {
            str(worker.id) for worker in world.app.store.workers() if worker.state is not WorkerState.STOPPED
        }
        assert set(found["holder_workers"]) == living
    finally:
        world.close()


@pytest.mark.parametrize("mode", MODES)
def test_workers_that_need_no_lease_mark_it_unused(yard: Yard, mode: Coordination) -> None:
    def loop(coordination: Coordination) -> None:
        yard.loop(every(5, Done), coordination=coordination, describe=lambda: holder_data("box-1", ()))

    loop(Coordination.LEASE)
    yard.pass_time(10)
    loop(mode)
    yard.pass_time(10)
    (lease,) = yard.memory.leases()
    assert (lease.unused_by, lease.held(yard.clock.now())) == (None, True), "another still uses the lease"
    yard.loops[0].close()
    loop(mode)
    yard.pass_time(10, *yard.loops[1:])
    if mode is Coordination.ADVISORY:  # the lock's holder marks it within an hour
        yard.pass_time(3700, *yard.loops[1:])
    (lease,) = yard.memory.leases()
    found = lease_document(lease, yard.clock.now(), [])
    assert (found["coordination"], found["held"], found["duties"]) == (mode.value, False, {})
    loop(Coordination.LEASE)
    yard.pass_time(10, yard.loops[-1])
    (lease,) = yard.memory.leases()
    found = lease_document(lease, yard.clock.now(), [])
    assert (found["coordination"], found["held"], found["holder_name"]) == ("lease", True, "box-1")
    assert found["duties"]


def test_a_store_without_leases_gets_no_lease_row(yard: Yard) -> None:
    yard.loop(every(5, Done), coordination=Coordination.EVERYONE, describe=lambda: holder_data("box-1", ()))
    yard.pass_time(10)
    assert yard.memory.leases() == []


@pytest.mark.parametrize("facts", [None, "nonsense", {"name": 7, "workers": ["x", 5]}, {}])
def test_a_holder_with_invalid_metadata_has_no_name(facts: object) -> None:
    metadata: dict[str, object] = {} if facts is None else {"holder": facts}
    found = holder_of(Lease("duties", new_id(), 1, metadata=metadata), [])
    assert found == (None, ())


def test_a_holder_without_metadata_is_named_by_its_worker() -> None:
    worker = Worker(new_id(), "old-one")
    assert holder_of(Lease("duties", worker.id, 1), [worker]) == ("old-one", (worker.id,))
    assert holder_of(Lease("duties", None, 1), [worker]) is None
