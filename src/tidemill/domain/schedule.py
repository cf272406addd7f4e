"""Schedules, as far as they are rules: triggers, and what becomes of fires that were missed or that overlap.

Firing itself, the rows and the clock are elsewhere. What is due is worked out from the last fire that was recorded and
the present instant, never from "the schedules of this minute", so that nothing is lost when nobody looked for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from tidemill.domain.calendar import BusinessCalendar, Excludable, as_exclude
from tidemill.domain.triggers.base import Trigger, trigger_from_data
from tidemill.domain.triggers.cron import Cron
from tidemill.domain.triggers.daily import Daily, Monthly, MonthlyBusinessDay, Weekly
from tidemill.domain.triggers.every import Every, Manual, Once
from tidemill.domain.triggers.timeline import FixedTimes
from tidemill.domain.zones import zone_of
from tidemill.errors import BadSchedule

__all__ = [
    "GRACE", "MOST_ON_TIME", "All", "Catchup", "Cron", "Daily", "Every", "Fire", "Manual", "Misfire", "Monthly",
    "MonthlyBusinessDay", "Once", "Overlap", "Overlapping", "Trigger", "Weekly", "check_misfire", "check_overlap",
    "counted_from", "first_fire", "misfire_from_data", "misfire_to_data", "missed", "overlapping", "trigger_from_data",
]  # fmt: skip

GRACE = timedelta(seconds=60)
"""How late a fire may be and still count as on time."""
MOST_ON_TIME = 1000
"""How many fires on time are given out at once; only a long grace with a short interval comes near it."""
LONGEST_WAIT = timedelta(days=5 * 366)
FURTHEST_SHIFT = timedelta(hours=3)
"""By how much a change of a zone's rules may move a fire that was made already."""
_ZERO = timedelta(0)


@dataclass(frozen=True, slots=True)
class All:
    """Make up for missed fires one by one, the newest ``limit`` of them."""

    limit: int = 100

    def __post_init__(self) -> None:
        given: object = self.limit
        if not isinstance(given, int) or given is True or not 1 <= given <= 100_000:
            raise BadSchedule(
                f"misfire: All(limit={self.limit!r}) is not between 1 and 100000",
                field="misfire",
                value=self.limit,
            )


Misfire = Literal["skip", "once"] | All
"""What to do about fires that are late: nothing, one run for all of them, or one run for each."""
Overlap = Literal["skip", "allow", "queue", "cancel"]
"""What to do about a fire while the job of an earlier one still lives."""
OVERLAPS = ("skip", "allow", "queue", "cancel")


@dataclass(frozen=True, slots=True)
class Fire:
    """One fire that is to happen now; ``at`` is the instant it was meant for, and its key."""

    at: datetime
    late: bool


@dataclass(frozen=True, slots=True)
class Catchup:
    """What is due: the fires to make, oldest first, and how many older ones are skipped, with the first and last of them.

    The skipped ones all lie before the fires.
    """

    fires: tuple[Fire, ...] = ()
    skipped: int = 0
    skipped_from_at: datetime | None = None
    skipped_until_at: datetime | None = None


def missed(
    trigger: Trigger,
    last_fire_at: datetime,
    now: datetime,
    rule: Misfire = "once",
    grace: timedelta = GRACE,
    *,
    timezone: str | ZoneInfo = "UTC",
    calendar: BusinessCalendar | None = None,
    exclude: Excludable | None = None,
) -> Catchup:
    """What is due after the last recorded fire (or the schedule's beginning), up to and including now.

    A fire that is not older than ``grace`` is on time and happens under every rule. Of the late ones "skip" makes none,
    "once" makes the newest, unless one on time follows it and so makes up for it, and ``All`` makes the newest ``limit``.
    The work grows with the fires made and the days passed, not with the fires missed.
    """
    check_misfire(rule)
    if grace < _ZERO:
        raise BadSchedule(f"grace: {grace} is negative", field="grace", value=grace)
    if now <= last_fire_at:
        return Catchup()
    punctual_after = max(last_fire_at, now - grace - timedelta(microseconds=1))
    around = (timezone, calendar, exclude)
    on_time = trigger.between(punctual_after, now, *around, newest=MOST_ON_TIME)
    late_allowed = rule.limit if isinstance(rule, All) else int(rule == "once" and not on_time)
    if len(on_time) == MOST_ON_TIME:
        late_allowed = 0
    late = trigger.between(last_fire_at, punctual_after, *around, newest=late_allowed) if late_allowed else []
    made = (*(Fire(at, late=True) for at in late), *(Fire(at, late=False) for at in on_time))

    skipped_before = made[0].at - timedelta(microseconds=1) if made else now
    skipped = trigger.count_between(last_fire_at, skipped_before, *around)
    if not skipped:
        return Catchup(made)
    return Catchup(
        made,
        skipped,
        trigger.next_after(last_fire_at, *around),
        trigger.last_at_or_before(skipped_before, *around),
    )


def counted_from(
    trigger: Trigger,
    last_fire_at: datetime,
    timezone: str | ZoneInfo = "UTC",
    calendar: BusinessCalendar | None = None,
    exclude: Excludable | None = None,
) -> datetime:
    """The instant from which on fires are due after one that was made: that one, or what it has become.

    A zone's new rules may arrive after the day from which on they hold. A wall time that was fired by the old ones then
    comes a second time, an hour later, and must not be fired again. Its own schedule's fires alone may be asked about.
    """
    zone = zone_of(timezone)
    if not isinstance(trigger.timeline(zone, calendar, as_exclude(exclude)), FixedTimes):
        return last_fire_at  # what follows real time is the same under any rules, or meant to move with them
    before = trigger.last_at_or_before(last_fire_at, zone, calendar, exclude)
    if before == last_fire_at:
        return last_fire_at
    following = trigger.next_after(last_fire_at, zone, calendar, exclude)
    if following is None or following - last_fire_at > FURTHEST_SHIFT:
        return last_fire_at
    nearer = before is None or following - last_fire_at <= last_fire_at - before
    return following if nearer else last_fire_at


@dataclass(frozen=True, slots=True)
class Overlapping:
    """What happens to a fire: whether it becomes a job, whether that waits, and whether the earlier jobs are cancelled.

    ``reason`` is what is recorded with the fire; empty when nothing was in the way.
    """

    fires: bool
    waits: bool = False
    cancels: bool = False
    reason: str = ""


def overlapping(rule: Overlap, active: int, waiting: int = 0) -> Overlapping:
    """What a fire does while ``active`` jobs of its schedule live, ``waiting`` of them waiting for another's end.

    With "queue" at most one waits: a second one would do the same work again.
    """
    check_overlap(rule)
    if active <= 0 or rule == "allow":
        return Overlapping(fires=True)
    match rule:
        case "skip":
            return Overlapping(fires=False, reason="overlap: the previous job has not ended")
        case "queue" if waiting > 0:
            return Overlapping(fires=False, reason="overlap: one job is waiting already")
        case "queue":
            return Overlapping(fires=True, waits=True, reason="overlap: waits for the previous job")
        case _:
            return Overlapping(fires=True, cancels=True, reason="overlap: the previous job is cancelled")


def first_fire(
    trigger: Trigger,
    after: datetime,
    timezone: str | ZoneInfo = "UTC",
    calendar: BusinessCalendar | None = None,
    exclude: Excludable | None = None,
) -> datetime | None:
    """The first fire of a schedule that is about to be saved; refuses one that would not fire within five years.

    Trigger, zone, calendar and exclusion may each be sound and together leave nothing. None only for ``Manual``.
    """
    first = trigger.next_after(after, timezone, calendar, exclude)
    if isinstance(trigger, Manual):
        return None
    if first is None or first - after > LONGEST_WAIT:
        if isinstance(trigger, Once) and first is None and trigger.at <= after:
            why = f"{trigger.at.isoformat()} has passed"
        elif first is not None:
            why = f"the first fire would be at {first.isoformat()}, more than five years ahead"
        else:
            why = "nothing is left within ten years" + (
                " once the excluded days are taken out" if exclude else ""
            )
        raise BadSchedule(f"trigger: {trigger!r} would never fire: {why}", field="trigger", value=trigger)
    return first


def check_misfire(rule: object) -> None:
    """Refuse what is no misfire rule."""
    if not isinstance(rule, All) and rule not in ("skip", "once"):
        raise BadSchedule(
            f"misfire: {rule!r} is no misfire rule; choose 'skip', 'once' or All(limit=100)",
            field="misfire",
            value=rule,
        )


def check_overlap(rule: object) -> None:
    """Refuse what is no overlap rule."""
    if rule not in OVERLAPS:
        raise BadSchedule(
            f"overlap: {rule!r} is no overlap rule; choose one of {', '.join(OVERLAPS)}",
            field="overlap",
            value=rule,
        )


def misfire_to_data(rule: Misfire) -> str | dict[str, object]:
    """A misfire rule as plain data."""
    check_misfire(rule)
    return {"all": rule.limit} if isinstance(rule, All) else rule


def misfire_from_data(data: object) -> Misfire:
    """The misfire rule that was stored."""
    if isinstance(data, Mapping) and set(data) == {"all"}:
        return All(limit=data["all"])
    if data == "skip":
        return "skip"
    if data == "once":
        return "once"
    raise BadSchedule(f"misfire: {data!r} is no stored misfire rule", field="misfire", value=data)
