"""Settings of a worker: slots, durations and limits, validated on construction."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

from tidemill.domain.bounds import check_queue
from tidemill.domain.cluster import LEASE_BEAT, LEASE_EXPIRY, WORKER_BEAT, WORKER_EXPIRY, Coordination
from tidemill.domain.durations import read_duration
from tidemill.domain.misfits import NEWER_CODE_WAIT
from tidemill.engine.process_memory import resident_memory
from tidemill.errors import BadSettings

_ZERO = timedelta(0)

TRUSTED = 12.0
"""Seconds after the leader's last tick for which a worker relies on the leader to announce missed work."""

SELDOM = 30.0
"""Seconds between polls while a worker relies on the leader's ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of one worker. Durations are ``timedelta``; ``read_settings`` also accepts seconds."""

    queues: tuple[str, ...] | None = None  #: queues that the worker serves; None: every queue
    concurrency: int = 100  #: coroutines that run at a time
    threads: int = 10  #: functions that run at a time
    children: int = 2  #: jobs that run in child processes at a time
    pumps: int = 2  #: connections that claim and finish; 1 where several runners share a machine
    poll: timedelta = timedelta(seconds=5)  #: interval of polling without wake-ups
    #: how much work, in run time, is claimed ahead of free slots
    buffer: timedelta = timedelta(milliseconds=100)
    batch: int = 500  #: most jobs per claim
    grace: timedelta = timedelta(seconds=25)  #: how long a stop waits for running jobs
    patience: timedelta = timedelta(seconds=5)  #: how long a job may take to stop after it was asked to
    #: how long a job whose arguments do not fit waits for newer code
    newer_code_wait: timedelta = NEWER_CODE_WAIT
    beat: timedelta = WORKER_BEAT  #: interval of the worker's heartbeat
    expiry: timedelta = WORKER_EXPIRY  #: length of the worker's lease, which a heartbeat renews
    lease_beat: timedelta = LEASE_BEAT  #: interval at which the leader renews its lease
    lease_expiry: timedelta = LEASE_EXPIRY  #: length of the leader's lease
    #: how long a worker leads before it passes the leader's lease on; None: until it ends
    lease_rotation: timedelta | None = None
    lease_per_duty: bool = False  #: a lease for each duty, so that several processes share the duties
    coordination: Coordination | None = None  #: which workers run the duties; None: the store's default
    #: how long a runner may send no message before it is replaced
    silence: timedelta = timedelta(seconds=120)
    max_jobs: int | None = None  #: a runner is replaced after this many jobs
    max_age: timedelta | None = None  #: a runner is replaced after this time
    max_memory: int | None = None  #: a runner is replaced above this many bytes of resident memory

    def __post_init__(self) -> None:
        for name in ("concurrency", "threads", "children"):
            _at_least(name, getattr(self, name), 0)
        for name in ("pumps", "batch"):
            _at_least(name, getattr(self, name), 1)
        if self.concurrency + self.threads + self.children < 1:
            raise BadSettings("a worker without any slot runs nothing; give concurrency or threads")
        for queue in self.queues or ():
            check_queue(queue)
        if self.queues is not None and not self.queues:
            raise BadSettings("a worker without a queue claims nothing; leave queues out to take them all")
        for name in ("poll", "beat", "expiry", "lease_beat", "lease_expiry", "silence"):
            if getattr(self, name) <= _ZERO:
                raise BadSettings(f"{name} is {getattr(self, name)}; give a duration longer than zero")
        self._check_leases()
        for name in ("grace", "patience", "buffer", "newer_code_wait"):
            if getattr(self, name) < _ZERO:
                raise BadSettings(f"{name} is {getattr(self, name)}; give zero or longer")
        for beat, expiry in (("beat", "expiry"), ("lease_beat", "lease_expiry")):
            if getattr(self, beat) * 3 > getattr(self, expiry):
                raise BadSettings(
                    f"{beat} is {getattr(self, beat)} and {expiry} {getattr(self, expiry)}; the expiry must be at least three beats long"
                )

    def _check_leases(self) -> None:
        if self.lease_rotation is not None and self.lease_rotation < self.lease_expiry:
            raise BadSettings(
                f"lease_rotation is {self.lease_rotation}; give at least lease_expiry, which is {self.lease_expiry}"
            )
        if self.coordination in (None, Coordination.LEASE):
            return
        for name, value in (("lease_rotation", self.lease_rotation), ("lease_per_duty", self.lease_per_duty)):
            if value:
                raise BadSettings(
                    f"{name} needs coordination 'lease', and coordination is {self.coordination.value!r}"
                )


def read_settings(given: dict[str, Any]) -> WorkerSettings:
    """Build settings from user input: durations as users give them, a list for queues, a string for the coordination."""
    known = {field.name: field for field in fields(WorkerSettings)}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise BadSettings(
            f"a worker has no setting {unknown[0]!r}; there are {', '.join(sorted(known))}",
            setting=unknown[0],
        )
    values = {name: value for name, value in given.items() if value is not None}
    for name, value in values.items():
        if "timedelta" in str(known[name].type):
            values[name] = read_duration(name, value, setting=name)
    if isinstance(values.get("queues"), str):
        values["queues"] = [part.strip() for part in values["queues"].split(",") if part.strip()]
    if "queues" in values:
        values["queues"] = tuple(values["queues"])
    if "coordination" in values:
        values["coordination"] = _coordination(values["coordination"])
    return WorkerSettings(**values)


def check_embedded(settings: WorkerSettings) -> None:
    """Reject settings that need a supervisor: the user's own process cannot be replaced."""
    for name in ("max_jobs", "max_age", "max_memory"):
        if getattr(settings, name) is not None:
            option = "--" + name.replace("_", "-")
            raise BadSettings(
                f"{name}: a worker inside your process cannot be replaced; run it with: tidemill worker APP {option}",
                setting=name,
            )


def check_memory_limit(settings: WorkerSettings) -> None:
    """Reject ``max_memory`` where the system does not report the memory use of a process."""
    if settings.max_memory is not None and resident_memory(os.getpid()) is None:
        raise BadSettings(
            "max_memory needs Linux: this system does not report the memory use of a process; leave it out, and limit "
            "the memory with your service manager",
            setting="max_memory",
        )


def fitted(settings: WorkerSettings, url: str) -> WorkerSettings:
    """Return the settings adapted to the store at this URL: coordination of the duties and number of connections."""
    many = url.startswith("postgres")
    leads = many or settings.lease_rotation is not None or settings.lease_per_duty
    return replace(
        settings,
        # A leader saves queries to a database server. Querying a file or a dictionary costs next to nothing.
        coordination=settings.coordination or (Coordination.LEASE if leads else Coordination.EVERYONE),
        pumps=settings.pumps if many else 1,  # other stores have one writer at a time
    )


def _coordination(word: str) -> Coordination:
    try:
        return Coordination(word)
    except ValueError:
        raise BadSettings(f"coordination is {word!r}; choose one of {', '.join(Coordination)}") from None


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise BadSettings(f"{name} is {value}; give {least} or more")


def default_processes() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
