"""Property tests of all triggers against a slow oracle."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.domain.trigger_oracle import CronOracle, Moved, brute

from tidemill.domain.calendar import BusinessCalendar, Exclude
from tidemill.domain.schedule_rules import (
    Cron,
    Daily,
    Every,
    Manual,
    Monthly,
    MonthlyBusinessDay,
    Once,
    Trigger,
    Weekly,
    trigger_from_data,
)
from tidemill.errors import BadSchedule

ZONES = [
    "UTC", "Europe/Berlin", "Europe/London", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kolkata",
    "America/Sao_Paulo", "Pacific/Apia", "Asia/Gaza", "America/Havana", "Asia/Tehran", "Antarctica/Troll", "Europe/Dublin",
]  # fmt: skip
WEEK = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]

zones = st.sampled_from(ZONES).map(ZoneInfo)
starts = st.datetimes(datetime(1990, 1, 1), datetime(2036, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def change_days(zone: str) -> list[datetime]:
    """Return the days before clock changes of a zone, found by sampling every day."""
    here = ZoneInfo(zone)
    days = [datetime(2005, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(365 * 20)]
    return [a for a, b in pairwise(days) if a.astimezone(here).utcoffset() != b.astimezone(here).utcoffset()]


CHANGES = {zone: days for zone in ZONES if (days := change_days(zone))}


@st.composite
def windows(draw: st.DrawFn, longest: int = 20) -> tuple[ZoneInfo, datetime, datetime]:
    """Draw a zone and some days in it, mostly around a clock change."""
    if draw(st.integers(0, 3)):
        zone = draw(st.sampled_from(sorted(CHANGES)))
        start = draw(st.sampled_from(CHANGES[zone])) - timedelta(minutes=draw(st.integers(-1500, 2000)))
    else:
        zone, start = draw(st.sampled_from(ZONES)), draw(starts)
    return ZoneInfo(zone), start, start + timedelta(hours=draw(st.integers(1, longest * 24)))


def field(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    stretch = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    step = st.tuples(st.one_of(st.just("*"), stretch, number.map(str)), st.integers(1, most)).map(
        lambda parts: f"{parts[0]}/{parts[1]}"
    )
    return st.one_of(
        st.just("*"),
        number.map(str),
        stretch,
        step,
        st.lists(number, min_size=2, max_size=3).map(lambda n: ",".join(map(str, n))),
    )


month_days = st.one_of(
    st.just("*"), field(1, 31), st.sampled_from(["L", "LW", "15W", "1W", "31W", "1,15W", "L,10-12", "30W,5"])
)
weekdays = st.one_of(
    st.just("*"), field(0, 7), st.sampled_from(["MON#2", "5L", "FRIL", "MON-FRI", "SUN", "1#1,3#5", "TUE,4L"])
)
expressions = st.tuples(
    field(0, 59), field(0, 23), month_days, st.one_of(st.just("*"), field(1, 12)), weekdays
).map(" ".join)

clock_times = st.lists(
    st.tuples(st.integers(0, 3) | st.integers(0, 23), st.integers(0, 59)), min_size=1, max_size=3
)
holidays = st.sets(st.dates(date(2005, 1, 1), date(2025, 1, 1)), max_size=5)
calendars = st.builds(BusinessCalendar, st.sampled_from(["sat,sun", "fri,sat", "sun", ""]), holidays)
excludes = st.builds(
    Exclude,
    holidays,
    st.sampled_from(["", "sat,sun", "mon", "tue-sun"]),
    st.none() | calendars,
    st.sampled_from(["none", "next", "previous"]),
)
skips = st.builds(Exclude, holidays, st.sampled_from(["", "sat,sun", "tue-sun"]), st.none() | calendars)


def text(times: list[tuple[int, int]]) -> str:
    return ",".join(f"{hour:02d}:{minute:02d}" for hour, minute in times)


def cron(expression: str) -> Cron:
    try:
        return Cron(expression)
    except BadSchedule:
        assume(False)
        raise


walls: st.SearchStrategy[Trigger] = st.one_of(
    expressions.map(cron),
    clock_times.map(text).map(Daily),
    st.builds(Weekly, st.sets(st.sampled_from(WEEK), min_size=1), clock_times.map(text)),
    st.builds(Monthly, st.integers(-31, 31).filter(bool), clock_times.map(text)),
    st.builds(
        MonthlyBusinessDay,
        st.integers(-23, 23).filter(bool),
        clock_times.map(text),
        st.sampled_from(["none", "next", "previous"]),
    ),
)
triggers = st.one_of(
    walls,
    st.builds(Every, st.timedeltas(timedelta(seconds=1), timedelta(days=9)), st.none() | starts),
    st.builds(Once, starts),
    st.just(Manual()),
)


def moving(exclude: Exclude | None) -> Moved:
    """Return the oracle's own reading of an exclusion, which walks day by day."""

    def out(day: date) -> bool:
        assert exclude is not None
        rest = exclude.calendar
        names = str(exclude.weekdays).split(",")
        resting = rest is not None and (
            WEEK[day.weekday()] in str(rest.weekend).split(",") or day in rest.holidays
        )
        return WEEK[day.weekday()] in names or day in exclude.dates or resting

    def moved(day: date) -> date | None:
        if exclude is None or not out(day):
            return day
        step = {"none": 0, "next": 1, "previous": -1}[exclude.roll]
        for distance in range(1, 60 if step else 1):
            if not out(there := day + timedelta(days=distance * step)):
                return there
        return None

    return moved


@settings(max_examples=250)
@given(expressions, windows(), st.none() | excludes)
def test_cron_matches_the_oracle(
    expression: str, window: tuple[ZoneInfo, datetime, datetime], exclude: Exclude | None
) -> None:
    zone, after, until = window
    trigger, oracle = cron(expression), CronOracle(expression)
    if len(oracle.hours) * len(oracle.minutes) > 40:
        until = min(until, after + timedelta(days=2))
    expected = oracle.fires(zone, after, until, moving(exclude))
    assert trigger.between(after, until, zone, exclude=exclude) == expected


@settings(max_examples=150)
@given(clock_times, st.sets(st.sampled_from(WEEK), min_size=1), windows(), st.none() | excludes)
def test_daily_and_weekly_triggers_match_the_oracle(
    times: list[tuple[int, int]],
    days: set[str],
    window: tuple[ZoneInfo, datetime, datetime],
    exclude: Exclude | None,
) -> None:
    zone, after, until = window
    weekly = brute(lambda day: WEEK[day.weekday()] in days, set(times), zone, after, until, moving(exclude))
    daily = brute(lambda _: True, set(times), zone, after, until, moving(exclude))
    assert Weekly(days, text(times)).between(after, until, zone, exclude=exclude) == weekly
    assert Daily(text(times)).between(after, until, zone, exclude=exclude) == daily


@settings(max_examples=100)
@given(clock_times, st.integers(-31, 31).filter(bool), windows(90))
def test_monthly_triggers_match_the_oracle(
    times: list[tuple[int, int]], n: int, window: tuple[ZoneInfo, datetime, datetime]
) -> None:
    zone, after, until = window

    def fits(day: date) -> bool:
        following = (day.replace(day=28) + timedelta(days=4)).replace(day=1)
        length = (following - timedelta(days=1)).day
        return day.day == (min(n, length) if n > 0 else max(length + 1 + n, 1))

    assert Monthly(n, text(times)).between(after, until, zone) == brute(fits, set(times), zone, after, until)


@settings(max_examples=150)
@given(triggers, zones, starts, st.none() | skips, st.none() | calendars)
def test_the_next_fire_is_the_first_one_after_an_instant(
    trigger: Trigger,
    zone: ZoneInfo,
    after: datetime,
    exclude: Exclude | None,
    calendar: BusinessCalendar | None,
) -> None:
    fire = trigger.next_after(after, zone, calendar, exclude)
    if fire is None:
        assert trigger.count_between(after, after + timedelta(days=400), zone, calendar, exclude) == 0
        return
    assert fire > after
    assert fire.utcoffset() == timedelta(0)
    just_before = fire - timedelta(microseconds=1)
    assert trigger.next_after(just_before, zone, calendar, exclude) == fire
    assert trigger.last_at_or_before(fire, zone, calendar, exclude) == fire
    last = trigger.last_at_or_before(just_before, zone, calendar, exclude)
    assert last is None or last <= after
    assert trigger.count_between(after, just_before, zone, calendar, exclude) == 0
    assert trigger.count_between(after, fire, zone, calendar, exclude) == 1


@settings(max_examples=150)
@given(triggers, windows(), st.none() | skips, st.none() | calendars, st.integers(0, 50))
def test_counts_and_both_listings_agree(
    trigger: Trigger,
    window: tuple[ZoneInfo, datetime, datetime],
    exclude: Exclude | None,
    calendar: BusinessCalendar | None,
    some: int,
) -> None:
    zone, after, until = window
    until = min(until, after + timedelta(days=3)) if isinstance(trigger, Cron) else until
    assume(trigger.count_between(after, until, zone, calendar, exclude) < 5000)
    everything = trigger.between(after, until, zone, calendar, exclude)
    assert everything == sorted(set(everything))
    assert all(after < fire <= until for fire in everything)
    assert trigger.count_between(after, until, zone, calendar, exclude) == len(everything)
    assert trigger.between(after, until, zone, calendar, exclude, limit=some) == everything[:some]
    newest = everything[len(everything) - min(some, len(everything)) :]
    assert trigger.between(after, until, zone, calendar, exclude, newest=some) == newest
    if exclude is not None and not isinstance(trigger, Manual):
        assert not any(
            exclude.covers(fire.astimezone(zone).date()) for fire in everything if not jumped(fire, zone)
        )


def jumped(fire: datetime, zone: ZoneInfo) -> bool:
    """Return whether clocks jumped ahead right before: a fire of the previous day may then happen on the next day."""
    before = (fire - timedelta(seconds=1)).astimezone(zone).utcoffset()
    after = fire.astimezone(zone).utcoffset()
    assert before is not None
    assert after is not None
    return after > before


@given(triggers)
def test_a_trigger_round_trips_as_json(trigger: Trigger) -> None:
    again = trigger_from_data(json.loads(json.dumps(trigger.to_data())))
    assert again == trigger
    assert hash(again) == hash(trigger)
    assert again.explain() == trigger.explain()


@given(triggers)
def test_every_trigger_has_a_one_line_explanation(trigger: Trigger) -> None:
    words = trigger.explain()
    assert words[0].isupper()
    assert "  " not in words
    assert words == words.strip()


@settings(max_examples=60)
@given(st.text("0123456789*/,-#LWSUNMOFRI? @", max_size=30))
def test_any_text_is_a_cron_expression_or_is_refused(given_text: str) -> None:
    refusal: BadSchedule | None = None
    first: datetime | None = None
    try:
        first = Cron(given_text).next_after(datetime(2026, 1, 1, tzinfo=UTC))
    except BadSchedule as wrong:
        refusal = wrong
    assert first is not None if refusal is None else refusal.details["field"]
