"""Tests of ``app.schedules``: schedules created and changed at run time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from tests.client.schedules_kit import HOUR, MIDNIGHT, TO, app_on, on_each_store

from tidemill import (
    All,
    App,
    BusinessCalendar,
    Cron,
    Daily,
    Every,
    Exclude,
    Manual,
    MonthlyBusinessDay,
    Weekly,
)
from tidemill.client.schedules.api import Schedules
from tidemill.domain.schedules import Source
from tidemill.errors import (
    BadArguments,
    BadSchedule,
    ScheduleExists,
    ScheduleNotFound,
)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def any_app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    with on_each_store(request, tmp_path) as app:
        yield app


@pytest.fixture
def app() -> Iterator[App]:
    with app_on() as app:
        yield app


# Creating and changing ---------------------------------------------------------------------------------------------------


def test_a_schedule_is_read_back_as_it_was_added(any_app: App) -> None:
    calendar = BusinessCalendar(holidays={date(2026, 12, 25)}, name="ours")
    made = any_app.schedules.add(
        "send",
        MonthlyBusinessDay(10, "18:00", roll="previous"),
        "report",
        args={"to": "ann", "size": 2},
        timezone="Europe/Berlin",
        misfire=All(limit=5),
        overlap="queue",
        calendar=calendar,
        exclude=Exclude(weekdays="fri", roll="next"),
        tenant="acme",
        queue="slow",
        timeout=HOUR,
        tags=["monthly"],
    )
    found = any_app.schedules.get("report", tenant="acme")
    assert found == made
    assert found.trigger == MonthlyBusinessDay(10, "18:00", roll="previous")
    assert (found.timezone, found.misfire, found.overlap) == ("Europe/Berlin", All(limit=5), "queue")
    assert (found.calendar, found.exclude) == (calendar, Exclude(weekdays="fri", roll="next"))
    assert (found.args, found.tenant, found.source) == ({"to": "ann", "size": 2}, "acme", Source.STORED)
    assert found.options == {"queue": "slow", "timeout": 3600.0, "tags": ["monthly"]}
    assert (found.enabled, found.broken, found.note, found.scope) == (True, None, None, "cluster")
    assert found.next_fire_at is not None
    assert found.next_fire_at.tzinfo is not None
    assert "report" in repr(found)
    assert any_app.schedules.get(found.id, tenant="acme") == found
    assert any_app.schedules.get(str(found.id), tenant="acme") == found


def test_a_string_trigger_is_a_cron_expression(app: App) -> None:
    assert app.schedules.add("send", "0 2 * * *", "nightly", args=TO).trigger == Cron("0 2 * * *")


def test_a_key_is_unique_within_a_tenant(any_app: App) -> None:
    any_app.schedules.add("send", Daily("06:00"), "same", args=TO)
    any_app.schedules.add("send", Daily("06:00"), "same", args=TO, tenant="acme")
    with pytest.raises(ScheduleExists, match="tenant default has a schedule 'same' already"):
        any_app.schedules.add("send", Daily("07:00"), "same", args=TO)
    with pytest.raises(BadSchedule, match="2 tenants have a schedule 'same'"):
        any_app.schedules.get("same", tenant="*")
    with any_app.tenant("acme"):
        assert any_app.schedules.get("same").tenant == "acme"
        assert [each.tenant for each in any_app.schedules.list()] == ["acme"]
    assert len(any_app.schedules.list(tenant="*")) == 2


def test_an_update_changes_the_given_fields_and_counts_from_now(any_app: App) -> None:
    any_app.schedules.add(
        "send", Daily("06:00"), "d", args={"to": "ann", "size": 3}, queue="slow", priority=1
    )
    changed = any_app.schedules.update("d", trigger=Weekly("mon", "09:00"), priority=2)
    assert (changed.trigger, changed.args) == (Weekly("mon", "09:00"), {"to": "ann", "size": 3})
    assert changed.options == {"queue": "slow", "priority": 2}
    assert changed.next_fire_at == datetime(2026, 1, 5, 9, tzinfo=UTC)
    assert changed.row.revision == 2
    assert any_app.schedules.update("d", args={"to": "bob"}).args == {"to": "bob"}
    with pytest.raises(BadSchedule, match="timezone"):
        any_app.schedules.update("d", timezone="Mars/Base")
    with pytest.raises(BadArguments, match="size"):
        any_app.schedules.update("d", args={"to": "bob", "size": "many"})
    assert any_app.schedules.get("d").row.revision == 3


def test_one_of_two_concurrent_updates_of_a_schedule_is_refused(app: App) -> None:
    facts = app.schedules.add("send", Daily("06:00"), "d", args=TO).row
    app.store.put_schedules([replace(facts, timezone="Europe/Berlin")])
    real = app.schedules._row
    app.schedules._row = lambda key, tenant: facts  # type: ignore[method-assign]
    with pytest.raises(ScheduleExists, match="was changed in the meantime"):
        app.schedules.update("d", overlap="allow")
    app.schedules._row = real  # type: ignore[method-assign]
    assert app.schedules.get("d").overlap == "skip"


def test_a_pause_lasts_until_it_is_resumed(any_app: App) -> None:
    any_app.schedules.add("send", Every(HOUR), "h", args=TO)
    paused = any_app.schedules.pause("h", reason="too loud")
    assert (paused.enabled, paused.note, paused.next_fire_at) == (False, "too loud", None)
    assert [each.key for each in any_app.schedules.list(enabled=True)] == []
    resumed = any_app.schedules.resume("h")
    assert (resumed.enabled, resumed.note) == (True, None)


def test_a_removed_schedule_is_not_found(any_app: App) -> None:
    any_app.schedules.add("send", Every(HOUR), "h", args=TO)
    any_app.schedules.remove("h")
    for verb in (
        any_app.schedules.get,
        any_app.schedules.remove,
        any_app.schedules.pause,
        any_app.schedules.trigger,
    ):
        with pytest.raises(ScheduleNotFound, match="there is no schedule 'h'"):
            verb("h")
    with pytest.raises(ScheduleNotFound):
        any_app.schedules.get(uuid4())


def test_a_preview_shows_local_times(app: App) -> None:
    app.schedules.add("send", Daily("06:00"), "d", args=TO, timezone="Europe/Berlin")
    first, second = app.schedules.preview("d", 2, after=datetime(2026, 3, 28, tzinfo=UTC))
    assert (first.isoformat(), second.isoformat()) == (
        "2026-03-28T06:00:00+01:00",
        "2026-03-29T06:00:00+02:00",
    )


def test_a_trigger_can_be_previewed_without_a_start_time() -> None:
    assert len(Daily("06:00").preview(3)) == 3


# Manual triggers and backfills -------------------------------------------------------------------------------------------


def test_a_manual_trigger_creates_a_job_now_and_records_the_fire(any_app: App) -> None:
    schedule = any_app.schedules.add("send", Daily("06:00"), "d", args=TO, queue="slow")
    any_app.schedules.pause("d")
    job = any_app.schedules.trigger("d")
    again = any_app.schedules.trigger("d")
    assert job.refresh().queue == "slow"
    assert job.row.details.schedule_id == schedule.id
    fires = any_app.schedules.fires("d")
    assert {fire.job_id for fire in fires} == {job.id, again.id}
    assert {fire.reason for fire in fires} == {"by hand"}
    assert any_app.testing().drain().completed == 2


def test_a_backfill_creates_the_missing_fires_of_a_range(any_app: App) -> None:
    any_app.schedules.add("send", Every(HOUR), "h", args=TO, overlap="allow")
    testing = any_app.testing()
    testing.advance(6 * HOUR)
    testing.drain()  # fires 06:00 and records 05:00 as skipped, together with the earlier ones
    start, end = MIDNIGHT, MIDNIGHT + 6 * HOUR
    planned = any_app.schedules.backfill("h", start, end, dry_run=True)
    assert [at.hour for at in planned.fires] == [0, 1, 2, 3, 4]
    assert (planned.existing, planned.more) == (2, False)
    assert testing.drain().processed == 0
    few = any_app.schedules.backfill("h", start, end, limit=2)
    assert ([at.hour for at in few.fires], few.more) == ([0, 1], True)
    rest = any_app.schedules.backfill("h", start, end)
    assert ([at.hour for at in rest.fires], rest.existing) == ([2, 3, 4], 4)
    assert any_app.schedules.backfill("h", start, end).fires == ()
    assert testing.drain().completed == 5
    jobs = [job.row for job in any_app.jobs.stream()]
    assert len({job.details.fire_at for job in jobs}) == 6


def test_an_invalid_backfill_range_is_refused(app: App) -> None:
    app.schedules.add("send", Every(HOUR), "h", args=TO)
    app.schedules.add("send", Every(HOUR), "each", args=TO, scope="instance")
    for start, end, key, why in (
        (MIDNIGHT, MIDNIGHT + HOUR, "h", "has not passed yet"),
        (MIDNIGHT, MIDNIGHT - HOUR, "h", "is before"),
        (datetime(2025, 1, 1), MIDNIGHT, "h", "has no time zone"),  # noqa: DTZ001
        (MIDNIGHT - HOUR, MIDNIGHT, "each", "every node"),
    ):
        with pytest.raises(BadSchedule, match=why):
            app.schedules.backfill(key, start, end)


def test_a_schedule_per_node_cannot_be_triggered_without_live_nodes(app: App) -> None:
    app.schedules.add("send", Manual(), "each", args=TO, scope="instance")
    with pytest.raises(BadSchedule, match="none is alive"):
        app.schedules.trigger("each")


# Sync and async ----------------------------------------------------------------------------------------------------------


def test_every_method_has_an_async_variant_that_keeps_the_tenant(any_app: App) -> None:
    verbs = [
        name for name, _ in inspect.getmembers(Schedules, inspect.isfunction) if not name.startswith("_")
    ]
    for name in verbs:
        if name != "value" and not inspect.iscoroutinefunction(getattr(Schedules, name)):
            assert inspect.iscoroutinefunction(getattr(Schedules, f"a{name}")), name

    async def story() -> None:
        with any_app.tenant("acme"):
            made = await any_app.schedules.aadd("send", Every(HOUR), "h", args=TO)
            assert made.tenant == "acme"
            assert await any_app.schedules.aget("h") == made
            assert [each.key for each in await any_app.schedules.alist()] == ["h"]
            assert (await any_app.schedules.aupdate("h", overlap="allow")).overlap == "allow"
            assert len(await any_app.schedules.apreview("h", 3)) == 3
            assert not (await any_app.schedules.apause("h")).enabled
            assert (await any_app.schedules.aresume("h")).enabled
            job = await any_app.schedules.atrigger("h")
            assert (await any_app.schedules.afires("h"))[0].job_id == job.id
            done = await any_app.schedules.abackfill("h", MIDNIGHT - HOUR, MIDNIGHT)
            assert len(done.fires) == 2
            await any_app.schedules.aremove("h")
            assert await any_app.schedules.alist() == []

    asyncio.run(story())
