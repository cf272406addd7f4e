"""Tests of missed and overlapping fires, and of schedule validation."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.clock import SystemClock
from tidemill.domain.calendar import Exclude
from tidemill.domain.schedule_rules import (
    MOST_ON_TIME,
    All,
    Catchup,
    Cron,
    Daily,
    Every,
    Fire,
    Manual,
    Misfire,
    Monthly,
    Once,
    Overlap,
    Overlapping,
    Trigger,
    Weekly,
    first_fire,
    misfire_from_data,
    misfire_to_data,
    missed,
    overlapping,
)
from tidemill.errors import BadSchedule

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)

rules = st.one_of(st.just("skip"), st.just("once"), st.builds(All, st.integers(1, 20)))
graces = st.sampled_from([timedelta(0), timedelta(seconds=60), timedelta(minutes=17), timedelta(hours=5)])
triggers: st.SearchStrategy[Trigger] = st.one_of(
    st.builds(Every, st.timedeltas(timedelta(minutes=3), timedelta(hours=30))),
    st.sampled_from(["*/5 * * * *", "30 2 * * *", "0 */4 * * 1-5", "7,9 1,2,3 * * *"]).map(Cron),
    st.sampled_from(["06:00", "02:30,03:00"]).map(Daily),
    st.sampled_from([Manual(), Once(NOON), Weekly("sat", "09:00")]),
)


@settings(max_examples=300)
@given(
    triggers,
    st.timedeltas(timedelta(days=-1), timedelta(days=4)),
    st.timedeltas(timedelta(days=-3), timedelta(days=3)),
    rules,
    graces,
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
)
def test_every_due_fire_is_made_or_skipped_exactly_once(
    trigger: Trigger, gone: timedelta, shift: timedelta, rule: Misfire, grace: timedelta, zone: str
) -> None:
    now = NOON + shift
    last = now - gone
    due = trigger.between(last, now, zone) if now > last else []
    late = [at for at in due if now - at > grace]
    on_time = [at for at in due if now - at <= grace]
    if isinstance(rule, All):
        made_up = late[-rule.limit :]
    else:
        made_up = late[-1:] if rule == "once" and not on_time else []

    catchup = missed(trigger, last, now, rule, grace, timezone=zone)

    expected = (*(Fire(at, True) for at in made_up), *(Fire(at, False) for at in on_time))
    assert catchup.fires == expected
    skipped = [at for at in due if at not in {fire.at for fire in catchup.fires}]
    assert catchup.skipped == len(skipped)
    assert catchup.skipped_from_at == (skipped[0] if skipped else None)
    assert catchup.skipped_until_at == (skipped[-1] if skipped else None)
    assert not skipped or not catchup.fires or skipped[-1] < catchup.fires[0].at


@given(triggers, st.timedeltas(timedelta(0), timedelta(days=4)), rules)
def test_no_fire_is_due_twice(trigger: Trigger, gone: timedelta, rule: Misfire) -> None:
    first = missed(trigger, NOON - gone, NOON, rule)
    last = max((fire.at for fire in first.fires), default=NOON)
    again = missed(trigger, last, NOON, rule)
    assert again.fires == ()
    assert again.skipped == 0


@pytest.mark.parametrize(
    ("rule", "hours", "skipped"),
    [("skip", [], 3), ("once", [11], 2), (All(2), [10, 11], 1), (All(), [9, 10, 11], 0)],
)
def test_a_downtime_of_three_hours_under_each_rule(rule: Misfire, hours: list[int], skipped: int) -> None:
    now = NOON - timedelta(minutes=30)
    catchup = missed(Cron("0 * * * *"), NOON - 4 * HOUR, now, rule)
    assert [(fire.at.hour, fire.late) for fire in catchup.fires] == [(hour, True) for hour in hours]
    assert catchup.skipped == skipped


def test_a_fire_on_time_replaces_missed_ones() -> None:
    catchup = missed(Cron("0 * * * *"), NOON - 4 * HOUR, NOON + timedelta(seconds=30), "once")
    assert catchup.fires == (Fire(NOON, late=False),)
    assert catchup.skipped == 3


@pytest.mark.parametrize("trigger", [Cron("* * * * * *"), Every(timedelta(seconds=1))])
@pytest.mark.parametrize("rule", ["skip", "once", All()])
@pytest.mark.parametrize("exclude", [None, "sat,sun"])
def test_ninety_days_of_seconds_are_computed_quickly(
    trigger: Trigger, rule: Misfire, exclude: str | None
) -> None:
    clock = SystemClock()
    before = clock.monotonic()
    last = NOON - timedelta(days=90)
    catchup = missed(trigger, last, NOON, rule, timedelta(0), timezone="Europe/Berlin", exclude=exclude)
    assert clock.monotonic() - before < 1.0
    assert len(catchup.fires) <= 101
    if exclude is None:
        assert catchup.skipped + len(catchup.fires) == 90 * 86_400
    else:
        # 2025-12-28 was a Sunday and 2026-03-28 a Saturday: thirteen whole weeks of five local days lie in between.
        assert catchup.skipped + len(catchup.fires) == 13 * 5 * 86_400


def test_fires_on_time_are_bounded() -> None:
    catchup = missed(Cron("* * * * * *"), NOON - timedelta(days=2), NOON, All(5), timedelta(days=1))
    assert len(catchup.fires) == MOST_ON_TIME
    assert catchup.fires[-1] == Fire(NOON, late=False)
    assert catchup.skipped == 2 * 86_400 - MOST_ON_TIME


def test_a_clock_step_back_makes_no_fire_due() -> None:
    assert missed(Cron("* * * * *"), NOON, NOON - HOUR) == Catchup()


def test_a_negative_grace_is_refused() -> None:
    with pytest.raises(BadSchedule, match="grace"):
        missed(Daily("06:00"), NOON - HOUR, NOON, "once", timedelta(seconds=-1))


@pytest.mark.parametrize("rule", ["skip", "allow", "queue", "cancel"])
def test_every_overlap_rule_fires_without_an_active_job(rule: Overlap) -> None:
    assert overlapping(rule, 0) == Overlapping(fires=True)


@pytest.mark.parametrize(
    ("rule", "waiting", "fires", "waits", "cancels"),
    [
        ("skip", 0, False, False, False),
        ("allow", 0, True, False, False),
        ("queue", 0, True, True, False),
        ("queue", 1, False, False, False),
        ("cancel", 0, True, False, True),
    ],
)
def test_each_overlap_rule_has_its_effect_and_its_reason(
    rule: Overlap, waiting: int, fires: bool, waits: bool, cancels: bool
) -> None:
    decision = overlapping(rule, 1, waiting)
    assert (decision.fires, decision.waits, decision.cancels) == (fires, waits, cancels)
    assert bool(decision.reason) == (rule != "allow")


@given(rules)
def test_a_misfire_rule_round_trips(rule: Misfire) -> None:
    assert misfire_from_data(json.loads(json.dumps(misfire_to_data(rule)))) == rule


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: All(0), "misfire"),
        (lambda: All(True), "misfire"),
        (lambda: missed(Daily("06:00"), NOON, NOON, "twice"), "misfire"),  # type: ignore[arg-type]
        (lambda: misfire_from_data({"all": "many"}), "misfire"),
        (lambda: misfire_from_data({"each": 5}), "misfire"),
        (lambda: overlapping("wait", 1), "overlap"),  # type: ignore[arg-type]
        (lambda: first_fire(Once(NOON), NOON), "trigger"),
        (lambda: first_fire(Weekly("mon", "06:00"), NOON, exclude="mon"), "trigger"),
        (lambda: first_fire(Every(timedelta(days=1), NOON + timedelta(days=3000)), NOON), "trigger"),
        (lambda: first_fire(Daily("06:00"), NOON, "Mars/Base"), "timezone"),
        (lambda: first_fire(Every(HOUR), NOON, exclude=Exclude(weekdays="sun", roll="next")), "exclude"),
    ],
)
def test_an_impossible_schedule_is_refused(make: Any, field: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        make()
    assert caught.value.details["field"] == field


def test_the_first_fire_of_a_schedule() -> None:
    assert first_fire(Daily("06:00"), NOON) == NOON + timedelta(hours=18)
    assert first_fire(Manual(), NOON) is None
    assert first_fire(Monthly(1), NOON, exclude=Exclude(dates={NOON.date()})) == datetime(
        2026, 4, 1, tzinfo=UTC
    )
