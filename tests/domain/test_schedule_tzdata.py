"""Tests of schedules while the rules of a time zone change."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.domain.schedules.tzif import tzif, write_zone

from tidemill.domain.schedule_fires import JOINED, plan, plan_here
from tidemill.domain.schedule_rules import (
    All,
    Cron,
    Daily,
    Every,
    Misfire,
    Once,
    Trigger,
    counted_from,
    missed,
)
from tidemill.domain.schedules import Fired, ScheduleRow, Scope
from tidemill.domain.zones import zone_of

ZONE = "Test/Island"
SPRING = datetime(2026, 3, 29, 1, tzinfo=UTC)
FROM = datetime(2026, 6, 30, 22, tzinfo=UTC)
"""End of summer time on the island, decided at short notice: midnight of 1 July, permanently."""
HOUR = timedelta(hours=1)

Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    """Return a function that installs a version of the zone's data, as an update and a restart do."""
    european = "CET-1CEST,M3.5.0,M10.5.0/3"
    versions = {
        "old": tzif([], 1, european),
        "abolished": tzif([(SPRING, 2), (FROM, 1)], 1, "<+01>-1"),
        "permanent": tzif([(SPRING, 2), (FROM, 3)], 1, "<+03>-3"),
    }
    folders = {name: write_zone(tmp_path / name, ZONE, content) for name, content in versions.items()}

    def put(name: str) -> None:
        zoneinfo.reset_tzpath(to=[folders[name]])
        zoneinfo.ZoneInfo.clear_cache()

    yield put
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()


def fires_through(
    trigger: Trigger, install: Install, new: str, update_at: datetime, rule: Misfire = "once"
) -> list[datetime]:
    """Return the fires from 25 June to 12 July of a scheduler that runs every half hour, with an update in between."""
    install("old")
    now = datetime(2026, 6, 25, tzinfo=UTC)
    last, fired = now, list[datetime]()
    while now < datetime(2026, 7, 12, tzinfo=UTC):
        now += HOUR / 2
        if now == update_at:
            install(new)
        zone = zone_of(ZONE)
        base = counted_from(trigger, last, zone) if fired else last
        for fire in missed(trigger, base, now, rule, timezone=zone).fires:
            fired.append(fire.at)
            last = fire.at
    return fired


def shown(fires: list[datetime]) -> list[str]:
    """Return the fires as local times by the installed rules."""
    here = zone_of(ZONE)
    return [f"{fire.astimezone(here):%m-%d %H:%M}" for fire in fires]


def test_both_versions_agree_on_the_past_and_differ_on_the_future(install: Install) -> None:
    trigger = Daily("06:00")
    install("old")
    old = [trigger.next_after(at, ZONE) for at in (FROM - 40 * HOUR, FROM + 40 * HOUR)]
    install("abolished")
    new = [trigger.next_after(at, ZONE) for at in (FROM - 40 * HOUR, FROM + 40 * HOUR)]
    assert old[0] == new[0]
    assert old[1] is not None
    assert new[1] == old[1] + HOUR


@pytest.mark.parametrize("new", ["abolished", "permanent"])
def test_timely_rules_move_only_future_fires(install: Install, new: str) -> None:
    fired = fires_through(Daily("06:00"), install, new, FROM - 20 * HOUR)
    assert shown(fired) == [
        f"{day:%m-%d} 06:00"
        for day in (datetime(2026, 6, 25) + timedelta(days=n) for n in range(17))  # noqa: DTZ001
    ]


@pytest.mark.parametrize("rule", ["skip", "once", All()])
@pytest.mark.parametrize("hour", [2, 3, 4, 5, 12])
@pytest.mark.parametrize(("new", "wrong"), [("abolished", "05:00"), ("permanent", "07:00")])
def test_late_rules_fire_every_day_once(
    install: Install, new: str, wrong: str, hour: int, rule: Misfire
) -> None:
    fired = fires_through(Daily("06:00"), install, new, datetime(2026, 7, 4, hour, 30, tzinfo=UTC), rule)
    days = shown(fired)
    assert [day[:5] for day in days] == sorted({day[:5] for day in days})
    # By rules that arrive at 03:30 UTC it should have fired at 03:00: that is late, and "skip" makes no late fire.
    assert len(days) == (16 if (new, hour, rule) == ("permanent", 3, "skip") else 17)
    assert {day[6:] for day in days} == {"06:00", wrong}
    assert days[-1] == "07-11 06:00"


def test_rules_that_arrive_during_a_morning_do_not_fire_twice(
    install: Install,
) -> None:
    fired = fires_through(Daily("06:00"), install, "abolished", datetime(2026, 7, 4, 4, 30, tzinfo=UTC))
    assert shown(fired)[8:11] == ["07-03 05:00", "07-04 05:00", "07-05 06:00"]


def test_real_time_triggers_are_not_affected_by_an_update(install: Install) -> None:
    for trigger in (Every(HOUR), Cron("0 * * * *")):
        fired = fires_through(trigger, install, "abolished", datetime(2026, 7, 4, 4, 30, tzinfo=UTC))
        assert {later - earlier for earlier, later in pairwise(fired)} == {HOUR}


def test_counting_continues_from_a_valid_fire() -> None:
    six = datetime(2026, 6, 25, 6, tzinfo=UTC)
    assert counted_from(Daily("06:00"), six) == six
    assert counted_from(Daily("06:00,07:00"), six) == six
    assert counted_from(Once(six), six + HOUR) == six + HOUR
    assert counted_from(Every(HOUR), six + HOUR / 2) == six + HOUR / 2


def test_an_invalid_fire_counts_as_its_nearest_neighbour() -> None:
    six = datetime(2026, 6, 25, 6, tzinfo=UTC)
    assert counted_from(Daily("06:00"), six - HOUR) == six
    assert counted_from(Daily("06:00"), six + HOUR) == six + HOUR
    assert counted_from(Daily("06:00"), six - 4 * HOUR) == six - 4 * HOUR
    assert counted_from(Daily("04:30,06:00"), six - HOUR) == six - HOUR  # 04:30 is nearer


def test_late_rules_create_no_second_job_for_a_morning(install: Install) -> None:
    install("abolished")
    last = datetime(2026, 7, 4, 4, tzinfo=UTC)  # 06:00 by the old rules
    schedule = ScheduleRow(
        UUID(int=1), "k", "t", Daily("06:00").to_data(), timezone=ZONE, revision=1,
        since_at=last - timedelta(days=9), last_fire_at=last, next_fire_at=last,
    )  # fmt: skip
    same_day, next_day = last + timedelta(hours=8), last + timedelta(days=1, hours=8)
    assert plan(schedule, None, [], same_day, {}, uuid4).jobs == ()
    assert len(plan(schedule, None, [], next_day, {}, uuid4).jobs) == 1


def test_late_rules_create_no_second_job_on_a_node(install: Install) -> None:
    install("abolished")
    last = datetime(2026, 7, 4, 4, tzinfo=UTC)  # 06:00 by the old rules
    schedule = ScheduleRow(
        UUID(int=1), "k", "t", Daily("06:00").to_data(), timezone=ZONE, revision=1, scope=Scope.INSTANCE,
        since_at=last - timedelta(days=9),
    )  # fmt: skip

    def made(fire: Fired, hours: int) -> int:
        now = last + timedelta(hours=hours)
        return len(plan_here(schedule, None, [], fire, now, {}, uuid4, node="a")[0].jobs)

    fired = Fired(schedule.id, last, "a", job_id=UUID(int=2))
    assert (made(fired, 8), made(fired, 32)) == (0, 1)
    joined = fired._replace(job_id=None, reason=JOINED)
    # A node that only joined then has not had that morning's fire.
    assert made(joined, 8) == 1
