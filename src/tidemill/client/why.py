"""Why a job is not running: the reasons in sentences, the most important first, each with a code for programs.

``explain`` asks the store a few bounded questions; ``reasons`` makes the answer of them and is a function of its arguments.
Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.client.loads import serving
from tidemill.client.stats import held_by_worker, liveness
from tidemill.client.why_limits import NO_STANDINGS, Standings, at_text, full_limits, standings
from tidemill.domain.archival import LEASE as ARCHIVE
from tidemill.domain.cluster import Worker, WorkerState
from tidemill.domain.filters import JobFilter, Sort
from tidemill.domain.job import Job
from tidemill.domain.ledger import Pause, PauseKind, Setting
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.stores.base import Store

LOOK = 200
"""Pending jobs that are looked at one by one to find a job's place; beyond that they are only counted."""

COUNTED = 10_000
"""And no more than so many are counted: who waits behind them need not know it to the last."""

SOON = timedelta(seconds=15)
"""How late a promotion may be before it is worth a word."""


class Reason(NamedTuple):
    """Why, as a stable code and as a sentence."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is around a job that bears on when it runs."""

    workers: Sequence[Worker] = ()
    pauses: Sequence[Pause] = ()
    held: Mapping[UUID, int] = field(default_factory=dict)  #: jobs in each worker's hands
    ahead: int | None = None  #: pending jobs that are claimed before it
    ahead_at_least: bool = False  #: there may be more than that
    reclaimer: str | None = None  #: who does the duties, if anybody does
    limits: Standings = NO_STANDINGS
    switched_off: Setting | None = None  #: the setting by which no worker claims anything


def explain(store: Store, job: Job, now: datetime) -> list[Reason]:
    """Why this job is not running, or what has become of it."""
    if job.state in ENDED or job.state is JobState.REVIEW_NEEDED:
        return reasons(job, Surroundings(), now)
    workers = store.workers()
    held = [lease for lease in store.leases() if lease.expires_at is not None and lease.expires_at > now]
    leases = [lease for lease in held if lease.name != ARCHIVE]
    names = {worker.id: worker.name for worker in workers}
    reclaimer = next((names.get(lease.holder, str(lease.holder)) for lease in leases if lease.holder), None)
    off = next(
        (each for each in store.settings() if each.key == "worker_enabled" and each.value is False), None
    )
    if job.state is not JobState.PENDING:
        around = Surroundings(workers, store.pauses(), reclaimer=reclaimer, switched_off=off)
        return reasons(job, around, now)
    ahead, more = _ahead(store, job)
    around = Surroundings(
        workers,
        store.pauses(),
        held=held_by_worker(store),
        ahead=ahead,
        ahead_at_least=more,
        reclaimer=reclaimer,
        limits=standings(store, job),
        switched_off=off,
    )
    return reasons(job, around, now)


def _ahead(store: Store, job: Job) -> tuple[int, bool]:
    """How many pending jobs of its queue and tenant come before it, and whether that is only a lower bound."""
    same = JobFilter(job.tenant, states=frozenset({JobState.PENDING}), queues=frozenset({job.queue}))
    page = store.jobs(same, sort=Sort.OLDEST, limit=LOOK)
    place = (-job.priority, job.run_at, job.id)
    before = sum(1 for other in page.items if (-other.priority, other.run_at, other.id) < place)
    if page.next is None:
        return before, False
    older = JobFilter(job.tenant, states=same.states, queues=same.queues, created_before=job.created_at)
    return max(before, sum(store.count(older, most=COUNTED).values())), True


def reasons(job: Job, around: Surroundings, now: datetime) -> list[Reason]:
    """The reasons these facts give, the most important first; never none."""
    if job.state in ENDED:
        return [_ended(job, now)]
    if job.state in HELD:
        return list(_held(job, around, now))
    if job.state is JobState.REVIEW_NEEDED:
        asked = _stop(f"It waits for a person's decision: {job.reason or 'no reason was given'}")
        return [Reason("review_needed", f"{asked} Approve or reject it.")]
    found = list(_unheld(job, around, now))
    return found or [Reason("soon", "Nothing holds it back; a worker should claim it within seconds.")]


def _ended(job: Job, now: datetime) -> Reason:
    when = "" if job.finished_at is None else f" {_long(now - job.finished_at)} ago"
    why = f": {job.reason}" if job.reason else ""
    again = "" if job.state is JobState.COMPLETED else " A retry would give it another chain of attempts."
    return Reason("ended", _stop(f"It has ended: {job.state}{when}{why}") + again)


# In a worker's hands ---------------------------------------------------------------------------------------------------


def _held(job: Job, around: Surroundings, now: datetime) -> Iterator[Reason]:
    worker = next((other for other in around.workers if other.id == job.worker), None)
    if worker is None or not alive(worker, now):
        yield _orphan(job, worker, around, now)
    if job.cancel_reason is not None:
        yield Reason(
            "cancel_requested", f"It was asked to stop ({job.cancel_reason}) and has not done so yet."
        )
    where = _where(worker) if worker is not None else f"worker {job.worker}"
    if job.state is JobState.CLAIMED:
        since = "" if job.claimed_at is None else f" for {_long(now - job.claimed_at)}"
        yield Reason("claimed", f"{where} has claimed it{since} and will start it when a slot is free.")
        return
    since = "" if job.started_at is None else f" for {_long(now - job.started_at)}"
    yield Reason("running", f"It is running on {where}{since}, attempt {job.attempt} of {job.max_attempts}.")
    if job.timeout is not None and job.started_at is not None and now - job.started_at > job.timeout:
        late = _long(now - job.started_at - job.timeout)
        yield Reason("overdue", f"It is {late} over its timeout of {_long(job.timeout)} and will be stopped.")


def _orphan(job: Job, worker: Worker | None, around: Surroundings, now: datetime) -> Reason:
    if worker is None:
        lost = f"worker {job.worker}, which is not known any more"
    elif worker.expires_at is None:
        lost = f"{_where(worker)}, which is gone"
    else:
        lost = f"{_where(worker)}, whose lease ran out {_long(now - worker.expires_at)} ago"
    if around.reclaimer is not None:
        then = f"{around.reclaimer} does the duties and reclaims it within seconds"
    elif any(alive(other, now) for other in around.workers):
        then = "a living worker reclaims it within seconds"
    else:
        then = "no worker is alive to reclaim it; start one"
    return Reason("orphaned", f"It is held by {lost}; {then}.")


# In nobody's hands -----------------------------------------------------------------------------------------------------


def _unheld(job: Job, around: Surroundings, now: datetime) -> Iterator[Reason]:
    if job.expires_at is not None and job.expires_at <= now:
        yield Reason("expired", f"It expired {_long(now - job.expires_at)} ago and will be cancelled.")
    match job.state:
        case JobState.SCHEDULED:
            yield from _scheduled(job, around, now)
        case JobState.WAITING:
            yield from _waiting(job, now)
        case _:
            pass
    if around.switched_off is not None:
        yield _disabled(around.switched_off, now)
    yield from _paused(job, around.pauses, now)
    if job.state is JobState.PENDING:
        yield from (Reason(*found) for found in full_limits(job, around.limits, now))
        yield from _workers(job, around, now)
        if around.ahead:
            at_least = "At least " if around.ahead_at_least else ""
            jobs = "job comes" if around.ahead == 1 else "jobs come"
            line = f"{at_least}{around.ahead:,} pending {jobs} before it in queue {job.queue}"
            yield Reason(
                "behind_others", f"{line} (tenant {job.tenant}, priority {job.priority} and higher)."
            )


def _scheduled(job: Job, around: Surroundings, now: datetime) -> Iterator[Reason]:
    if job.run_at <= now:
        if now - job.run_at > SOON and not any(alive(worker, now) for worker in around.workers):
            said = "no worker is alive to promote it; start one"
        else:
            said = "it is promoted within seconds"
        yield Reason("due", f"It has been due for {_long(now - job.run_at)}; {said}.")
    elif job.attempt > 0:
        why = f" after: {job.reason}" if job.reason else ""
        next_try = f"attempt {min(job.attempt + 1, job.max_attempts)} of {job.max_attempts}"
        wait = f"It waits {_long(job.run_at - now)} for {next_try}, at {at_text(job.run_at)}{why}"
        yield Reason("retrying", _stop(wait))
    else:
        why = f" ({job.reason})" if job.reason else ""
        yield Reason("scheduled", f"It is due in {_long(job.run_at - now)}, at {at_text(job.run_at)}{why}.")


def _waiting(job: Job, now: datetime) -> Iterator[Reason]:
    why = f": {job.reason}" if job.reason else ""
    until = f", until {at_text(job.run_at)} (in {_long(job.run_at - now)})" if job.run_at > now else ""
    yield Reason("waiting", _stop(f"It is suspended{until}{why}"))


def _paused(job: Job, pauses: Sequence[Pause], now: datetime) -> Iterator[Reason]:
    own = {
        PauseKind.ALL: None,
        PauseKind.QUEUE: job.queue,
        PauseKind.TASK: job.task,
        PauseKind.TENANT: job.tenant,
    }
    for kind, name in own.items():
        for pause in pauses:
            if pause.kind is kind and name in (None, pause.name):
                what = "Everything" if name is None else f"Its {kind} {name}"
                by = f" by {pause.paused_by}" if pause.paused_by else ""
                since = "" if pause.paused_at is None else f" {_long(now - pause.paused_at)} ago"
                why = f": {pause.reason}" if pause.reason else ""
                yield Reason(f"paused_{kind}", _stop(f"{what} was paused{by}{since}{why}"))


def _disabled(off: Setting, now: datetime) -> Reason:
    by = f" by {off.updated_by}" if off.updated_by else ""
    since = "" if off.updated_at is None else f" {_long(now - off.updated_at)} ago"
    return Reason(
        "worker_disabled", f"All workers were switched off{by}{since}: the setting worker_enabled is false."
    )


def _workers(job: Job, around: Surroundings, now: datetime) -> Iterator[Reason]:
    living = [worker for worker in around.workers if alive(worker, now)]
    if not living:
        yield Reason("no_workers", "No worker is alive; start one.")
        return
    queue = [worker for worker in living if serving(worker, job.queue)]
    if not queue:
        yield Reason("no_worker_for_queue", f"None of {_count(living)} serves queue {job.queue}.")
        return
    able = [worker for worker in queue if not worker.tasks or job.task in worker.tasks]
    if not able:
        of = "" if len(queue) == len(living) else f" that serve queue {job.queue}"
        yield Reason("no_worker_for_task", f"None of {_count(queue)}{of} knows task {job.task}.")
        return
    active = [worker for worker in able if worker.state is WorkerState.ACTIVE]
    if not active:
        yield Reason(
            "draining", f"All of {_count(able)} that could run it are draining and claim nothing more."
        )
        return
    busy = [worker for worker in active if 0 < worker.concurrency <= around.held.get(worker.id, 0)]
    if len(busy) == len(active):
        held = sum(around.held.get(worker.id, 0) for worker in active)
        slots = sum(worker.concurrency for worker in active)
        yield Reason(
            "busy", f"All of {_count(active)} that could run it are busy: {held} jobs in {slots} slots."
        )


def alive(worker: Worker, now: datetime) -> bool:
    """Whether its lease on life still runs."""
    return liveness(worker, now) != "gone"


# Words -----------------------------------------------------------------------------------------------------------------


def _where(worker: Worker) -> str:
    place = f" on {worker.host}, process {worker.pid}" if worker.host else ""
    return f"worker {worker.name or worker.id}{place}"


def _stop(text: str) -> str:
    """A sentence that ends, whatever the words at its end were."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _count(workers: Sequence[Worker]) -> str:
    return "the 1 living worker" if len(workers) == 1 else f"the {len(workers)} living workers"


def _long(duration: timedelta) -> str:
    """A duration in words of one unit.

    >>> _long(timedelta(seconds=90))
    '90 seconds'
    """
    seconds = max(duration.total_seconds(), 0.0)
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}s"
    whole = round(seconds)
    return f"{whole} second{'' if whole == 1 else 's'}"
