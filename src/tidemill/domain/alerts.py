"""When operators should be told: conditions with thresholds, judged from facts that somebody else has gathered. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

PREFIX = "alerts."
"""What the keys of the settings that hold thresholds begin with: ``alerts.failure_rate``, ``alerts.queue_depth``…"""


class Severity(StrEnum):
    """How soon somebody should look."""

    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing that is not as it should be. ``code`` stays the same for the same condition and ``subject``."""

    code: str
    severity: Severity
    text: str
    value: float
    threshold: float
    subject: str | None = None  #: the queue or lease it is about
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What is still all right; beyond it an alert is raised. Rates are fractions, times are seconds."""

    failure_rate: float = 0.10
    failure_sample: float = 10  #: fewer ends than this say nothing about a rate
    stuck_after: float = 300
    queue_depth: float = 100
    queue_age: float = 900  #: since the first in line is due
    orphans: float = 0
    dead_letters: float = 0  #: newly dead within the window
    leader_fresh: float = 30  #: a leader whose heartbeat is younger is alive
    leader_stuck: float = 300  #: and should have done a duty within this


class QueueFact(NamedTuple):
    """A queue, what waits in it, and since when."""

    name: str
    depth: int
    oldest_at: datetime | None


class LeaderFact(NamedTuple):
    """A lease that is held: since when, when its holder last beat, and when one of its duties was last done."""

    name: str
    acquired_at: datetime
    beat_at: datetime
    active_at: datetime | None


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts. Held jobs are told by the time they started, orphans by when their worker was last heard of."""

    now: datetime
    completed: int = 0
    failed: int = 0
    dead: int = 0  #: dead-lettered within the window
    queues: tuple[QueueFact, ...] = ()
    stuck: tuple[datetime, ...] = ()
    orphans: tuple[datetime, ...] = ()
    workers: int = 0
    enabled: bool = True
    paused_at: datetime | None = None  #: everything is
    leaders: tuple[LeaderFact, ...] = ()


def read_thresholds(
    settings: Mapping[str, object], given: Thresholds | None = None
) -> tuple[Thresholds, list[Alert]]:
    """The thresholds with those that settings change; a setting that cannot be read is an alert itself, and changes nothing.

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
            f"is {value!r}; give a number from 0 on"
            if name in known
            else f"is unknown; there are {', '.join(sorted(known))}"
        )
        wrong.append(Alert("bad_setting", Severity.WARNING, f"the setting {key} {why}", 1, 0, key))
    return replace(base, **changes), wrong


def alerts(facts: Situation, limits: Thresholds) -> list[Alert]:
    """Everything that is beyond its threshold, the critical first."""
    found = [alert for check in _CHECKS for alert in check(facts, limits)]
    return sorted(
        found, key=lambda alert: (alert.severity is not Severity.CRITICAL, alert.code, alert.subject or "")
    )


def _failure_rate(facts: Situation, limits: Thresholds) -> Iterator[Alert]:
    ended = facts.completed + facts.failed
    if ended and ended >= limits.failure_sample and facts.failed / ended > limits.failure_rate:
        rate = facts.failed / ended
        text = f"{facts.failed} of {ended} jobs failed ({rate:.0%}); see tidemill stats failures and errors"
        yield Alert("failure_rate", Severity.CRITICAL, text, rate, limits.failure_rate)


def _stuck(facts: Situation, limits: Thresholds) -> Iterator[Alert]:
    if facts.stuck:
        first = min(facts.stuck)
        value = (facts.now - first).total_seconds()
        text = f"{_jobs(len(facts.stuck))} running for longer than {limits.stuck_after:g} s; see tidemill stats stuck"
        yield Alert("stuck_jobs", Severity.WARNING, text, value, limits.stuck_after, since=first)


def _depth(facts: Situation, limits: Thresholds) -> Iterator[Alert]:
    for queue in facts.queues:
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
        if queue.oldest_at is not None:
            age = (facts.now - queue.oldest_at).total_seconds()
            if age > limits.queue_age:
                text = f"the first job in queue {queue.name} has been due for {age:.0f} s"
                yield Alert(
                    "queue_age", Severity.WARNING, text, age, limits.queue_age, queue.name, queue.oldest_at
                )


def _workers(facts: Situation, _: Thresholds) -> Iterator[Alert]:
    waiting = sum(queue.depth for queue in facts.queues)
    since = _first(queue.oldest_at for queue in facts.queues)
    if not facts.enabled:
        text = "workers are disabled by the setting worker_enabled; set it to true to go on"
        yield Alert("worker_disabled", Severity.CRITICAL, text, waiting, 0)
    elif waiting and facts.paused_at is not None:
        text = f"everything is paused while {_jobs(waiting)} waiting; resume when it may go on"
        yield Alert("worker_disabled", Severity.WARNING, text, waiting, 0, since=facts.paused_at)
    if waiting and not facts.workers:
        text = f"no worker is alive while {_jobs(waiting)} waiting; start one: tidemill worker"
        yield Alert("no_workers", Severity.CRITICAL, text, waiting, 0, since=since)


def _orphans(facts: Situation, limits: Thresholds) -> Iterator[Alert]:
    number = len(facts.orphans)
    if number > limits.orphans:
        text = f"{_jobs(number)} held by workers that are gone, and not yet reclaimed; see tidemill stats orphans"
        yield Alert("orphans", Severity.WARNING, text, number, limits.orphans, since=_first(facts.orphans))


def _dead(facts: Situation, limits: Thresholds) -> Iterator[Alert]:
    if facts.dead > limits.dead_letters:
        text = f"{facts.dead} more dead-lettered; see tidemill stats dead-letters"
        yield Alert("dead_letters", Severity.WARNING, text, facts.dead, limits.dead_letters)


def _leaders(facts: Situation, limits: Thresholds) -> Iterator[Alert]:
    """Alive by its heartbeat, long in office, and nothing done: the loop beside the heartbeat hangs."""
    for leader in facts.leaders:
        silent = (facts.now - leader.beat_at).total_seconds()
        active_at = max(leader.active_at or leader.acquired_at, leader.acquired_at)
        idle = (facts.now - active_at).total_seconds()
        if silent <= limits.leader_fresh and idle > limits.leader_stuck:
            text = (
                f"the holder of lease {leader.name} is alive and has done none of its duties for {idle:.0f} s;"
                f" restart it, or take the lease away: tidemill leases release {leader.name}"
            )
            yield Alert(
                "stuck_leader", Severity.CRITICAL, text, idle, limits.leader_stuck, leader.name, active_at
            )


def _jobs(number: int) -> str:
    return "1 job is" if number == 1 else f"{number} jobs are"


def _first(instants: Iterable[datetime | None]) -> datetime | None:
    return min((each for each in instants if each is not None), default=None)


_CHECKS = (_failure_rate, _stuck, _depth, _workers, _orphans, _dead, _leaders)
