"""Tests of schedules that fire on every node or in every runner."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.fire_kit import HOUR, MIDNIGHT, MINUTE, SECOND, Tower, a_tower, on_each_store

from tidemill import All, App, Context, Every, Manual
from tidemill.domain.cluster import Worker
from tidemill.domain.job import NewJob
from tidemill.domain.limits import Rule
from tidemill.domain.schedules import runner_place
from tidemill.domain.states import JobState
from tidemill.engine.duties import FireHere
from tidemill.engine.duty import Done
from tidemill.engine.exchange.planner import Planner
from tidemill.engine.exchange.sources import Claimer
from tidemill.engine.node import VARIABLE, concerns, host_name, machine_name, own_queue, serves
from tidemill.errors import BadSchedule, BadSettings, StoreUnavailable
from tidemill.ids import new_id


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def tower(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tower]:
    with on_each_store(request, tmp_path) as tower:
        yield tower


def here(tower: Tower, node: str) -> FireHere:
    """The duty of a node, after its first run."""
    duty = FireHere(tower.store, tower.clock, node, pinned=True)
    duty()
    return duty


def of(tower: Tower, node: str) -> list[tuple[str, str | None]]:
    return [(f"{fire.fire_at:%H:%M}", fire.reason) for fire in tower.fires("each") if fire.scope_key == node]


def test_every_node_fires_once_into_its_own_queue(tower: Tower) -> None:
    a, b = here(tower, "a"), here(tower, "b")
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="instance")
    for duty in (a, b):
        assert duty() == Done(0, MIDNIGHT + HOUR)
    tower.clock.advance(HOUR)
    for duty in (a, b, a, b):
        duty()
    assert of(tower, "a") == of(tower, "b") == [("00:00", "the node joined"), ("01:00", None)]
    jobs = tower.jobs()
    assert sorted(job.queue for job in jobs) == ["@a", "@b"]
    assert {job.expires_at for job in jobs} == {MIDNIGHT + 3 * HOUR}
    assert {job.details.fire_at for job in jobs} == {MIDNIGHT + HOUR}


def test_two_processes_of_one_node_make_one_job(tower: Tower) -> None:
    first, second = here(tower, "a"), here(tower, "a")
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="instance")
    for _ in range(2):
        first()
        second()
        tower.clock.advance(HOUR)
    assert len(tower.jobs()) == 1


def test_a_node_that_joins_late_fires_no_missed_times(tower: Tower) -> None:
    a = here(tower, "a")
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="instance", misfire=All())
    tower.clock.advance(2 * HOUR + MINUTE)
    a()
    b = here(tower, "b")
    assert of(tower, "b") == [("02:01", "the node joined")]
    tower.clock.advance(HOUR)
    b()
    assert of(tower, "b")[1:] == [("03:00", None)]


@pytest.mark.parametrize(
    ("rule", "made"), [("skip", []), ("once", ["04:00"]), (All(), ["02:00", "03:00", "04:00"])]
)
def test_a_node_that_was_down_follows_the_misfire_rule(tower: Tower, rule: Any, made: list[str]) -> None:
    a = here(tower, "a")
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="instance", misfire=rule, overlap="allow")
    tower.clock.advance(HOUR)
    a()
    tower.clock.advance(3 * HOUR + 5 * MINUTE)
    here(tower, "a")  # another process on the same node
    jobs = [fire for fire in tower.fires("each") if fire.job_id is not None]
    assert [f"{fire.fire_at:%H:%M}" for fire in jobs] == ["01:00", *made]


def test_the_overlap_rule_considers_only_jobs_of_the_same_node(tower: Tower) -> None:
    a, b = here(tower, "a"), here(tower, "b")
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="instance", overlap="skip")
    tower.clock.advance(HOUR)
    a()
    b()
    (job,) = [job for job in tower.jobs() if job.queue == "@b"]
    assert tower.app.jobs.cancel(ids=[job.id]).done == 1
    tower.clock.advance(HOUR)
    a()
    b()
    assert of(tower, "a")[-1] == ("02:00", "overlap: the previous job has not ended")
    assert of(tower, "b")[-1] == ("02:00", None)


def test_a_paused_schedule_fires_on_no_node(tower: Tower) -> None:
    a = here(tower, "a")
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="instance")
    tower.clock.advance(HOUR)
    tower.app.schedules.pause("each")
    assert a() == Done()
    tower.app.schedules.resume("each")
    assert a().items == 0
    tower.clock.advance(HOUR)
    assert a().items == 1


def test_a_pause_between_read_and_write_prevents_a_node_from_firing(tower: Tower) -> None:
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="instance")
    a = here(tower, "a")
    tower.clock.advance(HOUR)
    real = tower.store

    class Between:
        def __getattr__(self, verb: str) -> Any:
            if verb == "advance":
                tower.app.schedules.pause("each")
            return getattr(real, verb)

    store: Any = Between()
    a._store = store
    assert a().items == 0
    assert tower.jobs() == []
    assert of(tower, "a") == [("00:00", "the node joined")]


def test_a_node_whose_join_could_not_be_stored_joins_again(tower: Tower) -> None:
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="instance", misfire=All())
    real = tower.store

    class Broken:
        def __getattr__(self, verb: str) -> Any:
            if verb == "note_fires":
                raise StoreUnavailable("gone for a moment")
            return getattr(real, verb)

    duty = FireHere(real, tower.clock, "a", pinned=True)
    store: Any = Broken()
    duty._store = store
    with pytest.raises(StoreUnavailable):
        duty()
    duty._store = real
    duty()
    assert of(tower, "a") == [("00:00", "the node joined")]


def test_the_test_runner_is_one_node(tower: Tower) -> None:
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="instance")
    tower.testing.drain()
    assert tower.after(HOUR) == ["tick"]
    assert tower.jobs()[0].queue == own_queue(machine_name())


# Queues of nodes and runners ---------------------------------------------------------------------------------------------


def test_the_environment_can_set_the_name_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    own = machine_name()
    monkeypatch.setenv(VARIABLE, " blue-7 ")
    assert machine_name() == "blue-7"
    monkeypatch.setenv(VARIABLE, "")
    assert machine_name() == own
    for wrong in ("blue\udcff", "x" * 201, "*"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(BadSettings, match="node's name"):
            machine_name()


def test_an_undecodable_host_name_is_made_storable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "blue\udcff")
    assert host_name() == "blue?"


def test_a_queue_of_another_node_is_never_served() -> None:
    assert serves("mail", "a")
    assert serves("@a", "a")
    assert not serves("@b", "a")


def test_a_queue_of_another_runner_is_never_served() -> None:
    mine, other = new_id(), new_id()
    assert serves(f"@a/{mine}", "a", mine)
    assert serves("@a", "a", mine)
    assert not serves(f"@a/{other}", "a", mine)
    assert not serves(f"@b/{mine}", "a", mine)
    assert concerns(f"ready:@a/{mine}", ("mail",), "a", mine)
    assert not concerns(f"ready:@a/{other}", None, "a", mine)


# Scope process -----------------------------------------------------------------------------------------------------------


def runner(tower: Tower, node: str, lease: timedelta = 9 * HOUR) -> str:
    """Register a new runner process and return the name of its place."""
    me = new_id()
    tower.store.register(Worker(me, "w", node=node), lease=lease, now=tower.clock.now())
    return runner_place(node, me)


def places(tower: Tower, **where: Any) -> list[str]:
    return sorted(job.queue.removeprefix("@") for job in tower.jobs(**where))


def test_every_runner_of_a_node_gets_each_fire_once(tower: Tower) -> None:
    a, b = here(tower, "a"), here(tower, "b")
    runners = [runner(tower, "a"), runner(tower, "a"), runner(tower, "b")]
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="process")
    for duty in (a, b):
        assert duty() == Done(0, MIDNIGHT + HOUR)
    tower.clock.advance(HOUR)
    again = FireHere(tower.store, tower.clock, "a", pinned=True)  # the same node after a restart
    for duty in (a, b, a, again):
        duty()
    assert places(tower) == sorted(runners)
    assert {job.expires_at for job in tower.jobs()} == {MIDNIGHT + 3 * HOUR}
    assert sorted(fire.scope_key for fire in tower.fires("each")) == sorted(runners)


def test_a_runner_that_starts_late_fires_no_missed_times(tower: Tower) -> None:
    a = here(tower, "a")
    old = runner(tower, "a")
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="process", misfire=All(), overlap="allow")
    tower.clock.advance(HOUR + MINUTE)
    new = runner(tower, "a")
    a()
    assert places(tower) == [old]
    tower.clock.advance(HOUR)
    a()
    assert places(tower) == sorted([old, old, new])


def test_a_dead_or_draining_runner_gets_no_fire(tower: Tower) -> None:
    a = here(tower, "a")
    runner(tower, "a", lease=MINUTE)
    draining, lives = runner(tower, "a"), runner(tower, "a")
    tower.store.drain([UUID(draining.removeprefix("a/"))])
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="process")
    tower.clock.advance(HOUR)
    a()
    assert places(tower) == [lives]


def test_a_job_of_a_runner_that_ended_expires(tower: Tower) -> None:
    a = here(tower, "a")
    place = runner(tower, "a", lease=HOUR + MINUTE)
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="process")
    tower.clock.advance(HOUR)
    a()
    assert places(tower) == [place]
    assert tower.after(2 * HOUR) == [], "it is for that runner only"
    assert [job.id for job in tower.store.expired(9, now=tower.clock.now())] == [tower.jobs()[0].id]


def test_a_running_job_of_one_runner_does_not_block_another(tower: Tower) -> None:
    a = here(tower, "a")
    first = runner(tower, "a")
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="process")
    tower.clock.advance(HOUR)
    a()
    second = runner(tower, "a")
    tower.clock.advance(HOUR)
    a()
    assert places(tower) == sorted([first, second]), "the job of the first runner has not ended"
    skipped = [fire.scope_key for fire in tower.fires("each") if fire.job_id is None]
    assert skipped == [first]


def test_a_manual_trigger_reaches_every_live_runner(tower: Tower) -> None:
    runner(tower, "a", lease=MINUTE)
    tower.clock.advance(HOUR)
    living = [runner(tower, "a"), runner(tower, "b")]
    tower.app.schedules.add(tower.note, Manual(), "each", scope="process")
    tower.app.schedules.trigger("each")
    assert places(tower) == sorted(living)
    assert {job.expires_at for job in tower.jobs()} == {tower.clock.now() + HOUR}
    with pytest.raises(BadSchedule, match="of every node or runner cannot be backfilled"):
        tower.app.schedules.backfill("each", MIDNIGHT, MIDNIGHT)


def test_a_manual_trigger_without_a_live_runner_is_refused(tower: Tower) -> None:
    tower.app.schedules.add(tower.note, Manual(), "each", scope="process")
    with pytest.raises(BadSchedule, match="fires in every runner, and none is alive"):
        tower.app.schedules.trigger("each")


def test_the_test_runner_counts_as_a_runner(tower: Tower) -> None:
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="process")
    assert tower.after(MINUTE) == []
    assert tower.after(HOUR) == ["tick"]
    assert tower.after(HOUR) == ["tick"]


@pytest.mark.parametrize("queues", [None, ("mail",)])
def test_a_worker_claims_from_the_queue_of_its_node_whatever_its_queues_are(
    queues: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "a")
    with a_tower() as tower:
        for queue in ("mail", "@a", "@b"):
            tower.store.enqueue([NewJob(new_id(), "note", queue=queue)])
        me = tower.store.register(Worker(new_id(), "w"), lease=HOUR)
        claimer = Claimer(tower.store, tower.clock, me.id, queues, Planner({}, 0.1, 100))
        claimer.refresh()
        assert sorted(lane.queue for lane in claimer._marks.lanes()) == ["@a", "mail"]


def test_limited_lanes_of_other_nodes_do_not_hide_those_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a")
    monkeypatch.setattr("tidemill.engine.exchange.lane_reader.PAGE", 2)
    with a_tower() as tower:
        tower.store.put_rules([Rule("few", max=1)])
        for queue in ("@b", "@c", "@d", "mail"):
            tower.store.enqueue([NewJob(new_id(), "note", queue=queue, limits=("few",))])
        claimer = Claimer(tower.store, tower.clock, new_id(), None, Planner({}, 0.1, 100))
        claimer.refresh()
        claimer.refresh()
        known = [lane.queue for gates in claimer._gates.values() for lane in gates.lanes]
        assert known == ["mail"]


# With real workers -------------------------------------------------------------------------------------------------------


def an_app(url: str, ran: list[str], name: str) -> App:
    app = App(url, migrate=True, name="cluster")

    @app.task(scope="instance")
    def clear() -> None:
        ran.append(name)

    app.schedule(clear, Every(SECOND), overlap="allow")
    return app


def test_two_workers_on_two_nodes_each_run_every_fire_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    ran: list[str] = []
    apps = {name: an_app(url, ran, name) for name in ("blue", "green")}
    workers = []
    try:
        for name, app in apps.items():
            monkeypatch.setenv(VARIABLE, name)
            workers.append(app.worker(children=0, queues="nothing-else").start())
        eventually(lambda: ran.count("blue") >= 2 and ran.count("green") >= 2, 40.0)
    finally:
        for worker in workers:
            worker.stop(5)
    try:
        store = apps["blue"].store
        fires = apps["blue"].schedules.fires("clear", limit=1000)
        for name in apps:
            mine = [fire for fire in fires if fire.scope_key == name]
            made = [fire for fire in mine if fire.job_id is not None]
            assert mine[-1].reason == "the node joined"
            assert len({fire.fire_at for fire in made}) == len(made)
            jobs = store.get([fire.job_id for fire in made if fire.job_id], tenant="*")
            assert {job.queue for job in jobs} == {f"@{name}"}
            done = [job for job in jobs if job.state is JobState.COMPLETED]
            assert len(done) == ran.count(name)
    finally:
        for app in apps.values():
            app.close()


def test_two_workers_of_a_node_each_run_every_process_scope_fire_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    ran: list[tuple[str, str]] = []

    def an_app(name: str) -> App:
        app = App(url, migrate=True, name="cluster")

        @app.task(scope="process")
        def clear(ctx: Context) -> None:
            ran.append((name, str(ctx.job.details.fire_at)))

        app.schedule(clear, Every(SECOND), overlap="allow")
        return app

    def fires_in_both() -> set[str]:
        return {fire for name, fire in ran if name == "one"} & {fire for name, fire in ran if name == "two"}

    apps = [an_app("one"), an_app("two")]
    workers = [app.worker(children=0, queues="nothing-else").start() for app in apps]
    try:
        eventually(lambda: len(fires_in_both()) >= 2, 40.0)
    finally:
        for worker, app in zip(workers, apps, strict=True):
            worker.stop(5)
            app.close()
    assert len(set(ran)) == len(ran), "no fire ran twice in one of them"


def test_a_worker_fires_schedules_and_is_notified_of_new_ones(tmp_path: Path) -> None:
    ran = threading.Event()
    with App(f"sqlite:///{tmp_path}/jobs.db", name="alone") as app:

        @app.task
        def ring() -> None:
            ran.set()

        with app.worker(children=0):
            app.schedules.add(ring, Every(SECOND), "soon")
            assert ran.wait(8.0), "the wake-up did not come, nor the timer"
        assert app.schedules.fires("soon")


def test_an_idle_worker_reads_schedules_of_its_node_twice_a_minute() -> None:
    with a_tower() as tower:
        duty = here(tower, "a")
        assert duty() == Done()
        assert timedelta(seconds=30) == duty.duty().every  # and whenever a schedule is written
