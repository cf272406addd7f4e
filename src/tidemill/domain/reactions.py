"""Reactions: the fires of schedules that run after definitions or on events.

An occurrence is an end of a job or an event, stored for one schedule until a fire uses it. The fires follow from the
occurrences alone, so they do not depend on when the leader looks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from tidemill.domain.job_requests import TaskData
from tidemill.domain.schedule_fires import (
    LEAP,
    Evaluation,
    FirePlan,
    NewId,
    read_rules,
)
from tidemill.domain.schedule_rules import Catchup, Fire
from tidemill.domain.schedules import ActiveJob, Advance, Definition, ScheduleRow
from tidemill.domain.triggers.reactive import After, On, ReactiveTrigger
from tidemill.domain.triggers.words import joined
from tidemill.errors import TidemillError

_TICK = timedelta(microseconds=1)


class Occurrence(NamedTuple):
    """An end of a job of a definition, or an event, for one schedule."""

    schedule_id: UUID
    id: UUID  #: of the job or the event
    source: str  #: the key of the definition, or the name of the event
    occurred_at: datetime
    outcome: str = ""  #: of a job: success, failure or cancel
    match: str = ""
    payload: str | None = None

    @property
    def key(self) -> OccurrenceKey:
        """The identity of this occurrence."""
        return OccurrenceKey(self.schedule_id, self.id, self.occurred_at)


class OccurrenceKey(NamedTuple):
    """The identity of an occurrence. A job that ends again occurs again, at another instant."""

    schedule_id: UUID
    id: UUID
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class Reaction:
    """One fire: when its last occurrence happened, the occurrences it uses, and the arguments from them."""

    at: datetime
    used: tuple[Occurrence, ...]
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Reactions:
    """The fires of one schedule, the occurrences that it no longer needs, and those that wait for others."""

    fires: tuple[Reaction, ...] = ()
    dropped: tuple[Occurrence, ...] = ()
    held: tuple[Occurrence, ...] = ()


def reactions(
    trigger: ReactiveTrigger,
    occurrences: Sequence[Occurrence],
    since: datetime | None,
    now: datetime,
    zone: ZoneInfo,
) -> Reactions:
    """The fires that follow from the unused occurrences of a schedule; ``since`` is when its rule was saved or resumed."""
    if since is not None and since > now + LEAP:
        since = None  # the clock was set back after it
    ordered = sorted(occurrences, key=lambda one: (one.occurred_at, one.id))
    early = [one for one in ordered if since is not None and one.occurred_at < since]
    counted = ordered[len(early) :]
    if isinstance(trigger, On):
        result = _on(trigger, counted)
    else:
        assert isinstance(trigger, After)
        result = _after(trigger, counted, now, zone)
    return replace(result, dropped=(*early, *result.dropped))


def _on(trigger: On, occurrences: Sequence[Occurrence]) -> Reactions:
    fires: list[Reaction] = []
    dropped: list[Occurrence] = []
    for one in occurrences:
        payload = None if one.payload is None else json.loads(one.payload)
        if one.source == trigger.event and trigger.accepts(one.match, payload):
            fires.append(Reaction(one.occurred_at, (one,), trigger.arguments(payload)))
        else:
            dropped.append(one)
    return Reactions(tuple(fires), tuple(dropped))


def _after(trigger: After, occurrences: Sequence[Occurrence], now: datetime, zone: ZoneInfo) -> Reactions:
    held: dict[str, Occurrence] = {}
    fires: list[Reaction] = []
    dropped: list[Occurrence] = []
    for one in occurrences:
        if one.source not in trigger.definitions or trigger.on not in ("end", one.outcome):
            dropped.append(one)
            continue
        old = [
            other
            for name, other in held.items()
            if name == one.source or _is_stale(trigger, other, one.occurred_at, zone)
        ]
        dropped += old
        held = {name: other for name, other in held.items() if other not in old}
        held[one.source] = one
        if len(held) == len(trigger.definitions):
            fires.append(Reaction(one.occurred_at, tuple(held.values()), {}))
            held = {}
    stale = [
        one for one in held.values() if trigger.fresh is not None and now - one.occurred_at > trigger.fresh
    ]
    unused = [one for one in held.values() if one not in stale]
    return Reactions(tuple(fires), (*dropped, *stale), tuple(unused))


def _is_stale(trigger: After, one: Occurrence, at: datetime, zone: ZoneInfo) -> bool:
    """Whether an end no longer counts for a set that ends at this instant."""
    if trigger.fresh is not None and at - one.occurred_at > trigger.fresh:
        return True
    return trigger.same is not None and _period(trigger.same, one.occurred_at, zone) != _period(
        trigger.same, at, zone
    )


def _period(kind: str, at: datetime, zone: ZoneInfo) -> date:
    day = at.astimezone(zone).date()
    return day if kind == "day" else day - timedelta(days=day.weekday())


def plan_reactions(
    schedule: ScheduleRow,
    definition: Definition | None,
    active: Sequence[ActiveJob],
    occurrences: Sequence[Occurrence],
    now: datetime,
    task_data: TaskData | None,
    new_id: NewId,
    *,
    parked: Collection[UUID] = (),
    busy: str | None = None,
) -> FirePlan:
    """The writes for a reactive schedule: its fires, their jobs, and the occurrences that they use up."""
    last = schedule.last_fire_at
    stays = Advance(schedule.id, schedule.revision, last, last, schedule.next_fire_at)
    try:
        rules = read_rules(schedule)
        if not isinstance(rules.trigger, ReactiveTrigger):
            keys = tuple(one.key for one in occurrences)  # of an earlier rule
            return FirePlan(schedule, stays, used=keys)
        result = reactions(rules.trigger, occurrences, schedule.since_at, now, rules.zone)
    except TidemillError as error:
        return FirePlan(schedule, stays, broken=str(error))
    # Fires are identified by their instant, so two at the same instant must differ.
    before = last if last is not None and last <= now + LEAP else None
    arguments: dict[datetime, Mapping[str, object]] = {}
    for reaction in result.fires:
        at = reaction.at if before is None else max(reaction.at, before + _TICK)
        arguments[at], before = reaction.arguments, at
    look = Evaluation(
        schedule, definition, task_data, new_id, rules, busy=busy, arguments=arguments, runs_at=now
    )
    planned = look.fires(Catchup(tuple(Fire(at, late=False) for at in arguments)), active, parked)
    used = [one for reaction in result.fires for one in reaction.used]
    keys = tuple(one.key for one in (*used, *result.dropped))
    return planned._replace(advance=stays._replace(last_fire_at=before if arguments else last), used=keys)


def waiting_words(
    trigger: ReactiveTrigger,
    held: Sequence[Occurrence],
    existing: Collection[str],
    last_fire_at: datetime | None,
) -> str:
    """The awaited events of a schedule in words; ``existing`` are the definitions that exist among its sources.

    >>> waiting_words(On("order.paid"), [], [], None)
    'waits for the next event order.paid'
    """
    if isinstance(trigger, On):
        return f"waits for the next event {trigger.event}"
    assert isinstance(trigger, After)
    there = {one.source: one for one in held}
    missing = [key for key in trigger.definitions if key not in there]
    named = [key if key in existing else f"{key}, which does not exist yet" for key in missing]
    text = f"waits for {joined(named)}" if named else "fires at once"
    if last_fire_at is not None:
        text += f"; the last fire was for the ends until {_instant(last_fire_at)}"
    for key in trigger.definitions:
        if (one := there.get(key)) is not None:
            until = (
                "" if trigger.fresh is None else f", fresh until {_instant(one.occurred_at + trigger.fresh)}"
            )
            text += f"; {key} ended at {_instant(one.occurred_at)}{until}"
    return text


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def cycle_of(edges: Mapping[str, Collection[str]], start: str) -> list[str]:
    """The definitions of a cycle through one definition, in order; empty if there is none.

    >>> cycle_of({"a": ["b"], "b": ["a"]}, "a"), cycle_of({"a": ["b"]}, "a")
    (['a', 'b', 'a'], [])
    """
    trail: dict[str, str] = {}
    todo = [start]
    while todo:
        key = todo.pop()
        for need in edges.get(key, ()):
            if need == start:
                path = [start, key]
                while path[-1] != start:
                    path.append(trail[path[-1]])
                return path[::-1] if key != start else [start, start]
            if need not in trail:
                trail[need] = key
                todo.append(need)
    return []
