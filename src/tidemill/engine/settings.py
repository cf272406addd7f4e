"""How a worker works: slots, times and limits, checked when they are given."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

from tidemill.domain.cluster import LEASE_BEAT, LEASE_EXPIRY, WORKER_BEAT, WORKER_EXPIRY, Coordination
from tidemill.errors import BadSettings
from tidemill.tasks.options import check_queue

_ZERO = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """One worker's settings. Durations are ``timedelta``; numbers may also be given as seconds where they are read."""

    queues: tuple[str, ...] | None = None  #: None: every queue
    concurrency: int = 100  #: coroutines at a time
    threads: int = 10  #: functions at a time
    children: int = 2  #: jobs in processes of their own at a time
    pumps: int = 2  #: connections that claim and finish; 1 where several runners share a machine
    poll: timedelta = timedelta(seconds=5)
    buffer: timedelta = timedelta(milliseconds=100)  #: how much work is claimed ahead of its slot
    batch: int = 500  #: the most jobs of one claim
    grace: timedelta = timedelta(seconds=25)  #: how long a stop waits for running jobs
    patience: timedelta = timedelta(seconds=5)  #: how long a job that was told to stop may take to do so
    beat: timedelta = WORKER_BEAT
    expiry: timedelta = WORKER_EXPIRY
    lease_beat: timedelta = LEASE_BEAT
    lease_expiry: timedelta = LEASE_EXPIRY
    coordination: Coordination | None = None  #: None: as the store prefers
    max_jobs: int | None = None  #: a runner is replaced after so many
    max_age: timedelta | None = None
    max_memory: int | None = None  #: bytes of resident memory

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
        for name in ("poll", "beat", "expiry", "lease_beat", "lease_expiry"):
            if getattr(self, name) <= _ZERO:
                raise BadSettings(f"{name} is {getattr(self, name)}; give a duration longer than zero")
        for name in ("grace", "patience", "buffer"):
            if getattr(self, name) < _ZERO:
                raise BadSettings(f"{name} is {getattr(self, name)}; give zero or longer")
        for beat, expiry in (("beat", "expiry"), ("lease_beat", "lease_expiry")):
            if getattr(self, beat) * 3 > getattr(self, expiry):
                raise BadSettings(
                    f"{beat} is {getattr(self, beat)} and {expiry} {getattr(self, expiry)}; three beats must fit in"
                )


def read_settings(given: dict[str, Any]) -> WorkerSettings:
    """Settings as users write them: seconds for durations, a list for queues, a word for the coordination."""
    known = {field.name: field for field in fields(WorkerSettings)}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise BadSettings(
            f"a worker has no setting {unknown[0]!r}; there are {', '.join(sorted(known))}",
            setting=unknown[0],
        )
    values = {name: value for name, value in given.items() if value is not None}
    for name, value in values.items():
        if "timedelta" in str(known[name].type) and isinstance(value, (int, float)):
            values[name] = timedelta(seconds=value)
    if isinstance(values.get("queues"), str):
        values["queues"] = [part.strip() for part in values["queues"].split(",") if part.strip()]
    if "queues" in values:
        values["queues"] = tuple(values["queues"])
    if "coordination" in values:
        values["coordination"] = _coordination(values["coordination"])
    return WorkerSettings(**values)


def fitted(settings: WorkerSettings, url: str) -> WorkerSettings:
    """The settings for the store at this URL: who does the duties there, and how many connections are worth it."""
    many = url.startswith("postgres")
    return replace(
        settings,
        # One who leads saves queries to a server; a file or a dictionary costs nothing to look at.
        coordination=settings.coordination or (Coordination.LEASE if many else Coordination.EVERYONE),
        pumps=settings.pumps if many else 1,  # elsewhere there is one writer at a time
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
    """One runner for each core this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
