"""Tests of firing with errors and in bulk, and of its cost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.fire_kit import HOUR, MIDNIGHT, MINUTE, SECOND, Tower, a_tower, on_each_store

from tidemill import All, Cron, Daily, Every
from tidemill.clock import ManualClock
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.schedules import ScheduleRow
from tidemill.domain.states import JobState
from tidemill.domain.unique import Unique
from tidemill.engine.duties import CancelExpired, FireDuty
from tidemill.engine.duty import Done
from tidemill.errors import StoreCorrupt
from tidemill.ids import new_id

S = JobState


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def tower(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tower]:
    with on_each_store(request, tmp_path) as tower:
        yield tower


# Errors ------------------------------------------------------------------------------------------------------------------


def test_an_unreadable_schedule_is_postponed_and_the_others_fire(
    tower: Tower, caplog: pytest.LogCaptureFixture
) -> None:
    odd = ScheduleRow(new_id(), "odd", "note", {"format": 1, "kind": "lunar"}, next_fire_at=MIDNIGHT + MINUTE)
    lost_zone = replace(
        odd, id=new_id(), key="nowhere", trigger=Every(HOUR).to_data(), timezone="Atlantis/Town"
    )
    tower.store.put_schedules([odd, lost_zone], now=tower.clock.now())
    tower.app.schedules.add(tower.note, Every(HOUR), "sound")
    with caplog.at_level(logging.ERROR, "tidemill.engine"):
        assert tower.after(HOUR) == ["tick"]
        assert tower.after(HOUR) == ["tick"]
    assert (
        caplog.text.count("schedule odd of tenant default does not fire: trigger: unknown kind 'lunar'") == 1
    )
    assert caplog.text.count("unknown time zone 'Atlantis/Town'") == 1
    broken = tower.app.schedules.get("odd")
    assert "lunar" in (broken.broken or "")
    assert broken.enabled
    assert broken.next_fire_at == MIDNIGHT + 2 * HOUR + MINUTE


def test_a_fire_whose_unique_key_is_held_creates_no_job_and_records_why(tower: Tower) -> None:
    @tower.app.task(unique=Unique())
    def alone(word: str = "one") -> None: ...

    held = alone.enqueue("one")
    schedules = tower.app.schedules
    schedules.add(alone, Every(HOUR), "held", args={"word": "one"})
    schedules.add(alone, Every(HOUR), "free", args={"word": "two"})
    tower.testing.advance(HOUR)
    tower.testing.fire()
    assert tower.said("held") == [("01:00", f"unique: job {held.id} holds the key")]
    assert tower.said("free") == [("01:00", None)]
    assert len(tower.jobs()) == 2


def test_a_schedule_whose_job_the_store_refuses_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with a_tower() as tower:
        for number in range(5):
            tower.app.schedules.add(tower.note, Every(HOUR), f"s{number}", args={"word": str(number)})
        real = tower.store

        class Picky:
            def __getattr__(self, verb: str) -> Any:
                return getattr(real, verb)

            def enqueue(self, jobs: Any, **rest: Any) -> Any:
                if any('"3"' in job.args for job in jobs):
                    raise StoreCorrupt("not this one")
                return real.enqueue(jobs, **rest)

        store: Any = Picky()
        tower.testing.advance(HOUR)
        with caplog.at_level(logging.ERROR, "tidemill.engine"):
            assert FireDuty(store, tower.clock, pinned=True)().items == 4
        assert len(tower.jobs()) == 4
        assert "schedule s3 of tenant default does not fire" in caplog.text
        assert tower.fires("s3") == []
        tower.testing.drain()
        tower.testing.advance(MINUTE)
        tower.testing.fire()
        assert tower.said("s3") == [("01:00", None)]


def test_a_task_unknown_here_fires_with_the_options_saved_in_the_schedule() -> None:
    with a_tower() as tower:

        @tower.app.task(queue="far", timeout=MINUTE, retry=None)
        def elsewhere() -> None: ...

        tower.app.schedules.add(elsewhere, Every(HOUR), "far")
        tower.testing.advance(HOUR)
        assert FireDuty(tower.store, tower.clock, pinned=True)().items == 1
        (job,) = tower.jobs()
        assert (job.queue, job.timeout, job.max_attempts) == ("far", MINUTE, 1)


# Cost --------------------------------------------------------------------------------------------------------------------


class Counting:
    """Counts the calls of store methods."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: list[str] = []

    def __getattr__(self, verb: str) -> Any:
        self.calls.append(verb)
        return getattr(self._store, verb)


def test_an_idle_run_makes_one_call_and_returns_the_next_fire_time() -> None:
    with a_tower() as tower:
        tower.app.schedules.add(tower.note, Every(HOUR), "hourly")
        counting: Any = Counting(tower.store)
        fire = FireDuty(counting, tower.clock, pinned=True)
        fire()
        counting.calls.clear()
        assert fire() == Done(0, MIDNIGHT + HOUR)
        assert counting.calls == ["due"]


def test_old_fires_are_deleted_except_for_the_newest() -> None:
    with a_tower() as tower:
        tower.app.schedules.add(tower.note, Every(HOUR), "hourly")
        tower.after(HOUR)
        tower.after(HOUR)
        tower.app.schedules.pause("hourly")
        tower.clock.advance(timedelta(days=91))
        assert len(tower.fires("hourly")) == 2
        FireDuty(tower.store, tower.clock)()
        assert [fire.fire_at for fire in tower.fires("hourly")] == [MIDNIGHT + 2 * HOUR]


def test_old_fires_are_deleted_even_if_schedules_are_due_at_every_run() -> None:
    with a_tower() as tower:
        tower.app.schedules.add(tower.note, Every(timedelta(days=1)), "daily")
        fire = FireDuty(tower.store, tower.clock)
        for _ in range(100):
            tower.clock.advance(timedelta(days=1))
            assert fire().items == 1
        assert len(tower.fires("daily")) == 91  # the fire of ninety days ago is not older than ninety days


@pytest.mark.long
def test_ten_thousand_schedules_due_at_midnight_fire_in_batches(tmp_path: Path) -> None:
    with a_tower(f"sqlite:///{tmp_path}/jobs.db", MIDNIGHT - HOUR) as tower:
        one = tower.app.schedules.value(tower.note, Daily("00:00"), "s")
        many = [replace(one, id=new_id(), key=f"s{number}") for number in range(10_000)]
        assert not tower.store.put_schedules(many, now=tower.clock.now())
        tower.testing.advance(HOUR)
        fire = FireDuty(tower.store, tower.clock, pinned=True)
        fire._unrevised = []
        rounds, fired, done = 0, 0, Done(more=True)
        while done.more:
            done = fire()
            rounds, fired = rounds + 1, fired + done.items
        assert fired == 10_000
        assert rounds == 21
        assert tower.app.jobs.count(task="note") == 10_000


def test_ninety_days_of_downtime_with_a_one_second_schedule_is_cheap() -> None:
    with a_tower() as tower:
        tower.app.schedules.add(tower.note, Every(SECOND), "all", misfire=All(limit=50))
        tower.app.schedules.add(tower.note, Cron("* * * * * *"), "once", misfire="once")
        tower.app.schedules.add(tower.note, Every(SECOND), "skip", misfire="skip")
        tower.testing.advance(timedelta(days=90))
        from tidemill.clock import SystemClock

        clock = SystemClock()
        began = clock.monotonic()
        tower.testing.fire()
        assert clock.monotonic() - began < 1.0
        assert sum(fire.job_id is not None for fire in tower.fires("all")) == 61 + 50
        skipped = tower.fires("skip")[0]
        assert skipped.reason is not None
        assert f"{90 * 86_400 - 61} fires" in skipped.reason


def test_a_next_fire_moved_forward_by_new_zone_rules_is_found_at_the_start(tower: Tower) -> None:
    facts = tower.app.schedules.value(tower.note, Every(HOUR), "moved")
    tower.store.put_schedules([replace(facts, next_fire_at=MIDNIGHT + 5 * HOUR)], now=tower.clock.now())
    assert tower.after(HOUR) == ["tick"]


# Expired jobs ------------------------------------------------------------------------------------------------------------


def test_jobs_that_did_not_start_before_their_expiry_are_cancelled() -> None:
    with a_tower() as tower:
        soon = tower.note.using(expires=MINUTE).enqueue("soon")
        later = tower.note.using(expires=MINUTE, delay=HOUR).enqueue("later")
        kept = tower.note.using(expires=2 * HOUR).enqueue("kept")
        duty = CancelExpired(tower.store)
        assert duty() == Done()
        tower.clock.advance(MINUTE)
        assert duty() == Done(2)
        found = {
            job.id: (job.state, job.reason)
            for job in tower.store.get([soon.id, later.id, kept.id], tenant=ALL_TENANTS)
        }
        assert found[soon.id] == found[later.id] == (S.CANCELLED, "expired")
        assert found[kept.id] == (S.PENDING, None)


def test_a_schedule_fires_on_time_in_its_time_zone(tower: Tower) -> None:
    clock = ManualClock(datetime(2026, 3, 28, 12, tzinfo=UTC))
    tower.clock._now = clock.now()
    tower.app.schedules.add(tower.note, Daily("02:30"), "gap", timezone="Europe/Berlin")
    tower.app.schedules.add(tower.note, Daily("12:00"), "noon", timezone="Europe/Berlin")
    assert tower.after(timedelta(hours=13)) == ["tick"]  # 03:00 summer time, right after the gap
    assert [fire.fire_at for fire in tower.fires("gap")] == [datetime(2026, 3, 29, 1, tzinfo=UTC)]
    assert tower.after(timedelta(hours=9)) == ["tick"]
    assert [fire.fire_at for fire in tower.fires("noon")] == [datetime(2026, 3, 29, 10, tzinfo=UTC)]
