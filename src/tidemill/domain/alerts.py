"""Alert conditions and their thresholds, evaluated on a snapshot of the system."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from tidemill.domain.bounds import span_words
from tidemill.domain.records import Pause, PauseKind
from tidemill.domain.stats import Depth, TaskBacklog

_NAMED = 3
"""Lost workers that an alert names."""

_TASKS = 20
"""Unknown tasks with an alert of their own."""

PREFIX = "alerts."
"""Prefix of the settings that hold thresholds: ``alerts.failure_rate``, ``alerts.queue_depth``…"""


LOST_FOR = timedelta(minutes=15)
"""How long a lost worker is reported."""


class Severity(StrEnum):
    """How urgent an alert is."""

    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Alert:
    """One condition beyond its threshold. ``code`` is stable for the same condition and ``subject``."""

    code: str
    severity: Severity
    text: str
    value: float
    threshold: float
    subject: str | None = None  #: the queue or lease it is about
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The highest acceptable values. Rates are fractions, times are seconds."""

    failure_rate: float = 0.10  #: share of failed jobs among those that ended in the last hour
    failure_sample: float = 10  #: the failure rate is not evaluated below this number of ended jobs
    stuck_after: float = 300  #: without progress; a job with a timeout must also have used 80 % of it
    queue_depth: float = 100  #: jobs that wait in one queue
    queue_age: float = 900  #: time since the first job of a queue that is not paused became due
    orphans: float = 0  #: jobs held by workers that are gone
    dead_letters: float = 0  #: jobs dead-lettered in the last hour
    lost_workers: float = 0  #: workers that crashed or lost their lease in the last 15 minutes
    leader_fresh: float = 30  #: a leader counts as alive while its heartbeat is younger than this
    leader_stuck: float = 300  #: a live leader must perform a duty within this time
    schedule_late: float = 120  #: time since a schedule should have fired
    flow_stalled: float = 3_600  #: time in which a flow with a pending job must make progress
    cascade_age: float = 60  #: time in which a job that can no longer start must be skipped
    unknown_task: float = 120  #: time since a job of a task that no living worker knows became due
    signal_age: float = 86_400  #: time in which a job must take a signal


class LostWorker(NamedTuple):
    """A worker that crashed or whose lease ran out, and when it sent its last heartbeat."""

    name: str
    beat_at: datetime


class QueueFact(NamedTuple):
    """A queue, the number of its waiting jobs, since when the oldest has been due, and whether a pause holds all of them."""

    name: str
    depth: int
    oldest_at: datetime | None
    is_paused: bool = False


def waiting_queues(depths: Iterable[Depth], pauses: Sequence[Pause], tenant: str) -> Iterator[QueueFact]:
    """Yield the queues with waiting jobs. All of them are paused in the view of a paused tenant."""
    names = {pause.name for pause in pauses if pause.kind is PauseKind.QUEUE}
    whole = any(pause.kind is PauseKind.TENANT and pause.name == tenant for pause in pauses)
    for depth in depths:
        is_paused = whole or depth.queue in names
        yield QueueFact(depth.queue, depth.pending + depth.late, depth.oldest_at, is_paused)


class LeaderFact(NamedTuple):
    """A held lease: when it was acquired, its holder's last heartbeat, and when one of its duties last ran.

    ``every`` is the interval of the duty that runs most often.
    """

    name: str
    acquired_at: datetime
    beat_at: datetime
    active_at: datetime | None
    every: timedelta = timedelta(0)


class FlowFact(NamedTuple):
    """A flow without progress: its id, its name, and since when one of its jobs could have begun, at least."""

    id: str
    name: str
    since: datetime


class MismatchFact(NamedTuple):
    """An archive policy whose latest run found copies that differ from what was written."""

    policy: str
    since: datetime


class LateSchedule(NamedTuple):
    """A schedule that has not fired although it was due."""

    key: str
    due_at: datetime


class OpenBreaker(NamedTuple):
    """A circuit breaker that holds jobs back."""

    name: str
    opened_at: datetime | None


@dataclass(frozen=True, slots=True)
class AlertInput:
    """The facts. A stuck job is given by its last sign of progress, an orphan by its worker's last heartbeat."""

    now: datetime
    completed: int = 0
    failed: int = 0
    dead: int = 0  #: dead-lettered within the window
    window: timedelta = timedelta(hours=1)  #: period in which ended jobs are counted
    queues: tuple[QueueFact, ...] = ()
    stuck: tuple[datetime, ...] = ()
    orphans: tuple[datetime, ...] = ()
    workers: int = 0
    lost: tuple[LostWorker, ...] = ()  #: within ``LOST_FOR``
    enabled: bool = True
    paused_at: datetime | None = None  #: since when all queues are paused
    leaders: tuple[LeaderFact, ...] = ()
    mismatches: tuple[MismatchFact, ...] = ()
    schedules: tuple[LateSchedule, ...] = ()  #: that are due
    breakers: tuple[OpenBreaker, ...] = ()
    stalled: tuple[FlowFact, ...] = ()
    unreachable: int = 0  #: waiting jobs that can no longer start
    unreachable_at: datetime | None = None  #: when the first of them was noted
    unknown: tuple[TaskBacklog, ...] = ()  #: tasks that no living worker knows, the longest waiting first
    unread: int = 0  #: signals that their jobs have not taken
    unread_at: datetime | None = None  #: when the first of them was sent


def read_thresholds(
    settings: Mapping[str, object], given: Thresholds | None = None
) -> tuple[Thresholds, list[Alert]]:
    """The thresholds, overridden by settings. An invalid setting changes nothing and raises an alert itself.

    >>> read_thresholds({"alerts.queue_depth": 500, "other": 1})[0].queue_depth
    500.0
    """
    base = given or Thresholds()
    if given is not None:
        return base, []
    known = {field.name for field in fields(Thresholds)}
    changes: dict[str, float] = {}
    wrong: list[Alert] = []
    for key, value in sorted(settings.items()):
        if not key.startswith(PREFIX):
            continue
        name = key.removeprefix(PREFIX)
        if name in known and isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            changes[name] = float(value)
            continue
        why = (
            f"is {value!r}; expected a number of at least 0"
            if name in known
            else f"is unknown; expected one of {', '.join(sorted(known))}"
        )
        wrong.append(Alert("bad_setting", Severity.WARNING, f"the setting {key} {why}", 1, 0, key))
    return replace(base, **changes), wrong


def alerts(inputs: AlertInput, limits: Thresholds) -> list[Alert]:
    """All alerts, critical ones first."""
    found = [alert for check in _CHECKS for alert in check(inputs, limits)]
    return sorted(
        found, key=lambda alert: (alert.severity is not Severity.CRITICAL, alert.code, alert.subject or "")
    )


def unserved_store(name: str, waiting: int, *, served: bool) -> list[Alert]:
    """Return the alert about another store of an app in which jobs wait and no worker is alive."""
    if served or not waiting:
        return []
    text = f"no living worker serves the store {name!r} while jobs are waiting in it; start one: tidemill worker --stores {name}"
    return [Alert("unserved_store", Severity.CRITICAL, text, waiting, 0, name)]


def silent_store(name: str, error: str) -> Alert:
    """Return the alert about another store of an app that does not answer."""
    return Alert(
        "store_unavailable", Severity.CRITICAL, f"store {name!r} does not answer: {error}", 1, 0, name
    )


def _failure_rate(inputs: AlertInput, limits: Thresholds) -> Iterator[Alert]:
    ended = inputs.completed + inputs.failed
    if ended and ended >= limits.failure_sample and inputs.failed / ended > limits.failure_rate:
        rate = inputs.failed / ended
        text = (
            f"{inputs.failed} of {ended} jobs failed ({rate:.0%}) in the last {_span(inputs.window)};"
            " see tidemill stats failures and errors"
        )
        yield Alert("failure_rate", Severity.CRITICAL, text, rate, limits.failure_rate)


def _stuck(inputs: AlertInput, limits: Thresholds) -> Iterator[Alert]:
    if inputs.stuck:
        first = min(inputs.stuck)
        value = (inputs.now - first).total_seconds()
        jobs = "1 job has" if len(inputs.stuck) == 1 else f"{len(inputs.stuck)} jobs have"
        quiet = span_words(timedelta(seconds=limits.stuck_after))
        text = f"{jobs} been running without progress for more than {quiet}; see tidemill stats stuck"
        yield Alert("stuck_jobs", Severity.WARNING, text, value, limits.stuck_after, since=first)


def _depth(inputs: AlertInput, limits: Thresholds) -> Iterator[Alert]:
    for queue in inputs.queues:
        if queue.depth > limits.queue_depth:
            text = f"{_jobs(queue.depth)} waiting in queue {queue.name}"
            yield Alert(
                "queue_depth",
                Severity.WARNING,
                text,
                queue.depth,
                limits.queue_depth,
                queue.name,
                queue.oldest_at,
            )
        # A pause is a decision of the operator, and its jobs are not late.
        if queue.oldest_at is not None and not queue.is_paused and inputs.paused_at is None:
            age = (inputs.now - queue.oldest_at).total_seconds()
            if age > limits.queue_age:
                text = f"the first job in queue {queue.name} has been due for {_seconds(age)}"
                yield Alert(
                    "queue_age", Severity.WARNING, text, age, limits.queue_age, queue.name, queue.oldest_at
                )


def _workers(inputs: AlertInput, _: Thresholds) -> Iterator[Alert]:
    waiting = sum(queue.depth for queue in inputs.queues)
    since = _first(queue.oldest_at for queue in inputs.queues)
    if not inputs.enabled:
        text = "workers are disabled by the setting worker_enabled; set it to true to enable them"
        yield Alert("worker_disabled", Severity.CRITICAL, text, waiting, 0)
    elif waiting and inputs.paused_at is not None:
        text = f"everything is paused while {_jobs(waiting)} waiting; resume to start them"
        yield Alert("worker_disabled", Severity.WARNING, text, waiting, 0, since=inputs.paused_at)
    if waiting and not inputs.workers:
        text = f"no worker is alive while {_jobs(waiting)} waiting; start one: tidemill worker"
        yield Alert("no_workers", Severity.CRITICAL, text, waiting, 0, since=since)


def _orphans(inputs: AlertInput, limits: Thresholds) -> Iterator[Alert]:
    number = len(inputs.orphans)
    if number > limits.orphans:
        text = (
            f"{_jobs(number)} held by workers that are gone and not reclaimed yet; see tidemill stats orphans"
        )
        yield Alert("orphans", Severity.WARNING, text, number, limits.orphans, since=_first(inputs.orphans))


def _lost(inputs: AlertInput, limits: Thresholds) -> Iterator[Alert]:
    number = len(inputs.lost)
    if number > limits.lost_workers:
        names = ", ".join(sorted(worker.name for worker in inputs.lost)[:_NAMED])
        more = f" and {number - _NAMED} more" if number > _NAMED else ""
        text = f"{'1 worker' if number == 1 else f'{number} workers'} disappeared without stopping in the last 15 minutes: {names}{more}; see tidemill workers list --all"
        since = _first(worker.beat_at for worker in inputs.lost)
        yield Alert("lost_workers", Severity.WARNING, text, number, limits.lost_workers, since=since)


def _dead(inputs: AlertInput, limits: Thresholds) -> Iterator[Alert]:
    if inputs.dead > limits.dead_letters:
        jobs = "1 job was" if inputs.dead == 1 else f"{inputs.dead} jobs were"
        text = f"{jobs} dead-lettered in the last {_span(inputs.window)}; see tidemill stats dead-letters"
        yield Alert("dead_letters", Severity.WARNING, text, inputs.dead, limits.dead_letters)


def _leaders(inputs: AlertInput, limits: Thresholds) -> Iterator[Alert]:
    """Report leaders that send heartbeats but have performed no duty for a long time: their duty loop hangs."""
    for leader in inputs.leaders:
        silent = (inputs.now - leader.beat_at).total_seconds()
        active_at = max(leader.active_at or leader.acquired_at, leader.acquired_at)
        idle = (inputs.now - active_at).total_seconds()
        # A duty that runs seldom is late after twice its interval.
        patience = max(limits.leader_stuck, 2 * leader.every.total_seconds())
        if silent <= limits.leader_fresh and idle > patience:
            text = (
                f"the holder of lease {leader.name} is alive but has performed none of its duties for {_seconds(idle)};"
                f" restart it, or release the lease: tidemill leases release {leader.name}"
            )
            yield Alert("stuck_leader", Severity.CRITICAL, text, idle, patience, leader.name, active_at)


def _mismatches(inputs: AlertInput, _: Thresholds) -> Iterator[Alert]:
    for mismatch in inputs.mismatches:
        text = (
            f"archive policy {mismatch.policy} read back copies that differ from what it wrote, and deleted nothing;"
            " check the store of the archive, then run tidemill archive run"
        )
        yield Alert("archive_mismatch", Severity.CRITICAL, text, 1, 0, mismatch.policy, mismatch.since)


def _late(inputs: AlertInput, limits: Thresholds) -> Iterator[Alert]:
    for schedule in inputs.schedules:
        late = (inputs.now - schedule.due_at).total_seconds()
        if late > limits.schedule_late:
            text = (
                f"schedule {schedule.key} should have fired {_seconds(late)} ago;"
                " see whether a worker performs the duties: tidemill leases list"
            )
            yield Alert(
                "schedule_late",
                Severity.CRITICAL,
                text,
                late,
                limits.schedule_late,
                schedule.key,
                schedule.due_at,
            )


def _breakers(inputs: AlertInput, _: Thresholds) -> Iterator[Alert]:
    for breaker in inputs.breakers:
        name = breaker.name.removeprefix("breaker/")
        text = f"the circuit breaker {name} is open and holds its jobs back; see tidemill limits list"
        yield Alert("breaker_open", Severity.WARNING, text, 1, 0, name, breaker.opened_at)


def _flows(inputs: AlertInput, limits: Thresholds) -> Iterator[Alert]:
    """Report flows without progress, and jobs that should have been skipped."""
    for flow in inputs.stalled:
        text = (
            f"flow {flow.name} has made no progress for more than {_seconds(limits.flow_stalled)} although a node is"
            f" ready; see tidemill flows show {flow.id}"
        )
        age = (inputs.now - flow.since).total_seconds()
        yield Alert("stalled_flow", Severity.WARNING, text, age, limits.flow_stalled, flow.name, flow.since)
    if inputs.unreachable and inputs.unreachable_at is not None:
        age = (inputs.now - inputs.unreachable_at).total_seconds()
        if age > limits.cascade_age:
            text = (
                f"{_jobs(inputs.unreachable)} waiting for jobs that ended in another way, and were not skipped for"
                f" {_seconds(age)}; check that a worker performs the duties: tidemill leases list"
            )
            yield Alert(
                "late_cascade", Severity.WARNING, text, age, limits.cascade_age, since=inputs.unreachable_at
            )


def _signals(inputs: AlertInput, limits: Thresholds) -> Iterator[Alert]:
    if inputs.unread and inputs.unread_at is not None:
        age = (inputs.now - inputs.unread_at).total_seconds()
        if age > limits.signal_age:
            signals = "1 signal has" if inputs.unread == 1 else f"{inputs.unread} signals have"
            text = f"{signals} not been taken, the oldest for {_seconds(age)}; see tidemill signals list"
            yield Alert(
                "unread_signals", Severity.WARNING, text, age, limits.signal_age, since=inputs.unread_at
            )


def _unknown_tasks(inputs: AlertInput, limits: Thresholds) -> Iterator[Alert]:
    """Report tasks that no living worker knows: the longest waiting ones by name, and the others together."""
    late = [
        backlog
        for backlog in inputs.unknown
        if (inputs.now - backlog.oldest_at).total_seconds() > limits.unknown_task
    ]
    cure = "deploy the code that has it, give the new name of a renamed task aliases=[…], or cancel the jobs"
    for backlog in late[:_TASKS]:
        age = (inputs.now - backlog.oldest_at).total_seconds()
        text = (
            f"{_jobs(backlog.pending)} waiting for task {backlog.task}, which no living worker knows, the first for"
            f" {_seconds(age)}; {cure}"
        )
        yield Alert(
            "unknown_task",
            Severity.WARNING,
            text,
            backlog.pending,
            0,
            backlog.task,
            backlog.oldest_at,
        )
    if rest := late[_TASKS:]:
        waiting, first = sum(backlog.pending for backlog in rest), rest[0].oldest_at
        tasks = "1 more task" if len(rest) == 1 else f"{len(rest)} more tasks"
        text = f"{_jobs(waiting)} waiting for {tasks} that no living worker knows; see tidemill doctor"
        yield Alert("unknown_task", Severity.WARNING, text, waiting, 0, since=first)


def _span(window: timedelta) -> str:
    """A window as it reads after "in the last".

    >>> _span(timedelta(hours=1)), _span(timedelta(minutes=90))
    ('hour', '90 minutes')
    """
    return span_words(window).removeprefix("1 ")


def _seconds(seconds: float) -> str:
    """A duration in whole units.

    >>> _seconds(59.6), _seconds(1000), _seconds(10_000)
    ('60 seconds', '16 minutes', '2 hours')
    """
    for name, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {name}s"
    return f"{seconds:.0f} seconds"


def _jobs(number: int) -> str:
    return "1 job is" if number == 1 else f"{number} jobs are"


def _first(instants: Iterable[datetime | None]) -> datetime | None:
    return min((instant for instant in instants if instant is not None), default=None)


_CHECKS = (
    _failure_rate,
    _stuck,
    _depth,
    _workers,
    _lost,
    _orphans,
    _dead,
    _leaders,
    _mismatches,
    _late,
    _breakers,
    _flows,
    _unknown_tasks,
    _signals,
)
