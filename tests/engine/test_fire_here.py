"""Schedules that every node fires for itself: once on each, never on another, and nothing to make up for on a new one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.fire_kit import HOUR, MIDNIGHT, MINUTE, SECOND, Tower, a_tower, on_each_store

from tidemill import All, App, Every
from tidemill.domain.cluster import Worker
from tidemill.domain.job import NewJob
from tidemill.domain.limits import Rule
from tidemill.domain.states import JobState
from tidemill.engine.claimer import Claimer
from tidemill.engine.duties import FireHere
from tidemill.engine.duty import Done
from tidemill.engine.node import VARIABLE, host_name, machine_name, own_queue, serves
from tidemill.errors import BadSettings, StoreUnavailable
from tidemill.ids import new_id


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def tower(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tower]:
    with on_each_store(request, tmp_path) as tower:
        yield tower


def here(tower: Tower, node: str) -> FireHere:
    """A node's duty that has looked once."""
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


def test_a_node_that_joins_late_has_nothing_to_make_up_for(tower: Tower) -> None:
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


def test_the_overlap_rule_looks_at_the_node_s_own_jobs_only(tower: Tower) -> None:
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


def test_no_node_fires_a_schedule_that_was_paused_meanwhile(tower: Tower) -> None:
    a = here(tower, "a")
    tower.app.schedules.add(tower.note, Every(HOUR), "each", scope="instance")
    tower.clock.advance(HOUR)
    tower.app.schedules.pause("each")
    assert a() == Done()
    tower.app.schedules.resume("each")
    assert a().items == 0
    tower.clock.advance(HOUR)
    assert a().items == 1


def test_a_pause_between_the_look_and_the_write_keeps_a_node_from_firing(tower: Tower) -> None:
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


def test_a_node_whose_joining_could_not_be_written_down_joins_again(tower: Tower) -> None:
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


# Who takes from which queue ----------------------------------------------------------------------------------------------


def test_the_environment_may_name_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    own = machine_name()
    monkeypatch.setenv(VARIABLE, " blue-7 ")
    assert machine_name() == "blue-7"
    monkeypatch.setenv(VARIABLE, "")
    assert machine_name() == own
    for wrong in ("blue\udcff", "x" * 201, "*"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(BadSettings, match="node's name"):
            machine_name()


def test_a_host_whose_name_is_no_text_has_one_that_can_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "blue\udcff")
    assert host_name() == "blue?"


def test_a_queue_of_another_node_is_never_served() -> None:
    assert serves("mail", "a")
    assert serves("@a", "a")
    assert not serves("@b", "a")


@pytest.mark.parametrize("queues", [None, ("mail",)])
def test_a_worker_claims_from_its_own_node_s_queue_whatever_its_queues_are(
    queues: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "a")
    with a_tower() as tower:
        for queue in ("mail", "@a", "@b"):
            tower.store.enqueue([NewJob(new_id(), "note", queue=queue)])
        me = tower.store.register(Worker(new_id(), "w"), lease=HOUR)
        planner: Any = None  # asked only for what this worker can run, and here nothing is claimed
        claimer = Claimer(tower.store, tower.clock, me.id, queues, planner)
        claimer.refresh()
        assert sorted(lane.queue for lane in claimer._marks.lanes()) == ["@a", "mail"]


def test_gates_of_other_nodes_hide_none_of_those_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a")
    monkeypatch.setattr("tidemill.engine.claimer.PAGE", 2)
    with a_tower() as tower:
        tower.store.put_rules([Rule("few", max=1)])
        for queue in ("@b", "@c", "@d", "mail"):
            tower.store.enqueue([NewJob(new_id(), "note", queue=queue, limits=("few",))])
        planner: Any = None
        claimer = Claimer(tower.store, tower.clock, new_id(), None, planner)
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


def test_a_worker_fires_schedules_by_itself_and_hears_of_new_ones(tmp_path: Path) -> None:
    ran = threading.Event()
    with App(f"sqlite:///{tmp_path}/jobs.db", name="alone") as app:

        @app.task
        def ring() -> None:
            ran.set()

        with app.worker(children=0):
            app.schedules.add(ring, Every(SECOND), "soon")
            assert ran.wait(8.0), "the wake-up did not come, nor the timer"
        assert app.schedules.fires("soon")


def test_what_an_idle_worker_asks_for_its_node_is_one_question() -> None:
    with a_tower() as tower:
        duty = here(tower, "a")
        assert duty() == Done()
        assert timedelta(seconds=30) == duty.duty().every  # and whenever a schedule is written
