"""Schedule rules: triggers, missed fires and overlapping fires.

Due fires are computed from the last recorded fire and the present instant, never from "the schedules of this minute", so no
fire is lost while no scheduler runs.
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
from tidemill.domain.triggers.reactive import After, On, ReactiveTrigger
from tidemill.domain.triggers.timeline import FixedTimes
from tidemill.domain.zones import zone_of
from tidemill.errors import BadSchedule

__all__ = [
    "GRACE", "MOST_ON_TIME", "After", "All", "Catchup", "Cron", "Daily", "Every", "Fire", "Manual", "Misfire", "Monthly",
    "MonthlyBusinessDay", "On", "Once", "Overlap", "Overlapping", "Trigger", "Weekly", "check_misfire", "check_overlap",
    "counted_from", "first_fire", "misfire_from_data", "misfire_to_data", "missed", "overlapping", "trigger_from_data",
]  # fmt: skip

GRACE = timedelta(seconds=60)
"""How late a fire may be and still count as on time."""
MOST_ON_TIME = 1000
"""Maximum number of on-time fires returned at once; only a long grace with a short interval comes near it."""
LONGEST_WAIT = timedelta(days=5 * 366)
FURTHEST_SHIFT = timedelta(hours=3)
"""The largest shift of a past fire by a change of its zone's rules."""
_ZERO = timedelta(0)


@dataclass(frozen=True, slots=True)
class All:
    """Run missed fires one by one, the newest ``limit`` of them."""

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
"""The rule for late fires: no run, one run for all of them, or one run for each."""
Overlap = Literal["skip", "allow", "queue", "cancel"]
"""The rule for a fire while the job of an earlier fire has not ended."""
OVERLAPS = ("skip", "allow", "queue", "cancel")


@dataclass(frozen=True, slots=True)
class Fire:
    """One fire to perform now; ``at`` is its nominal instant, which identifies it."""

    at: datetime
    late: bool


@dataclass(frozen=True, slots=True)
class Catchup:
    """The due fires, oldest first, and the number of older skipped ones, with the first and last of them.

    All skipped fires precede the due ones.
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
    """The fires due after the last recorded fire (or the schedule's start), up to and including now.

    A fire no older than ``grace`` is on time and happens under every rule. Of the late fires "skip" runs none, "once" runs the
    newest unless an on-time fire follows it, and ``All`` runs the newest ``limit``. The cost grows with the fires returned and
    the days passed, not with the fires missed.
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
    """The instant after which fires are due: the last fire, or its instant under the zone's current rules.

    New zone rules may be installed after the day on which they take effect. A wall time that fired under the old rules then
    occurs a second time, an hour later, and must not fire again. ``last_fire_at`` must be a fire of this trigger.
    """
    zone = zone_of(timezone)
    if not isinstance(trigger.timeline(zone, calendar, as_exclude(exclude)), FixedTimes):
        return last_fire_at  # interval triggers are independent of zone rules, or are meant to move with them
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
    """The verdict on a fire: whether it becomes a job, whether that job waits, and whether earlier jobs are cancelled.

    ``reason`` is recorded with the fire; empty if no earlier job was active.
    """

    fires: bool
    waits: bool = False
    cancels: bool = False
    reason: str = ""


def overlapping(rule: Overlap, active: int, waiting: int = 0) -> Overlapping:
    """The verdict on a fire while ``active`` jobs of its schedule have not ended, ``waiting`` of which wait for another's end.

    With "queue" at most one job waits: a second one would repeat the same work.
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
    """The first fire of a schedule that is about to be saved. Refuses a schedule without a fire within five years.

    Trigger, zone, calendar and exclusion may each be valid and together exclude every day. None only for ``Manual``, ``After`` and ``On``.
    """
    first = trigger.next_after(after, timezone, calendar, exclude)
    if isinstance(trigger, Manual | ReactiveTrigger):
        return None
    if first is None or first - after > LONGEST_WAIT:
        if isinstance(trigger, Once) and first is None and trigger.at <= after:
            why = f"{trigger.at.isoformat()} has passed"
        elif first is not None:
            why = f"the first fire would be at {first.isoformat()}, more than five years ahead"
        else:
            why = "there is no fire within ten years" + (
                " once the excluded days are taken out" if exclude else ""
            )
        raise BadSchedule(f"trigger: {trigger!r} would never fire: {why}", field="trigger", value=trigger)
    return first


def check_misfire(rule: object) -> None:
    """Refuse an unknown misfire rule."""
    if not isinstance(rule, All) and rule not in ("skip", "once"):
        raise BadSchedule(
            f"misfire: {rule!r} is not a misfire rule; choose 'skip', 'once' or All(limit=100)",
            field="misfire",
            value=rule,
        )


def check_overlap(rule: object) -> None:
    """Refuse an unknown overlap rule."""
    if rule not in OVERLAPS:
        raise BadSchedule(
            f"overlap: {rule!r} is not an overlap rule; choose one of {', '.join(OVERLAPS)}",
            field="overlap",
            value=rule,
        )


def misfire_to_data(rule: Misfire) -> str | dict[str, object]:
    """A misfire rule as plain data."""
    check_misfire(rule)
    return {"all": rule.limit} if isinstance(rule, All) else rule


def misfire_from_data(data: object) -> Misfire:
    """A misfire rule from stored data."""
    if isinstance(data, Mapping) and set(data) == {"all"}:
        return All(limit=data["all"])
    if data == "skip":
        return "skip"
    if data == "once":
        return "once"
    raise BadSchedule(f"misfire: {data!r} is not a stored misfire rule", field="misfire", value=data)
