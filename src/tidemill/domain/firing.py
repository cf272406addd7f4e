"""Firing, as far as it is a rule: from a schedule that is due to what is written for it. Pure; it reads no clock and no store.

One look at a schedule gives its fires (those that become jobs, and those that are skipped, with the reason), the jobs, the
jobs that are to be cancelled, and where the schedule stands afterwards. A schedule that cannot be read is put off and says
why, and does no harm to the others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple, cast
from uuid import UUID
from zoneinfo import ZoneInfo

from tidemill.domain.calendar import BusinessCalendar, Exclude
from tidemill.domain.job import NewJob
from tidemill.domain.requests import Facts, request
from tidemill.domain.schedule import (
    All,
    Catchup,
    Fire,
    Misfire,
    Overlap,
    check_overlap,
    counted_from,
    misfire_from_data,
    missed,
    overlapping,
)
from tidemill.domain.timetable import CLUSTER_KEY, ActiveJob, Advance, Definition, Fired, Schedule
from tidemill.domain.triggers.base import Trigger, trigger_from_data
from tidemill.domain.zones import zone_of
from tidemill.errors import BadSchedule, TidemillError

PUT_OFF = timedelta(seconds=60)
"""How long a schedule that cannot be read is left alone; within this time its fires still count as on time."""
SHORTEST_LIFE = timedelta(hours=1)
"""How long a job of one node waits for that node at least."""
JOINED = "the node joined"
NODE_QUEUE = "@"
"""What the names of queues begin with that belong to one node."""
OVERLAP = "overlap:"
"""What the reason of a job begins with that waits for an earlier one of its schedule."""

NewId = Callable[[], UUID]

_ODD = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    OverflowError,
)  # what data of another shape does to its reader
_UNREADABLE = (TidemillError, *_ODD)


class Rules(NamedTuple):
    """What a stored schedule says, read."""

    trigger: Trigger
    zone: ZoneInfo
    calendar: BusinessCalendar | None
    exclude: Exclude | None
    misfire: Misfire
    overlap: Overlap

    def next_after(self, instant: datetime) -> datetime | None:
        """The next fire strictly after an instant."""
        return self.trigger.next_after(instant, self.zone, self.calendar, self.exclude)

    def between(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """The first fires after the one instant and not after the other."""
        return self.trigger.between(after, until, self.zone, self.calendar, self.exclude, limit=limit)

    def missed(self, base: datetime, now: datetime) -> Catchup:
        """What is due, counted from the last fire or the schedule's beginning."""
        around = {"timezone": self.zone, "calendar": self.calendar, "exclude": self.exclude}
        return missed(self.trigger, base, now, self.misfire, **around)  # type: ignore[arg-type]


class Plan(NamedTuple):
    """What one look at a schedule writes. ``broken`` says why it could not be read, and then it is only put off."""

    schedule: Schedule
    advance: Advance
    fires: tuple[Fired, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    cancels: tuple[ActiveJob, ...] = ()
    broken: str | None = None

    def without(self, held: Mapping[UUID, UUID]) -> Plan:
        """The same, but the fires of these jobs are skipped: another job holds their unique key."""
        fires = tuple(
            fire._replace(job_id=None, reason=f"unique: job {held[fire.job_id]} holds the key")
            if fire.job_id is not None and fire.job_id in held
            else fire
            for fire in self.fires
        )
        return self._replace(fires=fires, jobs=tuple(job for job in self.jobs if job.id not in held))


def read_rules(schedule: Schedule) -> Rules:
    """A stored schedule's rules; what cannot be read is a ``BadSchedule`` that names the field."""
    try:
        check_overlap(schedule.overlap)
        return Rules(
            trigger_from_data(schedule.trigger),
            zone_of(schedule.timezone),
            None if schedule.calendar is None else BusinessCalendar.from_data(schedule.calendar),
            None if schedule.exclude is None else Exclude.from_data(schedule.exclude),
            misfire_from_data(schedule.misfire),
            cast(Overlap, schedule.overlap),
        )
    except _ODD as error:
        raise BadSchedule(f"trigger: it cannot be read: {type(error).__name__}: {error}") from None


def broken(schedule: Schedule) -> str | None:
    """Why a stored schedule cannot be read here; None if it can."""
    try:
        read_rules(schedule)
    except TidemillError as error:
        return str(error)
    return None


def due_base(schedule: Schedule, now: datetime) -> datetime:
    """From when on fires are due: the last one, or the moment the rule was written or resumed, whichever is later."""
    known = [at for at in (schedule.last_fire_at, schedule.since_at) if at is not None]
    return max(known, default=now)


def _counted(schedule: Schedule, rules: Rules, now: datetime) -> datetime:
    """The due base; where that is a fire, it stands for the same fire by the rules that its zone has by now."""
    base = due_base(schedule, now)
    return base if base != schedule.last_fire_at else _as_of_now(base, rules)


def _counted_here(schedule: Schedule, rules: Rules, last: Fired) -> datetime:
    """The same on one node, whose joining is written down like a fire and is none."""
    base = max(last.fire_at, schedule.since_at or last.fire_at)
    return base if base != last.fire_at or last.reason == JOINED else _as_of_now(base, rules)


def _as_of_now(fire_at: datetime, rules: Rules) -> datetime:
    return counted_from(rules.trigger, fire_at, rules.zone, rules.calendar, rules.exclude)


def plan(
    schedule: Schedule,
    definition: Definition | None,
    active: Sequence[ActiveJob],
    now: datetime,
    facts: Facts | None,
    new_id: NewId,
    *,
    parked: Collection[UUID] = (),
) -> Plan:
    """What a look at a schedule of cluster scope writes.

    ``active`` are its jobs that have not ended, ``parked`` those of them that wait for an earlier one; ``facts`` is what is
    known of its task (None: as it was when the schedule was saved).
    """
    try:
        rules = read_rules(schedule)
        due = rules.missed(_counted(schedule, rules, now), now)
        found = _Look(schedule, definition, facts, new_id, rules).fires(due, active, parked)
        following = rules.next_after(now)
    except _UNREADABLE as error:
        return Plan(schedule, _advance(schedule, schedule.last_fire_at, now + PUT_OFF), broken=str(error))
    last = found.fires[-1].fire_at if found.fires else schedule.last_fire_at
    return found._replace(advance=_advance(schedule, last, following))


def plan_here(
    schedule: Schedule,
    definition: Definition | None,
    active: Sequence[ActiveJob],
    last: Fired,
    now: datetime,
    facts: Facts | None,
    new_id: NewId,
    *,
    node: str,
    parked: Collection[UUID] = (),
) -> tuple[Plan, datetime | None]:
    """The same on one node, for a schedule that every node fires for itself; and when it is next due there.

    ``last`` is this node's last fire, or its joining. The schedule itself does not move: it is only checked that nobody changed it.
    """
    stays = Advance(
        schedule.id, schedule.revision, schedule.last_fire_at, schedule.last_fire_at, schedule.next_fire_at
    )
    try:
        rules = read_rules(schedule)
        due = rules.missed(_counted_here(schedule, rules, last), now)
        found = _Look(schedule, definition, facts, new_id, rules, node, now).fires(due, active, parked)
        following = rules.next_after(now)
    except _UNREADABLE as error:
        return Plan(schedule, stays, broken=str(error)), now + PUT_OFF
    return found._replace(advance=stays), following


def revised(schedule: Schedule) -> Advance | None:
    """Where a schedule should stand by the rules of today's time zones; None if it stands there."""
    if schedule.next_fire_at is None or schedule.since_at is None:
        return None
    try:
        rules = read_rules(schedule)
        following = rules.next_after(_counted(schedule, rules, schedule.since_at))
    except _UNREADABLE:
        return None
    if following is None or following >= schedule.next_fire_at:
        return None  # one that comes later than was thought is found out when it is looked at
    return _advance(schedule, schedule.last_fire_at, following)


def fire_job(
    schedule: Schedule, definition: Definition | None, facts: Facts | None, fire_at: datetime, id: UUID
) -> NewJob:
    """The job of one fire, as the schedule, its definition and its task say."""
    job = request(
        id,
        schedule.task,
        tenant=schedule.tenant,
        facts=facts if facts is not None else _saved(schedule),
        layers=([] if definition is None else [definition.settings]) + [schedule.options],
        args=merged_args(schedule, definition),
        run_at=fire_at + _jitter(schedule, fire_at),
    )
    details = replace(
        job.details,
        schedule_id=schedule.id,
        fire_at=fire_at,
        definition_id=None if definition is None else definition.id,
        definition_version=None if definition is None else definition.version,
    )
    return limited(job, definition)._replace(details=details)


def limited(job: NewJob, definition: Definition | None) -> NewJob:
    """The job counted against its definition's limit too, if that has one."""
    if definition is None or not definition.settings.get("max_concurrent"):
        return job
    return job._replace(limits=tuple(sorted({*job.limits, definition_limit(definition.id)})))


def definition_limit(id: UUID) -> str:
    """What a definition's limit is called."""
    return f"definition/{id}"


def merged_args(schedule: Schedule, definition: Definition | None) -> str:
    """A job's arguments: the definition's, and the schedule's own over them."""
    if definition is None:
        return schedule.args
    return json.dumps({**json.loads(definition.args), **json.loads(schedule.args)})


def _advance(schedule: Schedule, last: datetime | None, following: datetime | None) -> Advance:
    return Advance(schedule.id, schedule.revision, schedule.last_fire_at, last, following)


def _saved(schedule: Schedule) -> Facts:
    """What was known of the task when the schedule was saved."""
    found = schedule.options.get("defaults")
    return found if isinstance(found, Mapping) else {}


def _jitter(schedule: Schedule, fire_at: datetime) -> timedelta:
    """The same share of the schedule's jitter for the same fire, whoever works it out."""
    seconds = schedule.options.get("jitter")
    if not isinstance(seconds, int | float) or seconds <= 0:
        return timedelta(0)
    digest = hashlib.sha256(f"{schedule.id}:{fire_at.isoformat()}".encode()).digest()
    return timedelta(seconds=float(seconds) * int.from_bytes(digest[:8]) / 2**64)


class _Look(NamedTuple):
    """One look at one schedule: what its fires become."""

    schedule: Schedule
    definition: Definition | None
    facts: Facts | None
    new_id: NewId
    rules: Rules
    node: str | None = None
    now: datetime | None = None

    def fires(self, due: Catchup, active: Sequence[ActiveJob], parked: Collection[UUID]) -> Plan:
        """The fires that are due, judged one after the other; the schedule's advance is still to be filled in."""
        fires: list[Fired] = []
        jobs: list[NewJob] = []
        cancels: Sequence[ActiveJob] = ()
        if due.skipped_until_at is not None:
            fires.append(self._skipped(due.skipped_until_at, _misfire_words(due)))
        # Who asks for all of them asks for fires that come at the same time: those do not stand in each other's way.
        together = isinstance(self.rules.misfire, All)
        living, waiting = len(active), len(parked)
        for fire in due.fires:
            if self.rules.overlap == "cancel" and not together and fire is not due.fires[-1]:
                fires.append(self._skipped(fire.at, f"{OVERLAP} a later fire takes its place"))
                continue
            verdict = overlapping(self.rules.overlap, living, waiting)
            if not verdict.fires:
                fires.append(self._skipped(fire.at, verdict.reason))
                continue
            if verdict.cancels:
                cancels = active
            jobs.append(self._job(fire, verdict.reason if verdict.waits else None))
            fires.append(self._fired(fire.at, jobs[-1].id, verdict.reason or None))
            if not together:
                living, waiting = living + 1, waiting + verdict.waits
        nowhere = Advance(self.schedule.id, self.schedule.revision, None, None, None)
        return Plan(self.schedule, nowhere, tuple(fires), tuple(jobs), tuple(cancels))

    def _job(self, fire: Fire, waiting: str | None) -> NewJob:
        job = fire_job(self.schedule, self.definition, self.facts, fire.at, self.new_id())
        if self.node is not None and self.now is not None:
            following = self.rules.next_after(fire.at)
            beyond = None if following is None else self.rules.next_after(following)
            least = self.now + SHORTEST_LIFE
            expires_at = job.expires_at or max(beyond or least, least)
            job = job._replace(queue=NODE_QUEUE + self.node, expires_at=expires_at)
        return job if waiting is None else job._replace(waiting=waiting)

    def _fired(self, at: datetime, job_id: UUID, reason: str | None) -> Fired:
        key = CLUSTER_KEY if self.node is None else self.node
        return Fired(self.schedule.id, at, key, self.schedule.tenant, job_id, reason)

    def _skipped(self, at: datetime, reason: str) -> Fired:
        key = CLUSTER_KEY if self.node is None else self.node
        return Fired(self.schedule.id, at, key, self.schedule.tenant, None, reason)


def _misfire_words(due: Catchup) -> str:
    first, last = due.skipped_from_at, due.skipped_until_at
    assert first is not None
    assert last is not None
    if due.skipped == 1:
        return f"misfire: the fire of {last.isoformat()} was skipped"
    return f"misfire: {due.skipped} fires from {first.isoformat()} until {last.isoformat()} were skipped"
