"""``tidemill.contrib.apscheduler`` compared with the triggers of APScheduler, and its schedulers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.cron import CronTrigger as TheirCron
from apscheduler.triggers.date import DateTrigger as TheirDate
from apscheduler.triggers.interval import IntervalTrigger as TheirInterval

from tidemill import App, ManualClock
from tidemill.contrib.apscheduler import (
    AsyncIOScheduler,
    BackgroundScheduler,
    ConflictingIdError,
    CronTrigger,
    DateTrigger,
    IntervalTrigger,
    JobLookupError,
)
from tidemill.errors import BadSchedule, BadSettings, UsageError

START = datetime(2026, 4, 2, 13, 7, 11, tzinfo=UTC)
PATIENCE = 60
COUNT = 40

CRONS: list[dict[str, Any]] = [
    {"hour": 2},
    {"hour": 2, "minute": 30},
    {"minute": "*/15"},
    {"second": "*/20"},
    {"hour": "9-17", "minute": "0,30"},
    {"day_of_week": "mon-fri", "hour": 8},
    {"day_of_week": "0,6", "hour": 8},
    {"day_of_week": 4},
    {"day_of_week": "sun", "hour": 23, "minute": 59, "second": 30},
    {"day": 1},
    {"day": "last", "hour": 12},
    {"day": "1st mon", "hour": 7},
    {"day": "2nd fri"},
    {"day": "last sun", "hour": 4},
    {"day": "1-7/2", "hour": "*/6"},
    {"month": "jan,jul", "day": 15},
    {"month": 4},
    {"month": "*/3", "day": 31, "hour": 5},
    {"year": "*", "hour": 3},
]
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")


def theirs(trigger: Any, since: datetime, count: int = COUNT) -> list[datetime]:
    """The fire times of a trigger of APScheduler."""
    times: list[datetime] = []
    last, now = None, since
    while len(times) < count:
        found = trigger.get_next_fire_time(last, now)
        if found is None:
            break
        times.append(found.astimezone(UTC))
        last, now = found, found + timedelta(microseconds=1)
    return times


def ours(trigger: Any, since: datetime, count: int = COUNT) -> list[datetime]:
    """The fire times of the trigger of Tidemill."""
    made = trigger.trigger(since)
    found = made.preview(count, since - timedelta(microseconds=1), ZoneInfo(trigger.timezone))
    return [at.astimezone(UTC) for at in found]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("fields", CRONS, ids=str)
def test_a_cron_trigger_fires_when_that_of_apscheduler_does(fields: dict[str, Any], zone: str) -> None:
    expected = theirs(TheirCron(timezone=zone, **fields), START)
    assert len(expected) == COUNT
    given = ours(CronTrigger(timezone=zone, **fields), START)
    assert before_change(given, zone) == before_change(expected, zone)


def before_change(times: list[datetime], zone: str) -> list[datetime]:
    """The times before the next clock change of the zone: APScheduler skips some fires after one."""
    changes = zone in ("Europe/Berlin", "America/New_York")
    return [at for at in times if not changes or at < datetime(2026, 10, 24, tzinfo=UTC)]


def test_a_cron_trigger_keeps_its_local_time_when_the_clocks_change() -> None:
    made = CronTrigger(hour=8, timezone="Europe/Berlin")
    hours = {at.astimezone(ZoneInfo("Europe/Berlin")).hour for at in ours(made, START, 400)}
    assert hours == {8}


@pytest.mark.parametrize("line", ["30 2 * * *", "*/10 8-18 * * mon-fri", "0 0 1 * *", "5 4 * * 0"])
def test_a_line_of_crontab_is_read_as_by_apscheduler(line: str) -> None:
    assert ours(CronTrigger.from_crontab(line), START) == theirs(
        TheirCron.from_crontab(line, timezone="UTC"), START
    )
    with pytest.raises(ValueError, match="expected 5"):
        CronTrigger.from_crontab("* * *")


@pytest.mark.parametrize(
    "fields",
    [
        {"minutes": 5},
        {"hours": 1, "minutes": 30},
        {"days": 1, "start_date": "2026-04-01 10:00:00"},
        {"weeks": 2, "start_date": "2026-04-05 08:00:00"},
        {"seconds": 45, "start_date": datetime(2026, 4, 1, 12, tzinfo=UTC)},
    ],
    ids=str,
)
def test_an_interval_fires_when_that_of_apscheduler_does(fields: dict[str, Any]) -> None:
    given = {"start_date": START + IntervalTrigger(**fields).interval, **fields}
    expected = theirs(TheirInterval(timezone="UTC", **given), START)
    assert ours(IntervalTrigger(timezone="UTC", **fields), START) == expected


def test_a_date_fires_once_as_in_apscheduler() -> None:
    for when in ("2026-04-05 08:00:00", datetime(2026, 4, 5, 8, tzinfo=UTC)):
        expected = theirs(TheirDate(when, timezone="Europe/Berlin"), START)
        assert len(expected) == 1
        assert ours(DateTrigger(when, timezone="Europe/Berlin"), START) == expected


def test_triggers_that_would_fire_at_other_times_are_refused() -> None:
    for wrong in (
        {"day": 1, "day_of_week": "mon"},
        {"week": 2},
        {"year": 2027},
        {"hour": 2, "jitter": 5},
        {"hour": 2, "end_date": "2027-01-01"},
        {"day_of_week": "someday"},
        {},
    ):
        with pytest.raises(BadSchedule):
            CronTrigger(**wrong)


calls: list[Any] = []


def tick(word: str = "tick", at: datetime | None = None) -> None:
    """Note a call."""
    calls.append((word, at))


@pytest.fixture
def app() -> Iterator[App]:
    calls.clear()
    with App("memory://", clock=ManualClock(START)) as app:
        yield app


def _stored(app: App) -> BackgroundScheduler:
    """A scheduler whose jobs are stored, and whose worker the test plays."""
    scheduler = BackgroundScheduler(app=app, timezone="Europe/Berlin")
    scheduler.add_job(tick, "cron", hour=2, args=["nightly", START], id="nightly")
    scheduler.add_job("tests.contrib.test_apscheduler:tick", "interval", minutes=10)
    for put in scheduler._waiting.values():
        put()
    scheduler._waiting.clear()
    return scheduler


def test_jobs_run_at_their_times_with_their_arguments(app: App) -> None:
    scheduler = _stored(app)
    app.testing().run_until_idle("24h")
    assert calls.count(("nightly", START)) == 1
    assert 143 <= calls.count(("tick", None)) <= 144
    job = scheduler.get_job("nightly")
    assert job is not None
    assert str(job.next_run_time) == "2026-04-04 02:00:00+02:00"
    assert {job.id for job in scheduler.get_jobs()} == {"nightly", "tests.contrib.test_apscheduler.tick"}


def test_jobs_are_paused_changed_and_removed(app: App) -> None:
    scheduler = _stored(app)
    scheduler.pause_job("nightly")
    job = scheduler.get_job("nightly")
    assert job is not None
    assert job.next_run_time is None
    job.resume()
    job.reschedule("cron", hour=5)
    job.modify(args=["changed", None], coalesce=False, misfire_grace_time=None)
    assert str(job.next_run_time) == "2026-04-03 05:00:00+02:00"
    app.testing().run_until_idle("24h")
    assert ("changed", None) in calls
    scheduler.remove_all_jobs()
    assert scheduler.get_jobs() == []
    with pytest.raises(JobLookupError):
        scheduler.remove_job("nightly")
    with pytest.raises(BadSettings, match="cannot be changed"):
        _stored(app).modify_job("nightly", executor="other")


def test_a_run_later_than_its_grace_is_missed(app: App) -> None:
    scheduler = BackgroundScheduler(app=app)
    for id, grace in (("strict", 30), ("patient", None)):
        scheduler.add_job(tick, "cron", minute=0, args=[id], id=id, misfire_grace_time=grace, coalesce=True)
    for put in scheduler._waiting.values():
        put()
    clock = app.clock
    assert isinstance(clock, ManualClock)
    clock.advance(timedelta(hours=5, minutes=10))
    app.testing().drain()
    assert calls == [("patient", None)]  # five missed runs became one


def test_an_id_is_taken_once(app: App) -> None:
    scheduler = _stored(app)
    with pytest.raises(ConflictingIdError):
        scheduler.add_job(tick, "cron", hour=3, id="nightly")
    scheduler.add_job(tick, "cron", hour=3, id="nightly", replace_existing=True)
    with pytest.raises(TypeError):
        scheduler.add_job(tick, "cron", hour=3, kwargs={"colour": "red"}, id="other")
    with pytest.raises(UsageError, match="has no name"):
        scheduler.add_job(lambda: None, "cron", hour=3)
    with pytest.raises(BadSettings, match="Tidemill keeps jobs in one store"):
        BackgroundScheduler(jobstores={"default": object()})


@pytest.mark.parametrize("kind", [BackgroundScheduler, AsyncIOScheduler])
def test_a_started_scheduler_runs_jobs_in_this_process(kind: Any) -> None:
    done = threading.Event()

    async def later() -> None:
        done.set()

    def now() -> None:
        done.set()

    scheduler = kind(store="memory://")
    scheduler.start()
    try:
        assert scheduler.running
        scheduler.add_job(later if kind is AsyncIOScheduler else now)
        assert done.wait(PATIENCE)
    finally:
        scheduler.shutdown()
    assert not scheduler.running
