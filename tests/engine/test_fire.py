"""Tests of firing: schedules create their jobs on time, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.fire_kit import HOUR, MIDNIGHT, MINUTE, SECOND, Tower, on_each_store

from tidemill import Daily, Every, Manual, Once
from tidemill.domain.states import JobState
from tidemill.engine.duties import FireDuty
from tidemill.engine.duty import Done

S = JobState


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def tower(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tower]:
    with on_each_store(request, tmp_path) as tower:
        yield tower


# Basics ------------------------------------------------------------------------------------------------------------------


def test_a_schedule_fires_on_time_and_its_job_records_the_fire(tower: Tower) -> None:
    schedule = tower.app.schedules.add(tower.note, Every(HOUR), "hourly", args={"word": "dong"})
    assert schedule.next_fire_at == MIDNIGHT + HOUR
    assert tower.after(HOUR - SECOND) == []
    assert tower.after(SECOND) == ["dong"]
    assert tower.after(MINUTE) == []
    (job,) = tower.jobs()
    assert (job.details.schedule_id, job.details.fire_at) == (schedule.id, MIDNIGHT + HOUR)
    assert (job.state, job.queue, job.max_attempts) == (S.COMPLETED, "default", 4)
    (fire,) = tower.fires("hourly")
    assert (fire.fire_at, fire.job_id, fire.reason) == (MIDNIGHT + HOUR, job.id, None)
    now = tower.app.schedules.get("hourly")
    assert (now.last_fire_at, now.next_fire_at) == (MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR)


def test_the_options_of_a_schedule_override_those_of_its_task(tower: Tower) -> None:
    @tower.app.task(queue="slow", priority=3, timeout=MINUTE, tags=["mine"], retry="fixed_60s")
    def work() -> None: ...

    schedules = tower.app.schedules
    schedules.add(work, Every(HOUR), "as the task says")
    schedules.add(
        work,
        Every(HOUR),
        "its own way",
        queue="fast",
        priority=-5,
        timeout=None,
        retry=None,
        tags=["nightly"],
        metadata={"by": "ops"},
        reference=("user", "42"),
        expires=2 * HOUR,
        correlation_id="one-story",
    )
    tower.testing.advance(HOUR)
    tower.testing.fire()
    by_key = {job.details.schedule_id: job for job in tower.jobs()}
    plain = by_key[schedules.get("as the task says").id]
    own = by_key[schedules.get("its own way").id]
    assert (plain.queue, plain.priority, plain.timeout) == ("slow", 3, MINUTE)
    assert (plain.details.tags, plain.max_attempts) == (("mine",), work.options.retry.max_attempts)
    assert (own.queue, own.priority, own.timeout, own.max_attempts) == ("fast", -5, None, 1)
    assert (own.details.tags, own.details.metadata) == (("mine", "nightly"), {"by": "ops"})
    assert (own.details.reference, own.details.correlation_id) == (("user", "42"), "one-story")
    assert own.expires_at == MIDNIGHT + 3 * HOUR


def test_two_tenants_may_use_the_same_key(tower: Tower) -> None:
    for tenant, word in (("acme", "a"), ("bolt", "b")):
        tower.app.schedules.add(tower.note, Every(HOUR), "same", args={"word": word}, tenant=tenant)
    assert sorted(tower.after(HOUR)) == ["a", "b"]
    assert {job.tenant: job.args for job in tower.jobs()} == {"acme": '{"word":"a"}', "bolt": '{"word":"b"}'}
    tower.app.schedules.pause("same", tenant="acme")
    assert tower.after(HOUR) == ["b"]


def test_a_one_time_schedule_fires_once_and_a_manual_one_never_by_itself(tower: Tower) -> None:
    tower.app.schedules.add(tower.note, Once(MIDNIGHT + MINUTE), "once")
    tower.app.schedules.add(tower.note, Manual(), "by hand", args={"word": "hand"})
    assert tower.after(MINUTE) == ["tick"]
    assert tower.after(48 * HOUR) == []
    assert tower.app.schedules.get("once").next_fire_at is None
    job = tower.app.schedules.trigger("by hand")
    assert tower.after(SECOND) == ["hand"]
    assert [fire.job_id for fire in tower.fires("by hand")] == [job.id]


def test_jitter_delays_a_job_within_its_bound(tower: Tower) -> None:
    tower.app.schedules.add(tower.note, Every(HOUR), "spread", jitter=10 * MINUTE)
    tower.testing.advance(HOUR)
    tower.testing.fire()
    (job,) = tower.jobs()
    assert MIDNIGHT + HOUR < job.run_at < MIDNIGHT + HOUR + 10 * MINUTE
    assert job.state is S.SCHEDULED
    assert tower.after(10 * MINUTE) == ["tick"]


# Concurrent changes ------------------------------------------------------------------------------------------------------


class Between:
    """The tower's store, with an action between reading due schedules and advancing them."""

    def __init__(self, tower: Tower, act: Any) -> None:
        self._store, self._act = tower.store, act

    def __getattr__(self, verb: str) -> Any:
        if verb == "advance":
            act, self._act = self._act, lambda: None
            act()
        return getattr(self._store, verb)


def fire_between(tower: Tower, act: Any) -> Done:
    store: Any = Between(tower, act)
    tower.testing.advance(HOUR)
    fire = FireDuty(store, tower.clock, pinned=True)
    fire._unrevised = []
    return fire()


def test_a_schedule_paused_between_due_and_advance_does_not_fire(tower: Tower) -> None:
    tower.app.schedules.add(tower.note, Every(HOUR), "hourly")
    done = fire_between(tower, lambda: tower.app.schedules.pause("hourly", reason="no more"))
    assert done.items == 0
    assert tower.jobs() == []
    assert tower.fires("hourly") == []
    assert tower.after(HOUR) == []
    tower.app.schedules.resume("hourly")
    assert tower.after(MINUTE) == []
    assert tower.after(HOUR) == ["tick"]


def test_a_schedule_changed_between_due_and_advance_fires_by_its_new_rule_only(tower: Tower) -> None:
    tower.app.schedules.add(tower.note, Every(HOUR), "hourly")
    change = lambda: tower.app.schedules.update("hourly", trigger=Daily("12:00"), args={"word": "noon"})  # noqa: E731
    assert fire_between(tower, change).items == 0
    assert tower.after(HOUR) == []
    assert tower.after(10 * HOUR) == ["noon"]


def test_a_definition_edited_while_its_schedule_is_due_is_used_as_edited(tower: Tower) -> None:
    definitions = tower.app.definitions
    first = definitions.save("report", tower.note, args={"word": "old"}, priority=7)
    tower.app.schedules.add(first, Every(HOUR), "report")
    assert tower.after(HOUR) == ["old"]
    tower.testing.advance(HOUR)
    definitions.save("report", args={"word": "new"})
    tower.ran.clear()
    tower.testing.drain()
    assert tower.ran == ["new"]
    jobs = tower.jobs()
    assert [(job.details.definition_version, job.priority) for job in jobs] == [(1, 7), (2, 7)]
    assert {job.details.definition_id for job in jobs} == {first.id}


def test_no_schedule_of_a_disabled_definition_fires(tower: Tower) -> None:
    tower.app.schedules.add(tower.app.definitions.save("report", tower.note), Every(HOUR), "report")
    done = fire_between(tower, lambda: tower.app.definitions.disable("report"))
    assert done.items == 0
    assert tower.after(3 * HOUR) == []
    tower.app.definitions.enable("report")
    assert tower.after(MINUTE) == []
    assert tower.after(HOUR) == ["tick"]


def test_a_schedule_recreated_under_the_same_key_is_a_new_one(tower: Tower) -> None:
    old = tower.app.schedules.add(tower.note, Every(HOUR), "hourly")
    assert tower.after(HOUR) == ["tick"]
    tower.app.schedules.remove("hourly")
    new = tower.app.schedules.add(tower.note, Every(HOUR), "hourly", args={"word": "again"})
    assert new.id != old.id
    assert tower.fires("hourly") == []
    assert tower.after(HOUR) == ["again"]


def test_two_concurrent_fires_create_one_job(tower: Tower) -> None:
    tower.app.schedules.add(tower.note, Every(HOUR), "hourly")
    other = FireDuty(tower.store, tower.clock, pinned=True)
    assert fire_between(tower, other).items == 0
    assert len(tower.jobs()) == 1
    assert len(tower.fires("hourly")) == 1
