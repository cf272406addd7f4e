"""Store calls that must succeed before a job begins.

They are repeated until the store answers or the worker ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from tidemill.domain.job import NO_DETAILS, Claim
from tidemill.domain.node_results import NO_STARTS, JobStarts
from tidemill.domain.references import INPUTS
from tidemill.domain.states import JobState
from tidemill.engine.exchange.held_job import DECIDED, SUPERSEDED, HeldJob, RunnerServices
from tidemill.engine.executors.kinds import LOOP, PROCESS, THREAD, kind_of
from tidemill.engine.runner.plain_task import PlainTask, plain_task
from tidemill.errors import StoreError
from tidemill.stores.base import Store
from tidemill.tasks.registry import Registry
from tidemill.tasks.task import Declared

_log = logging.getLogger("tidemill.engine")
_SHORTEST_PAUSE, _PAUSE = 0.02, 1.0
T = TypeVar("T")

OFTEN_BACK = 20
"""Number of executions without a charged attempt after which a suspect runs only while no other job runs."""


class StartPatience(Protocol):
    """Tells how long it is worth waiting."""

    @property
    def closed(self) -> bool: ...

    def rest(self, seconds: float) -> None: ...


def starts_of(
    store: Store, claims: Sequence[Claim], patience: StartPatience, read_ahead: JobStarts = NO_STARTS
) -> JobStarts:
    """The details of jobs that have more of them than the claim contains, and the results that they take.

    ``read_ahead`` has those that the store has read with the claim.
    """
    detailed = [claim.id for claim in claims if claim.detailed and claim.id not in read_ahead.details]
    if not detailed:
        return read_ahead
    starts = _patiently(lambda: store.job_starts(detailed), "the arguments of jobs", patience) or NO_STARTS
    if read_ahead is NO_STARTS:
        return starts
    return JobStarts({**read_ahead.details, **starts.details}, {**read_ahead.results, **starts.results})


def held_of(
    claims: Sequence[Claim],
    starts: JobStarts,
    registry: Registry,
    services: RunnerServices,
    *,
    alone: bool,
) -> dict[int, HeldJob]:
    """The claimed jobs with everything needed to run them, by the integer value of their ids."""
    held: dict[int, HeldJob] = {}
    details = starts.details
    tasks: dict[str, tuple[Declared, str, PlainTask | None]] = {}
    for claim in claims:
        task = claim.task
        if task not in tasks:
            declared = registry.get(task)
            kind = kind_of(declared)
            tasks[task] = declared, kind, plain_task(declared) if kind == LOOP else None
        declared, kind, plain = tasks[task]
        if claim.crashes and alone:
            # A suspect runs in its own process. If it causes the crashes, it takes no other job with it.
            kind = PROCESS
        id = claim.id
        asked_with = details.get(id, NO_DETAILS) if details and claim.detailed else NO_DETAILS
        held[id.int] = job = HeldJob(claim, declared, asked_with, services, kind)
        if not claim.detailed:
            job.plain = plain
    if starts.results:
        for job in held.values():
            if INPUTS in job.details.options:
                job.results = starts.results
    return held


def supersede(mine: Sequence[HeldJob], taken: Mapping[int, HeldJob]) -> None:
    """Mark decided jobs that were claimed again with the same token. Requires the lock of the exchange.

    That happens after the database was restored to an earlier state. Without the mark, a pending write of the old
    execution would pass the fence of the new claim. A job without a decided result has no pending write.
    """
    for held in mine:
        if held.phase is DECIDED and held.claim.token == taken[held.claim.id.int].claim.token:
            held.phase = SUPERSEDED


def lots_of(
    jobs: Iterable[HeldJob], back: Collection[HeldJob], *, alone: bool
) -> tuple[dict[str, list[HeldJob]], list[HeldJob]]:
    """Group the jobs that may begin by kind of slot, and return the suspects that must wait until nothing else runs here.

    Without child processes, all suspects must wait. Otherwise only suspects that came back many times must wait: a job
    can kill its runner even from its own child process, and that is only provable while nothing else runs.
    """
    lots: dict[str, list[HeldJob]] = {LOOP: [], THREAD: [], PROCESS: []}
    apart: list[HeldJob] = []
    for held in [held for held in jobs if held not in back] if back else jobs:
        if held.claim.crashes and _must_wait(held.claim, alone=alone):
            apart.append(held)
        else:
            lots[held.kind].append(held)
    return lots, apart


def _must_wait(suspect: Claim, *, alone: bool) -> bool:
    return not alone or suspect.token - suspect.attempt >= OFTEN_BACK


def mark_running(store: Store, jobs: Sequence[HeldJob], patience: StartPatience) -> list[HeldJob]:
    """Record that these jobs are running before they begin; return those that this worker no longer holds.

    This is done for suspects of a crash. If the worker dies while a suspect is only ``claimed``, that suspect is
    innocent.
    """
    waiting = [held for held in jobs if held.claim.state is JobState.CLAIMED]
    if not waiting:
        return []
    lost = _patiently(
        lambda: store.start([held.claim for held in waiting]), "the start of suspects", patience
    )
    if lost is None:
        return waiting
    for held in waiting:
        held.claim = held.claim._replace(state=JobState.RUNNING)
    return [held for held in waiting if held.claim.id in lost]


def _patiently(ask: Callable[[], T], what: str, patience: StartPatience) -> T | None:
    """The store's answer, or None once the worker is closing."""
    pause = _SHORTEST_PAUSE
    while not patience.closed:
        try:
            return ask()
        except StoreError as error:
            _log.debug("%s must wait until the store answers: %s", what, error)
            patience.rest(pause)
            pause = min(2 * pause, _PAUSE)  # start short, because a busy store answers soon
    return None
