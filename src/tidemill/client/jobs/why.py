"""Reasons why a job is not running, most important first, each with a stable code.

``explain`` makes a few bounded reads from the store. ``reasons`` is a pure function of their results. Nothing here
writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.client.stats.loads import held_by_worker, is_living, serving
from tidemill.domain.breaker import BreakerPhase, phase_at, read
from tidemill.domain.cluster import DUTIES, Worker, WorkerState, duty_lease_name, holder_of, is_active
from tidemill.domain.filters import JobFilter, Sort
from tidemill.domain.flow_states import SKIP_REASON, SKIPPED, node_label
from tidemill.domain.job import JobRow
from tidemill.domain.large_values import is_reference
from tidemill.domain.limits import LimitKind, Rule, Rules, Use, opens_at, room, rule_of
from tidemill.domain.misfits import is_misfit
from tidemill.domain.records import Pause, PauseKind, Setting
from tidemill.domain.signals import QUESTION
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.stores.base import Store

_RECLAIMS = (DUTIES, duty_lease_name("reclaim"))
"""The leases whose holder reclaims the jobs of dead workers."""


class LimitUsage(NamedTuple):
    """The limit rules, and the usage of the limits that apply to one job."""

    rules: Rules
    uses: Mapping[str, Use]


NO_STANDINGS = LimitUsage({}, {})


def names_against(job: JobRow, rules: Rules) -> list[str]:
    """Return the limits that apply to a job: its own, and those of its queue and its tenant."""
    around = [name for name in (f"queue/{job.queue}", f"tenant/{job.tenant}") if rule_of(name, rules)]
    return list(dict.fromkeys((*job.limits, *around)))


def standings(store: Store, job: JobRow) -> LimitUsage:
    """Read the rules and the usage of a job's limits; a store without rules is asked only for the rules."""
    rules = {rule.name: rule for rule in store.rules()}
    names = [name for name in names_against(job, rules) if rule_of(name, rules) is not None]
    return LimitUsage(rules, {use.name: use for use in store.uses(rules, names)} if names else {})


def full_limits(job: JobRow, limits: LimitUsage, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield each limit that blocks the job now, as a code and a sentence."""
    for name in names_against(job, limits.rules):
        rule, use = rule_of(name, limits.rules), limits.uses.get(name)
        if rule is None or use is None:
            continue
        at = use.now or now
        if room(rule, use, at) > 0:
            continue
        match rule.kind:
            case LimitKind.RATE:
                yield "rate_full", _rate(name, rule, use, at)
            case LimitKind.BREAKER:
                yield "breaker_open", _breaker(name, rule, use, at)
            case _:
                are = "is" if use.used == 1 else "are"
                yield "limit_full", f"Limit {name} is full: {use.used} of {rule.max} {are} running."


def _rate(name: str, rule: Rule, use: Use, now: datetime) -> str:
    assert rule.per is not None
    per = f"{rule.per.total_seconds():g} s"
    sentence = f"Rate {name} is used up: {rule.max} begin in {per}"
    if rule.burst is not None:
        sentence = f"{sentence}, {rule.burst} at once"
    opens = opens_at(rule, use, now)
    return (
        f"{sentence}."
        if opens is None
        else f"{sentence}; there is room in {_wait(opens, now)}, at {at_text(opens)}."
    )


def _breaker(name: str, rule: Rule, use: Use, now: datetime) -> str:
    thing = name.partition("/")[2]
    standing = read(use.breaker)
    if phase_at(use.breaker, now) is BreakerPhase.HALF_OPEN:
        probes = "1 job tries" if use.used == 1 else f"{use.used} jobs try"
        return f"The breaker {thing} is half open: {probes} whether {thing} works again; the others wait."
    since = "" if standing.opened_at is None else f" since {at_text(standing.opened_at)}"
    opens = opens_at(rule, use, now)
    then = "" if opens is None else f"; it is tried again in {_wait(opens, now)}, at {at_text(opens)}"
    return f"The breaker {thing} is open{since}: too many jobs failed{then}."


def _wait(instant: datetime, now: datetime) -> str:
    seconds = max((instant - now).total_seconds(), 0.0)
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def at_text(instant: datetime) -> str:
    """Format an instant for a sentence."""
    return instant.strftime("%Y-%m-%d %H:%M:%S UTC")


LOOK = 200
"""Number of pending jobs that are compared individually to find a job's position; the rest are only counted."""

COUNTED = 10_000
"""Maximum number of pending jobs that are counted; an exact position behind them is not needed."""

SOON = timedelta(seconds=15)
"""Delay of a promotion above which a missing worker is reported as its cause."""


class Reason(NamedTuple):
    """A reason as a stable code and a sentence."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class WhyInput:
    """Conditions outside a job that affect when it runs."""

    workers: Sequence[Worker] = ()
    pauses: Sequence[Pause] = ()
    held: Mapping[UUID, int] = field(default_factory=dict)  #: number of jobs that each worker holds
    ahead: int | None = None  #: pending jobs that are claimed before it
    ahead_at_least: bool = False  #: whether ``ahead`` is only a lower bound
    reclaimer: str | None = None  #: name of the lease holder that runs the duties, if any
    limits: LimitUsage = NO_STANDINGS
    switched_off: Setting | None = None  #: the setting that stops all workers from claiming


def explain(store: Store, job: JobRow, now: datetime, store_name: str | None = None) -> list[Reason]:
    """Return why this job is not running, or how it ended. ``store_name`` is given if the app has several stores."""
    found = _explain(store, job, now)
    if store_name is None:
        return found
    text = f"No living worker serves the store {store_name!r}; start one with --stores {store_name}."
    return [reason._replace(text=text) if reason.code == "no_workers" else reason for reason in found]


def _explain(store: Store, job: JobRow, now: datetime) -> list[Reason]:
    if job.state in ENDED or job.state is JobState.REVIEW_NEEDED:
        return reasons(job, WhyInput(), now)
    workers = store.workers()
    leases = [lease for lease in store.leases() if lease.held(now) and lease.name in _RECLAIMS]
    holders = [(lease, holder_of(lease, workers)) for lease in leases]
    reclaimer = next(
        (holder.name or str(lease.holder) for lease, holder in holders if holder is not None), None
    )
    off = next(
        (
            setting
            for setting in store.settings()
            if setting.key == "worker_enabled" and setting.value is False
        ),
        None,
    )
    if job.state is JobState.WAITING:
        needs = list(_message_reasons(store, job, now))
        from tidemill.client.flows.why import flow_reasons  # few jobs wait for others

        needs += [Reason(*found) for found in flow_reasons(store, job, now)]
        if needs:
            around = WhyInput(workers, store.pauses(), reclaimer=reclaimer, switched_off=off)
            return needs + [found for found in reasons(job, around, now) if found.code != "waiting"]
    if job.state is not JobState.PENDING:
        around = WhyInput(workers, store.pauses(), reclaimer=reclaimer, switched_off=off)
        return reasons(job, around, now)
    ahead, more = _ahead(store, job)
    around = WhyInput(
        workers,
        store.pauses(),
        held=held_by_worker(store),
        ahead=ahead,
        ahead_at_least=more,
        reclaimer=reclaimer,
        limits=standings(store, job),
        switched_off=off,
    )
    return [*_unfit(store, job), *reasons(job, around, now)]


def _unfit(store: Store, job: JobRow) -> Iterator[Reason]:
    """Yield how the arguments differ from those that workers have recorded for the task."""
    for record in store.declared_tasks([job.task]):
        problems = [] if is_reference(job.args) else record.problems(job.args)
        if problems:
            seen = "" if record.seen_at is None else f" on {at_text(record.seen_at)}"
            yield Reason(
                "arguments_unfit",
                _stop(
                    f"Its arguments do not fit task {job.task} as a worker recorded it{seen}: {'; '.join(problems)}"
                ),
            )


def _ahead(store: Store, job: JobRow) -> tuple[int, bool]:
    """Count the pending jobs of its queue and tenant that come before it; also return whether that is a lower bound."""
    same = JobFilter(job.tenant, states=frozenset({JobState.PENDING}), queues=frozenset({job.queue}))
    page = store.jobs(same, sort=Sort.OLDEST, limit=LOOK)
    place = (-job.priority, job.run_at, job.id)
    before = sum(1 for other in page.items if (-other.priority, other.run_at, other.id) < place)
    if page.next is None:
        return before, False
    older = JobFilter(job.tenant, states=same.states, queues=same.queues, created_before=job.created_at)
    return max(before, sum(store.count(older, most=COUNTED).values())), True


def reasons(job: JobRow, around: WhyInput, now: datetime) -> list[Reason]:
    """Return the reasons that follow from these facts, most important first; never empty."""
    if job.archived_at is not None:
        archived = Reason(
            "archived", f"It was archived {job.archived_at:%Y-%m-%d %H:%M} UTC and cannot be changed."
        )
        return [_ended(job, now), archived]
    if job.state in ENDED:
        return [_ended(job, now)]
    if job.state in HELD:
        return list(_held(job, around, now))
    if job.state is JobState.REVIEW_NEEDED:
        asked = _stop(f"It waits for a person's decision: {job.reason or 'no reason was given'}")
        return [Reason("review_needed", f"{asked} Approve or reject it.")]
    found = list(_unheld(job, around, now))
    return found or [Reason("soon", "Nothing holds it back; a worker should claim it within seconds.")]


def _ended(job: JobRow, now: datetime) -> Reason:
    when = "" if job.finished_at is None else f" {_long(now - job.finished_at)} ago"
    why = f": {job.reason}" if job.reason and job.reason != job.state else ""
    attempts = "1 attempt" if job.max_attempts == 1 else f"{job.max_attempts} attempts"
    if node_label(job) == SKIPPED and why.endswith(" is false"):
        return Reason("condition_false", _stop(f"It was skipped{when}{why.replace(SKIP_REASON, '')}"))
    again = "" if job.state is JobState.COMPLETED else f" A retry starts over with {attempts}."
    return Reason("ended", _stop(f"It {_ENDS[job.state]}{when}{why}") + again)


_ENDS = {
    JobState.COMPLETED: "completed",
    JobState.FAILED: "failed",
    JobState.TIMED_OUT: "timed out",
    JobState.CANCELLED: "was cancelled",
    JobState.DEAD_LETTERED: "was dead-lettered",
}


# Held by a worker ------------------------------------------------------------------------------------------------------


def _held(job: JobRow, around: WhyInput, now: datetime) -> Iterator[Reason]:
    worker = next((other for other in around.workers if other.id == job.worker), None)
    if worker is None or not alive(worker, now):
        yield _orphan(job, worker, around, now)
    if job.cancel_reason is not None:
        yield Reason(
            "cancel_requested", f"It was asked to stop ({job.cancel_reason}) and has not done so yet."
        )
    where = _where(worker) if worker is not None else f"worker {job.worker}"
    if job.state is JobState.CLAIMED:
        since = "" if job.claimed_at is None else f" {_long(now - job.claimed_at)} ago"
        yield Reason("claimed", f"It was claimed{since} by {where}, which starts it when a slot is free.")
        return
    since = "" if job.started_at is None else f" for {_long(now - job.started_at)}"
    yield Reason(
        "running", f"It has been running{since} on {where}, attempt {job.attempt} of {job.max_attempts}."
    )
    if job.timeout is not None and job.started_at is not None and now - job.started_at > job.timeout:
        late = _long(now - job.started_at - job.timeout)
        yield Reason("overdue", f"It is {late} over its timeout of {_long(job.timeout)} and will be stopped.")


def _orphan(job: JobRow, worker: Worker | None, around: WhyInput, now: datetime) -> Reason:
    if worker is None:
        lost = f"worker {job.worker}, which is no longer known"
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


# Not held by a worker --------------------------------------------------------------------------------------------------


def _unheld(job: JobRow, around: WhyInput, now: datetime) -> Iterator[Reason]:
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


def _scheduled(job: JobRow, around: WhyInput, now: datetime) -> Iterator[Reason]:
    if job.run_at <= now:
        if now - job.run_at > SOON and not any(alive(worker, now) for worker in around.workers):
            sentence = "no worker is alive to promote it; start one"
        else:
            sentence = "it is promoted within seconds"
        yield Reason("due", f"It has been due for {_long(now - job.run_at)}; {sentence}.")
    elif job.attempt > 0:
        why = f" after: {job.reason}" if job.reason else ""
        next_try = f"attempt {min(job.attempt + 1, job.max_attempts)} of {job.max_attempts}"
        wait = f"It waits {_long(job.run_at - now)} for {next_try}, at {at_text(job.run_at)}{why}"
        yield Reason("retrying", _stop(wait))
    else:
        why = f" ({job.reason})" if job.reason else ""
        yield Reason("scheduled", f"It is due in {_long(job.run_at - now)}, at {at_text(job.run_at)}{why}.")


def _waiting(job: JobRow, now: datetime) -> Iterator[Reason]:
    if is_misfit(job.reason):
        assert job.reason is not None
        again = "a worker looks at it again within seconds"
        if job.run_at > now:
            again = f"the next worker looks at it in {_long(job.run_at - now)}"
        yield Reason("newer_code", f"{job.reason[0].upper()}{job.reason[1:]}; {again}.")
        return
    why = f": {job.reason}" if job.reason else ""
    until = f", until {at_text(job.run_at)} (in {_long(job.run_at - now)})" if job.run_at > now else ""
    yield Reason("waiting", _stop(f"It is suspended{until}{why}"))


def _message_reasons(store: Store, job: JobRow, now: datetime) -> Iterator[Reason]:
    """Yield what a suspended job waits for: signals, events, or the answer of a person."""
    until = f" It continues without it in {_long(job.run_at - now)}." if job.run_at > now else ""
    for wait in store.waits([job.id], tenant=job.tenant):
        if wait.event:
            match = f" that matches {wait.match}" if wait.match else ""
            yield Reason("waits_for_event", f"It waits for an event {wait.name}{match}.{until}")
        elif wait.name.startswith(QUESTION):
            asked = wait.name.removeprefix(QUESTION)
            yield Reason("waits_for_answer", f"It waits for a person to answer {asked}.{until}")
        else:
            yield Reason("waits_for_signal", f"It waits for a signal {wait.name}.{until}")


def _paused(job: JobRow, pauses: Sequence[Pause], now: datetime) -> Iterator[Reason]:
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


def _workers(job: JobRow, around: WhyInput, now: datetime) -> Iterator[Reason]:
    living = [worker for worker in around.workers if alive(worker, now)]
    if not living:
        yield Reason("no_workers", "No worker is alive; start one.")
        return
    queue = [worker for worker in living if serving(worker, job.queue)]
    if not queue:
        text = _none(len(living), "living worker", "serve", f"queue {job.queue}")
        yield Reason("no_worker_for_queue", text)
        return
    able = [worker for worker in queue if not worker.tasks or job.task in worker.tasks]
    if not able:
        of = "" if len(queue) == len(living) else f" for queue {job.queue}"
        text = _none(len(queue), "living worker", "know", f"task {job.task}", of)
        yield Reason("no_worker_for_task", text)
        return
    active = [worker for worker in able if is_active(worker)]
    paused = [worker.name for worker in able if worker.paused and worker.state is WorkerState.ACTIVE]
    if not active and paused:
        state = "paused" if len(paused) == len(able) else "paused or draining"
        yield Reason(
            "workers_paused",
            f"{_all(len(able), state)}, so no worker will claim it; resume one: tidemill workers resume {paused[0]}.",
        )
        return
    if not active:
        yield Reason(
            "draining", f"{_all(len(able), 'draining')}, so no worker will claim it; start another worker."
        )
        return
    busy = [worker for worker in active if 0 < worker.concurrency <= around.held.get(worker.id, 0)]
    if len(busy) == len(active):
        held = sum(around.held.get(worker.id, 0) for worker in active)
        slots = sum(worker.concurrency for worker in active)
        yield Reason(
            "busy",
            f"{_all(len(active), 'busy')}: {held} job{_s(held)} in {slots} slot{_s(slots)}.",
        )


def alive(worker: Worker, now: datetime) -> bool:
    """Whether the worker is alive: its lease has not expired."""
    return is_living(worker, now)


# Formatting ------------------------------------------------------------------------------------------------------------


def _where(worker: Worker) -> str:
    place = f" on {worker.host}, process {worker.pid}" if worker.host else ""
    return f"worker {worker.name or worker.id}{place}"


def _stop(text: str) -> str:
    """Append a full stop unless the text already ends a sentence."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _none(number: int, who: str, verb: str, what: str, of: str = "") -> str:
    """Return a sentence stating that none of ``number`` workers does something.

    >>> _none(1, "living worker", "know", "task send"), _none(3, "living worker", "know", "task send", " for queue mail")
    ('The only living worker does not know task send.', 'None of the 3 living workers for queue mail knows task send.')
    """
    if number == 1:
        return f"The only {who}{of} does not {verb} {what}."
    return f"None of the {number} {who}s{of} {verb}s {what}."


def _all(number: int, state: str) -> str:
    if number == 1:
        return f"The only worker that could run it is {state}"
    return f"All {number} workers that could run it are {state}"


def _s(number: int) -> str:
    return "" if number == 1 else "s"


def _long(duration: timedelta) -> str:
    """Format a duration as a number and one unit.

    >>> _long(timedelta(seconds=90))
    '90 seconds'
    """
    seconds = max(duration.total_seconds(), 0.0)
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}s"
    whole = round(seconds)
    return f"{whole} second{'' if whole == 1 else 's'}"
