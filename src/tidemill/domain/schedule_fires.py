"""Firing rules: the writes for a schedule that is due.

A plan contains the fires (those that become jobs, and skipped ones with the reason), the jobs to enqueue, the jobs to cancel,
and the schedule's new position. A schedule that cannot be read is postponed with a reason and does not affect others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, cast
from uuid import UUID
from zoneinfo import ZoneInfo

from tidemill.domain.calendar import BusinessCalendar, Exclude
from tidemill.domain.job import NewJob, UniqueHold
from tidemill.domain.job_requests import TaskData, request
from tidemill.domain.schedule_rules import (
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
from tidemill.domain.schedules import CLUSTER_KEY, ActiveJob, Advance, Definition, Fired, ScheduleRow
from tidemill.domain.triggers.base import Trigger, trigger_from_data
from tidemill.domain.zones import zone_of
from tidemill.errors import BadSchedule, TidemillError

if TYPE_CHECKING:
    from tidemill.domain.reactions import OccurrenceKey

PUT_OFF = timedelta(seconds=60)
"""Postponement of an unreadable schedule; within this time its fires still count as on time."""
SHORTEST_LIFE = timedelta(hours=1)
"""Minimum time that a job for one node or runner waits for it."""
LEAP = timedelta(seconds=5)
"""A last fire further ahead of now than this was recorded before the clock was set back."""
_TICK = timedelta(microseconds=1)
JOINED = "the node joined"
NODE_QUEUE = "@"
"""Prefix of the queues that belong to one node or one runner."""
OVERLAP = "overlap:"
"""Prefix of the reason of a job that waits for an earlier job of its schedule."""

NewId = Callable[[], UUID]

# Raised when stored data does not have the expected shape.
_ODD = (TypeError, ValueError, LookupError, AttributeError, OverflowError)
_UNREADABLE = (TidemillError, *_ODD)


class FireRules(NamedTuple):
    """The parsed rules of a stored schedule."""

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
        """The first fires after the first instant, up to and including the second."""
        return self.trigger.between(after, until, self.zone, self.calendar, self.exclude, limit=limit)

    def missed(self, base: datetime, now: datetime) -> Catchup:
        """The fires that are due, counted from the last fire or the schedule's start."""
        around = {"timezone": self.zone, "calendar": self.calendar, "exclude": self.exclude}
        return missed(self.trigger, base, now, self.misfire, **around)  # type: ignore[arg-type]


class FirePlan(NamedTuple):
    """The writes of one evaluation of a schedule. ``broken`` is the reason why it could not be read and is only postponed."""

    schedule: ScheduleRow
    advance: Advance
    fires: tuple[Fired, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    cancels: tuple[ActiveJob, ...] = ()
    broken: str | None = None
    #: The occurrences that a reactive schedule no longer needs after this.
    used: tuple[OccurrenceKey, ...] = ()

    def without(self, held: Mapping[UUID, UUID]) -> FirePlan:
        """The same plan with the fires of these jobs skipped, because another job holds their unique key."""
        fires = tuple(
            fire._replace(job_id=None, reason=f"unique: job {held[fire.job_id]} holds the key")
            if fire.job_id is not None and fire.job_id in held
            else fire
            for fire in self.fires
        )
        return self._replace(fires=fires, jobs=tuple(job for job in self.jobs if job.id not in held))


def read_rules(schedule: ScheduleRow) -> FireRules:
    """The parsed rules of a stored schedule. Raises ``BadSchedule`` with the field that cannot be read."""
    try:
        check_overlap(schedule.overlap)
        return FireRules(
            trigger_from_data(schedule.trigger),
            zone_of(schedule.timezone),
            None if schedule.calendar is None else BusinessCalendar.from_data(schedule.calendar),
            None if schedule.exclude is None else Exclude.from_data(schedule.exclude),
            misfire_from_data(schedule.misfire),
            cast(Overlap, schedule.overlap),
        )
    except _ODD as error:
        raise BadSchedule(f"trigger: it cannot be read: {type(error).__name__}: {error}") from None


def broken(schedule: ScheduleRow) -> str | None:
    """Why a stored schedule cannot be read; None if it can."""
    try:
        read_rules(schedule)
    except TidemillError as error:
        return str(error)
    return None


def due_base(schedule: ScheduleRow, now: datetime) -> datetime:
    """The instant after which fires are due: the last fire, or when the rule was saved or resumed, whichever is later."""
    known = [at for at in (schedule.last_fire_at, schedule.since_at) if at is not None]
    if not known:
        return now
    # Instants ahead of now were recorded before the clock was set back. If all are, continue from the next fire.
    resumes = now if schedule.next_fire_at is None else min(now, schedule.next_fire_at - _TICK)
    return max((at for at in known if at <= now + LEAP), default=resumes)


def _counted(schedule: ScheduleRow, rules: FireRules, now: datetime) -> datetime:
    """The due base; if that is a fire, its instant under the zone's current rules."""
    base = due_base(schedule, now)
    return base if base != schedule.last_fire_at else _as_of_now(base, rules)


def _counted_here(schedule: ScheduleRow, rules: FireRules, last: Fired, now: datetime) -> datetime:
    """The due base on one node. A node's joining is recorded like a fire but is none."""
    since = schedule.since_at
    base = last.fire_at if since is None or since > now + LEAP else max(last.fire_at, since)
    return base if base != last.fire_at or last.reason == JOINED else _as_of_now(base, rules)


def _as_of_now(fire_at: datetime, rules: FireRules) -> datetime:
    return counted_from(rules.trigger, fire_at, rules.zone, rules.calendar, rules.exclude)


def plan(
    schedule: ScheduleRow,
    definition: Definition | None,
    active: Sequence[ActiveJob],
    now: datetime,
    task_data: TaskData | None,
    new_id: NewId,
    *,
    parked: Collection[UUID] = (),
    busy: str | None = None,
) -> FirePlan:
    """The writes for a schedule of cluster scope.

    ``active`` are its unfinished jobs, ``parked`` those of them that wait for an earlier one. ``task_data`` describes its task;
    None means as recorded when the schedule was saved. ``busy`` is the reason why its definition has no room for another job,
    created manually or by another schedule; a schedule that skips overlapping fires then skips these.
    """
    try:
        rules = read_rules(schedule)
        due = rules.missed(_counted(schedule, rules, now), now)
        found = Evaluation(schedule, definition, task_data, new_id, rules, busy=busy).fires(
            due, active, parked
        )
        following = rules.next_after(now)
    except _UNREADABLE as error:
        return FirePlan(schedule, _advance(schedule, schedule.last_fire_at, now + PUT_OFF), broken=str(error))
    last = found.fires[-1].fire_at if found.fires else schedule.last_fire_at
    return found._replace(advance=_advance(schedule, last, following))


def plan_here(
    schedule: ScheduleRow,
    definition: Definition | None,
    active: Sequence[ActiveJob],
    last: Fired,
    now: datetime,
    task_data: TaskData | None,
    new_id: NewId,
    *,
    node: str,
    parked: Collection[UUID] = (),
) -> tuple[FirePlan, datetime | None]:
    """The writes for one node or runner, for a schedule that fires in each of them, and the next due time there.

    ``node`` is its name, and ``last`` its last fire, or its joining. The schedule itself does not advance; the write only checks
    that it was not changed.
    """
    stays = Advance(
        schedule.id, schedule.revision, schedule.last_fire_at, schedule.last_fire_at, schedule.next_fire_at
    )
    try:
        rules = read_rules(schedule)
        due = rules.missed(_counted_here(schedule, rules, last, now), now)
        found = Evaluation(schedule, definition, task_data, new_id, rules, node, now).fires(
            due, active, parked
        )
        following = rules.next_after(now)
    except _UNREADABLE as error:
        return FirePlan(schedule, stays, broken=str(error)), now + PUT_OFF
    return found._replace(advance=stays), following


def revised(schedule: ScheduleRow) -> Advance | None:
    """The schedule's position under the current time zone rules; None if it is unchanged."""
    if schedule.next_fire_at is None or schedule.since_at is None:
        return None
    try:
        rules = read_rules(schedule)
        since = max(schedule.since_at, schedule.last_fire_at or schedule.since_at)
        following = rules.next_after(_counted(schedule, rules, since))
    except _UNREADABLE:
        return None
    if following is None or following >= schedule.next_fire_at:
        return None  # a later fire is noticed when the schedule is next evaluated
    return _advance(schedule, schedule.last_fire_at, following)


def rewound(schedule: ScheduleRow, now: datetime) -> Advance | None:
    """The schedule's new position after the clock was set back; None if it was not.

    The last fire, or the time the rule was saved, then lies ahead of now, and the next fire even further. The schedule
    continues from now. The instants of fires are recorded, so no fire is repeated.
    """
    last = schedule.last_fire_at
    newest = max((at for at in (last, schedule.since_at) if at is not None), default=now)
    if newest <= now + LEAP or schedule.next_fire_at is None:
        return None
    try:
        rules = read_rules(schedule)
        following = rules.next_after(now)
        if following is None or schedule.next_fire_at <= following:
            return None
        if last is not None and last > now:
            last = rules.trigger.last_at_or_before(now, rules.zone, rules.calendar, rules.exclude) or now
        return _advance(schedule, last, following)
    except _UNREADABLE:
        return None


def rewound_here(last: Fired, now: datetime) -> Fired:
    """The fire from which one node continues: its last one, or the present after the clock was set back."""
    if last.fire_at <= now + LEAP:
        return last
    return last._replace(fire_at=now, job_id=None, reason=JOINED)


def fire_job(
    schedule: ScheduleRow,
    definition: Definition | None,
    task_data: TaskData | None,
    fire_at: datetime,
    id: UUID,
) -> NewJob:
    """The job of one fire, built from the schedule, its definition and its task."""
    job = request(
        id,
        schedule.task,
        tenant=schedule.tenant,
        task_data=task_data if task_data is not None else _saved(schedule),
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
    """The job with its definition's concurrency limit, if there is one.

    A definition that refuses a second job gives each of its jobs the same unique key, so that the store accepts one at a time.
    """
    if definition is None or not definition.settings.get("max_concurrent"):
        return job
    name = definition_limit(definition.id)
    unique = UniqueHold(name) if refuses(definition) else job.unique
    return job._replace(limits=tuple(sorted({*job.limits, name})), unique=unique)


def refuses(definition: Definition | None) -> bool:
    """Whether a definition refuses a job while another one of its jobs has not ended."""
    return definition is not None and definition.settings.get("on_busy") == "refuse"


def room_of(definition: Definition) -> int:
    """How many jobs of a definition may run at a time; 0 for no limit."""
    most = definition.settings.get("max_concurrent")
    return most if isinstance(most, int) else 0


def addressed(job: NewJob, definition: Definition | None, place: str) -> NewJob:
    """The job for one node or one runner. A definition that refuses a second job does so for each of them by itself."""
    job = job._replace(queue=NODE_QUEUE + place)
    if definition is not None and refuses(definition):
        job = job._replace(unique=UniqueHold(f"{definition_limit(definition.id)}{NODE_QUEUE}{place}"))
    return job


def definition_limit(id: UUID) -> str:
    """The name of a definition's limit."""
    return f"definition/{id}"


def merged_args(schedule: ScheduleRow, definition: Definition | None) -> str:
    """A job's arguments: the definition's, overridden by the schedule's."""
    if definition is None:
        return schedule.args
    return json.dumps({**json.loads(definition.args), **json.loads(schedule.args)})


def _advance(schedule: ScheduleRow, last: datetime | None, following: datetime | None) -> Advance:
    return Advance(schedule.id, schedule.revision, schedule.last_fire_at, last, following)


def _saved(schedule: ScheduleRow) -> TaskData:
    """The task's properties recorded when the schedule was saved."""
    found = schedule.options.get("defaults")
    return found if isinstance(found, Mapping) else {}


def _jitter(schedule: ScheduleRow, fire_at: datetime) -> timedelta:
    """The schedule's jitter for one fire, deterministic so that every worker computes the same."""
    seconds = schedule.options.get("jitter")
    if not isinstance(seconds, int | float) or seconds <= 0:
        return timedelta(0)
    digest = hashlib.sha256(f"{schedule.id}:{fire_at.isoformat()}".encode()).digest()
    return timedelta(seconds=float(seconds) * int.from_bytes(digest[:8]) / 2**64)


class Evaluation(NamedTuple):
    """The evaluation of one schedule."""

    schedule: ScheduleRow
    definition: Definition | None
    task_data: TaskData | None
    new_id: NewId
    rules: FireRules
    node: str | None = None
    now: datetime | None = None
    busy: str | None = None
    #: Of reactive schedules: the arguments that each fire adds, and the instant from which its job is due.
    arguments: Mapping[datetime, Mapping[str, object]] = {}
    runs_at: datetime | None = None

    def fires(self, due: Catchup, active: Sequence[ActiveJob], parked: Collection[UUID]) -> FirePlan:
        """The due fires, judged in order; the caller fills in the schedule's advance."""
        fires: list[Fired] = []
        jobs: list[NewJob] = []
        cancels: Sequence[ActiveJob] = ()
        if due.skipped_until_at is not None:
            fires.append(self._skipped(due.skipped_until_at, _misfire_words(due)))
        # The misfire policy `all` requests simultaneous fires, so they must not block each other.
        together = isinstance(self.rules.misfire, All)
        living, waiting = len(active), len(parked)
        for fire in due.fires:
            if self.rules.overlap == "cancel" and not together and fire is not due.fires[-1]:
                fires.append(self._skipped(fire.at, f"{OVERLAP} a later fire takes its place"))
                continue
            if self.busy is not None and self.rules.overlap == "skip":
                fires.append(self._skipped(fire.at, f"{OVERLAP} {self.busy}"))
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
        return FirePlan(self.schedule, nowhere, tuple(fires), tuple(jobs), tuple(cancels))

    def _job(self, fire: Fire, waiting: str | None) -> NewJob:
        job = fire_job(self._for(fire), self.definition, self.task_data, fire.at, self.new_id())
        if self.runs_at is not None:
            jitter = _jitter(self.schedule, fire.at)
            job = job._replace(run_at=self.runs_at + jitter if jitter else None)
        if self.node is not None and self.now is not None:
            following = self.rules.next_after(fire.at)
            beyond = None if following is None else self.rules.next_after(following)
            least = self.now + SHORTEST_LIFE
            expires_at = job.expires_at or max(beyond or least, least)
            job = addressed(job, self.definition, self.node)._replace(expires_at=expires_at)
        return job if waiting is None else job._replace(waiting=waiting)

    def _for(self, fire: Fire) -> ScheduleRow:
        """The schedule with the arguments of one fire."""
        given = self.arguments.get(fire.at)
        if not given:
            return self.schedule
        return replace(self.schedule, args=json.dumps({**json.loads(self.schedule.args), **given}))

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
