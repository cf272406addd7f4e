"""Schedules to compare, each as a tested trigger and as a rule of the oracle.

The first ones are chosen because implementations got them wrong. The others are drawn from a seed, with times that often fall
into the hours at which clocks change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from random import Random

from tests.domain.schedules.rules import (
    WEEK,
    Outs,
    Rest,
    StepRule,
    WallRule,
    business_day,
    cron_rule,
    fitting,
    month_day,
)

from tidemill.domain.calendar import BusinessCalendar, Exclude, Roll
from tidemill.domain.schedule_rules import Cron, Daily, Every, Monthly, MonthlyBusinessDay, Trigger, Weekly
from tidemill.errors import BadSchedule

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_YEARS = range(1985, 2045)
_ROLLS: tuple[Roll, ...] = ("none", "next", "previous")

CHOSEN = (
    "0 0 * * *", "30 0 * * *", "0 1 * * *", "30 1 * * *", "0 2 * * *", "15 2 * * *", "30 2 * * *", "45 2 * * *", "0 3 * * *",
    "30 3 * * *", "45 3 * * *", "0 23 * * *", "30 23 * * *", "59 23 * * *", "1 0 * * *", "15 0,1,2,3 * * *",
    "0,30 2 * * *", "0 2,3 * * *", "0 * * * *", "30 * * * *", "*/30 2 * * *", "0 */2 * * *", "*/5 * * * *", "* * * * *",
    "* * * * * *", "*/20 30 * * * *", "15 30 2 * * *", "0-59 0-59 2 * * *", "59 59 23 31 12 *", "0 0 1 1 *",
    "30 2 29 2 *", "30 2 31 * *", "30 2 L * *", "30 2 LW * *", "0 0 15W * *", "30 2 1W,31W * *", "0 2 13 * FRI",
    "30 2 * * SUN", "0 0 * * 7", "30 0 * * SAT-SUN", "0 2 * * SUNL", "0 2 * * 0#2", "0 1 * * MON#1,FRI#5", "0 2 1-7 * */2",
    "0 0 */2 * *", "30 2 * MAR,OCT SUN", "@daily", "@hourly", "@weekly", "@monthly", "@yearly", "10/20 1/6 * * *",
)  # fmt: skip

_SECONDS = ("0", "30", "15,45", "59", "10-12", "5-5/2", "*/30")
_MINUTES = ("0", "0", "30", "30", "15", "45", "59", "1", "0,30", "*/20", "5-20/5", "40/10")
_HOURS = ("0", "1", "2", "2", "3", "23", "*", "1,2,3", "*/6", "0-4", "1-23/6", "2-2", "3/10", "22-23")
_IN_MONTH = (
    "*", "*", "*", "*", "1", "15", "28-31", "31", "L", "LW", "15W", "1W", "31W", "*/2", "1-7", "13", "L,15", "1W,20", "10/7",
    "*/10", "LW,3W", "8-14",
)  # fmt: skip
_MONTH = ("*", "*", "*", "*", "*", "JAN", "mar,oct", "3-4,9-11", "*/3", "JUN-AUG", "10", "2/5", "oct-dec")
_IN_WEEK = (
    "*", "*", "*", "*", "MON", "sun", "MON-FRI", "SAT-SUN", "FRIL", "0L", "MON#2", "7#1", "0", "7", "SUN#1,WED", "*/2",
    "1,3,5", "5-7", "SUN-TUE", "6#4", "sunL,MON#1", "2-6/2",
)  # fmt: skip
_AT = (
    "00:00", "00:00", "00:01", "00:15", "00:30", "00:59:59", "01:00", "01:30", "02:00", "02:15", "02:30", "02:30", "02:45", "03:00",
    "03:30", "03:45", "06:00", "12:00", "22:30", "23:00", "23:30", "23:59:59",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Case:
    """One schedule, as a trigger and as a rule."""

    label: str
    trigger: Trigger
    rule: WallRule | StepRule
    calendar: BusinessCalendar | None = None
    exclude: Exclude | None = None


def cases(count: int, seed: int) -> list[Case]:
    """Return this many schedules, the same ones for the same seed."""
    random = Random(seed)
    drawn = [_cron(expression, None) for expression in CHOSEN[: max(count // 3, 1)]]
    makers: list[tuple[Callable[[Random], Case], int]] = [
        (_any_cron, 10),
        (_daily, 3),
        (_weekly, 3),
        (_monthly, 3),
        (_business, 4),
        (_every, 3),
    ]
    while len(drawn) < count:
        make = random.choices([maker for maker, _ in makers], [weight for _, weight in makers])[0]
        drawn.append(make(random))
    return drawn


def _any_cron(random: Random) -> Case:
    while True:
        parts = [_MINUTES, _HOURS, _IN_MONTH, _MONTH, _IN_WEEK]
        if random.random() < 0.3:
            parts.insert(0, _SECONDS)
        expression = " ".join(random.choice(part) for part in parts)
        try:
            return _cron(expression, _outs(random))
        except BadSchedule as refused:
            # The parts do not fit together, such as a day that the month does not have.
            assert refused.details["field"] == "day-of-month"  # noqa: PT017  (draw again)


def _cron(expression: str, outs: Outs | None) -> Case:
    return Case(
        f"Cron({expression!r}){_words(outs)}",
        Cron(expression),
        cron_rule(expression, outs),
        exclude=_exclude(outs),
    )


def _daily(random: Random) -> Case:
    at, outs = _some_times(random), _outs(random)
    return _wall(f"Daily({at!r})", Daily(at), WallRule(fitting(lambda _: True), _seconds(at), outs=outs))


def _weekly(random: Random) -> Case:
    at, outs, days = _some_times(random), _outs(random), random.sample(WEEK, random.randint(1, 4))
    rule = WallRule(fitting(lambda day: WEEK[day.weekday()] in days), _seconds(at), outs=outs)
    return _wall(f"Weekly({days}, {at!r})", Weekly(days, at), rule)


def _monthly(random: Random) -> Case:
    at, outs, day = (
        _some_times(random),
        _outs(random),
        random.choice([1, 2, 15, 28, 29, 30, 31, -1, -2, -29, -31]),
    )
    return _wall(
        f"Monthly({day}, {at!r})", Monthly(day, at), WallRule(month_day(day), _seconds(at), outs=outs)
    )


def _business(random: Random) -> Case:
    at, outs, roll = _some_times(random), _outs(random), random.choice(_ROLLS)
    n = random.choice([1, 2, 5, 10, 19, 20, 21, 22, 23, -1, -2, -10, -20, -22, -23])
    rest = _rest(random) if random.random() < 0.7 else None
    rule = WallRule(business_day(n, roll, rest or Rest()), _seconds(at), outs=outs)
    case = _wall(f"MonthlyBusinessDay({n}, {at!r}, {roll!r})", MonthlyBusinessDay(n, at, roll), rule)
    return Case(f"{case.label} {_rest_words(rest)}", case.trigger, rule, _calendar(rest), case.exclude)


def _every(random: Random) -> Case:
    interval = timedelta(
        seconds=random.choice([1, 7, 90, 300, 1800, 3600, 3600, 5400, 21_600, 86_400, 100_000, 604_800, 1.5])
    )
    anchor = EPOCH + timedelta(seconds=random.randrange(0, 2**30)) if random.random() < 0.5 else None
    outs = _outs(random)
    # An interval has no time of day to keep, so it is never rolled.
    if outs is not None:
        outs = Outs(outs.weekdays, outs.dates, outs.rest)
    first = 0 if anchor is None else (anchor - EPOCH) // _MICROSECOND
    rule = StepRule(first, interval // _MICROSECOND, outs)
    label = f"Every({interval}, {anchor and anchor.isoformat()}){_words(outs)}"
    return Case(label, Every(interval, anchor), rule, exclude=_exclude(outs))


def _wall(label: str, trigger: Trigger, rule: WallRule) -> Case:
    return Case(f"{label}{_words(rule.outs)}", trigger, rule, exclude=_exclude(rule.outs))


def _some_times(random: Random) -> str:
    return ",".join(random.sample(_AT, random.choice([1, 1, 1, 1, 2, 3])))


def _seconds(at: str) -> tuple[int, ...]:
    parts = ([int(word) for word in time.split(":")] for time in at.split(","))
    return tuple(sorted({hour * 3600 + minute * 60 + sum(rest) for hour, minute, *rest in parts}))


def _outs(random: Random) -> Outs | None:
    match random.choice(["no", "no", "no", "weekdays", "dates", "rest", "all"]):
        case "no":
            return None
        case "weekdays":
            return Outs(weekdays=_weekdays(random), roll=random.choice(_ROLLS))
        case "dates":
            return Outs(dates=_dates(random), roll=random.choice(_ROLLS))
        case "rest":
            return Outs(rest=_rest(random), roll=random.choice(_ROLLS))
        case _:
            return Outs(_weekdays(random), _dates(random), _rest(random), random.choice(_ROLLS))


def _weekdays(random: Random) -> tuple[str, ...]:
    return tuple(random.choice([("sat", "sun"), ("sun",), ("mon",), ("fri", "sat", "sun"), ("wed",)]))


def _rest(random: Random) -> Rest:
    return Rest(random.choice([("sat", "sun"), ("fri", "sat"), ("sun",), ()]), _dates(random))


def _dates(random: Random) -> frozenset[date]:
    """Return random holidays of every year, some a week long."""
    holidays: set[date] = set()
    for _ in range(random.randint(1, 8)):
        month, day, length = random.randint(1, 12), random.randint(1, 28), random.choice([1, 1, 1, 2, 7])
        holidays |= {
            date(year, month, day) + timedelta(days=more) for year in _YEARS for more in range(length)
        }
    return frozenset(holidays)


def _calendar(rest: Rest | None) -> BusinessCalendar | None:
    return None if rest is None else BusinessCalendar(rest.weekend, rest.holidays)


def _exclude(outs: Outs | None) -> Exclude | None:
    if outs is None:
        return None
    roll = next(rule for rule in _ROLLS if rule == outs.roll)
    return Exclude(outs.dates, outs.weekdays, _calendar(outs.rest), roll)


def _words(outs: Outs | None) -> str:
    if outs is None:
        return ""
    return f" without {'+'.join(outs.weekdays)}+{len(outs.dates)} dates+{_rest_words(outs.rest)}, roll {outs.roll}"


def _rest_words(rest: Rest | None) -> str:
    return "no calendar" if rest is None else f"calendar {'+'.join(rest.weekend)}, {len(rest.holidays)} days"
