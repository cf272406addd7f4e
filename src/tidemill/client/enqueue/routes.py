"""The routes by which jobs are made, in one table, and what all of them share.

A route decides where new jobs are written. Hooks, limits, audit entries, wake-ups and events are applied here, in
``Enqueuer``, for every route alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from tidemill.archive.contents import read_archived
from tidemill.client.access import enqueued_entries
from tidemill.client.enqueue.limit_cache import LimitCache
from tidemill.client.enqueue.options import (
    NO_OPTIONS,
    CallOptions,
    Template,
    audited_by,
    check_changes_nothing_else,
    collector_for,
)
from tidemill.client.enqueue.writes import AsyncBatcher, Batcher, key_taken, put, snapshot, wake, write
from tidemill.client.own_connection import aenqueue_on, alook_on, enqueue_on, look_on
from tidemill.domain.decide import Action, expected, move
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Enqueued, JobRow, Move, NewJob
from tidemill.domain.large_values import SpilledText
from tidemill.domain.record import Record
from tidemill.domain.states import JobState
from tidemill.domain.unique import Unique
from tidemill.errors import JobExists, StoreError
from tidemill.stores.base import Store
from tidemill.stores.large_values import stored_job
from tidemill.tasks.ambient import COLLECTOR, JOB, TENANT, Collector, scoped_tenant
from tidemill.tasks.events import Event
from tidemill.tasks.hooks import carried_out, check_same, stamped
from tidemill.tasks.middleware import HookStep, around, around_async
from tidemill.tasks.task import Declared

if TYPE_CHECKING:
    from tidemill.client.core import Client

Call = tuple[Sequence[Any], Mapping[str, Any]]
Write = Callable[[Sequence[NewJob]], Sequence[Enqueued]]

BATCH = 1_000
"""Maximum number of jobs that ``enqueue_many`` writes in one statement."""

MANY = 400
"""Number of jobs in one call from which the store inserts some while the client builds the rest."""

MOST_ORDERS = 10_000
"""Maximum number of cached orders, one per task and tenant; requests may name many tenants."""

_WAITING = frozenset({JobState.PENDING, JobState.SCHEDULED})
_IS_CREATED = attrgetter("created")  # a generator would cost each call two Python calls more


class _LargeArguments(Exception):
    """A streamed call has a job with large arguments; nothing is stored."""


class Route(NamedTuple):
    """One way to write new jobs."""

    #: the write of this route; None if each caller passes its own transaction to ``Enqueuer.made``
    write: Callable[[Order, Sequence[NewJob]], Sequence[Enqueued]] | None
    #: the write on an event loop; None runs ``write`` in a thread
    awrite: Callable[[Order, Sequence[NewJob]], Awaitable[Sequence[Enqueued]]] | None = None
    #: whether the answer of the write is final, so that unique conflicts are settled and events published now
    final: bool = True
    #: whether other rows refer to the jobs, so that hooks may not add, remove or renumber them
    fixed: bool = False
    #: whether hooks end before the write, which then says which jobs are new
    hooks_first: bool = False


@dataclass(slots=True)
class Order:
    """One call that makes jobs of one task: its options, and the route that its jobs take."""

    declared: Declared
    call: CallOptions
    route: Route
    store: Store
    limits: LimitCache
    template: Template
    by: str | None = None  #: the identity for the audit, if the call or its task asks for an audit record
    block: Collector | None = None
    batcher: Batcher | None = None
    async_batcher: AsyncBatcher | None = None
    is_limited: bool = False
    write: Callable[[Order, Sequence[NewJob]], Sequence[Enqueued]] = field(init=False)

    def __post_init__(self) -> None:
        assert self.route.write is not None  # a call never takes a route without one
        self.write = self.route.write


class Enqueuer:
    """Makes jobs for a client. Its caches depend on the client's stores and clock."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._hooks, self._events = client.hooks, client.events
        self._monotonic = client.clock.monotonic
        placement = client.placement
        self._only = placement.default if placement.is_single else None  # the name, if there is one store
        self._lock = threading.Lock()
        self._limits: dict[str, LimitCache] = {}
        self._batchers: dict[str, Batcher] = {}
        self._async_batchers: dict[str, AsyncBatcher] = {}
        self._orders: dict[tuple[int, str | None, str], Order] = {}

    def limits(self, store: str | None) -> LimitCache:
        """Return the cached limits of that store."""
        name = self._client.store_name(store)
        found = self._limits.get(name)
        if found is None:
            made = LimitCache(self._client.store(name), self._client.clock, self._client.rules)
            found = self._limits.setdefault(name, made)
        return found

    def forget_limits(self) -> None:
        """Drop the cached limits after a change, so that the next call reads them again."""
        for limits in list(self._limits.values()):
            limits.forget()

    # From a call -------------------------------------------------------------------------------------------------------

    def enqueue(
        self, declared: Declared, call: CallOptions, calls: Sequence[Call]
    ) -> tuple[str, list[JobRow | NewJob]]:
        """Store the jobs of these calls and return them, or the existing jobs that hold their unique keys.

        The first part of the answer is the name of their store.
        """
        if self._client.open_transaction is not None:
            call = self._joined(call, self._client.open_transaction)
        place = self._place(declared, call)
        if call.connection is not None:
            look_on(call.connection, self._client.store(place))
        order = self._order(declared, call, len(calls), place)
        if order.route is ROUTES["stream"]:
            answer = self._stream(order, calls)
        else:
            jobs = self._built(order, calls)
            answer = self._run(order, jobs) if jobs else []
        if self._only is None and self._client.placement.is_unchecked(place):
            self._client.placement.warn_unserved(place, self._client.pin)
        return place, answer

    def _place(self, declared: Declared, call: CallOptions) -> str:
        """Return the name of the store that the jobs of a call go to."""
        if self._only is not None and call.store is None:
            return self._only
        return self._client.place_of_call(declared, call)

    def _joined(self, call: CallOptions, source: Callable[[], object | None]) -> CallOptions:
        """Return the options with the user's connection, if a framework reports an open transaction on it."""
        if call.connection is not None or call.store is not None or COLLECTOR.get() is not None:
            return call
        connection = source()
        return call if connection is None else replace(call, connection=connection)

    def build(self, declared: Declared, call: CallOptions, calls: Sequence[Call]) -> list[NewJob]:
        """Return the jobs that ``enqueue`` would store, without storing them."""
        return self._built(self._order(declared, call, len(calls), self._place(declared, call)), calls)

    async def aenqueue(
        self, declared: Declared, call: CallOptions, calls: Sequence[Call]
    ) -> tuple[str, list[JobRow | NewJob]]:
        """Async version of ``enqueue``. Middleware runs in a thread, so that it cannot block the event loop.

        Context managers of hooks are entered here, in the caller's own context.
        """
        place = self._place(declared, call)
        if call.connection is not None:
            await alook_on(call.connection, self._client.store(place))
        order = self._order(declared, call, len(calls), place, streams=False)
        if order.limits.asks():
            jobs = await asyncio.to_thread(self._built, order, calls)
        else:
            jobs = self._built(order, calls)
        answer = await self._arun(order, jobs) if jobs else []
        if self._only is None and self._client.placement.is_unchecked(place):
            await self._client.in_thread(self._client.placement.warn_unserved, place, self._client.pin)
        return place, answer

    async def _arun(self, order: Order, jobs: Sequence[NewJob]) -> list[JobRow | NewJob]:
        """Async version of ``_run``."""
        hooks, awrite = self._hooks, order.route.awrite
        if not (hooks.enqueue_managers or hooks.enqueue_middleware):
            if awrite is not None:
                written = await awrite(order, jobs)
            else:
                written = await asyncio.to_thread(order.write, order, jobs)
        else:
            step = HookStep("enqueue", order.declared.name, jobs[0].tenant, jobs)
            answered: Sequence[Enqueued] | None = None
            with hooks.entered(step):
                answered = await self._awrite_inside(order, step)
            jobs, written = step.jobs, carried_out(step, answered)
        if order.call.connection is not None or all(map(_IS_CREATED, written)):
            return self._answered(order, jobs, written)
        answer: list[JobRow | NewJob] = await self._client.in_thread(self._answered, order, jobs, written)
        return answer

    async def _awrite_inside(self, order: Order, step: HookStep) -> Sequence[Enqueued]:
        """Write the jobs of a step inside the middleware."""
        awrite, chain = order.route.awrite, self._hooks.enqueue_middleware
        if awrite is not None and (not chain or order.call.connection is not None):
            answer: Sequence[Enqueued] = await around_async(chain, step, lambda: awrite(order, stamped(step)))
            return answer
        return await asyncio.to_thread(around, chain, step, lambda: order.write(order, stamped(step)))

    def _order(
        self, declared: Declared, call: CallOptions, number: int, place: str, *, streams: bool = True
    ) -> Order:
        """Choose the route of a call; the choice is cached for single jobs that depend on nothing but their task."""
        plain = call is NO_OPTIONS and number == 1 and JOB.get() is None and COLLECTOR.get() is None
        if not plain or self._client.tenant_source is not None or "opentelemetry.trace" in sys.modules:
            return self._new_order(declared, call, number, place, streams=streams)
        key = (id(declared), None if TENANT.get() is None else scoped_tenant(), place)
        order = self._orders.get(key)
        if order is None or order.declared is not declared:
            order = self._new_order(declared, call, number, place, streams=streams)
            if order.by is None:
                if len(self._orders) >= MOST_ORDERS:
                    self._orders.clear()
                self._orders[key] = order
        return order

    def _new_order(
        self, declared: Declared, call: CallOptions, number: int, place: str, *, streams: bool
    ) -> Order:
        client = self._client
        block = collector_for(client, declared, call, place)
        by = audited_by(declared, call)
        unique: Unique | None = call.given("unique", declared.options.unique)
        limits = self.limits(place)
        if block is not None:
            name = "follow_up"
        elif call.connection is not None:
            name = "connection"
            check_changes_nothing_else(unique)
        elif number == 1 and by is None:
            name = "single"
        elif (
            streams and number >= MANY and by is None and unique is None and self._is_silent(declared, limits)
        ):
            name = "stream"
        else:
            name = "batch"
        return Order(
            declared,
            call,
            ROUTES[name],
            client.store(place),
            limits,
            client.template(declared, call),
            by,
            block,
            self._batcher(place) if name == "single" else None,
            self._async_batcher(place) if name == "single" else None,
            declared.options.is_limited,
        )

    def _is_silent(self, declared: Declared, limits: LimitCache) -> bool:
        """Whether no hook and no limit needs to see all the jobs before the first one is written."""
        limits.look(declared)
        return limits.is_silent and not self._hooks.on_enqueue

    def _built(self, order: Order, calls: Sequence[Call]) -> list[NewJob]:
        make = order.template.job
        jobs = [make(args, kwargs) for args, kwargs in calls]
        limits = order.limits
        # A worker only enforces limits that are in the store, so the first call of a task stores its limits.
        if jobs and (order.is_limited or not limits.is_silent or self._monotonic() >= limits.due_at):
            limits.look(order.declared)
            return limits.admitted(order.declared, jobs)
        return jobs

    def admitted(self, declared: Declared, jobs: list[NewJob]) -> list[NewJob]:
        """Return jobs of one task that were built elsewhere, after the checks of limits; stores the limits of the task."""
        limits = self.limits(self._client.store_name(None, jobs[0].tenant))
        limits.look(declared)
        return limits.admitted(declared, jobs)

    def _stream(self, order: Order, calls: Sequence[Call]) -> list[JobRow | NewJob]:
        """Build jobs while the store inserts earlier ones; the call stores all of them or none."""
        jobs = list[NewJob]()

        def made() -> Iterator[NewJob]:
            for args, kwargs in calls:
                job = order.template.job(args, kwargs)
                jobs.append(job)
                if type(job.args) is SpilledText:
                    raise _LargeArguments
                yield job

        try:
            written = order.store.enqueue(made())
        except _LargeArguments:
            # Large arguments are written in the transaction of their jobs, which cannot be streamed.
            jobs += [order.template.job(args, kwargs) for args, kwargs in calls[len(jobs) :]]
            return self._answered(order, jobs, _batch(order, jobs))
        wake(order.store, jobs[:1], len(jobs))
        return self._answered(order, jobs, written)

    # Shared by all routes ----------------------------------------------------------------------------------------------

    def _run(self, order: Order, jobs: Sequence[NewJob]) -> list[JobRow | NewJob]:
        """Write jobs by their route inside the hooks, and answer with the stored ones."""
        hooks = self._hooks
        if not (hooks.enqueue_managers or hooks.enqueue_middleware):
            return self._answered(order, jobs, order.write(order, jobs))
        step = HookStep("enqueue", order.declared.name, jobs[0].tenant, jobs)
        written = hooks.enqueue(step, lambda changed: order.write(order, changed))
        return self._answered(order, step.jobs, written)

    def made(self, name: str, jobs: Sequence[NewJob], write: Write) -> list[NewJob]:
        """Store jobs of one task that were not built from a call but from a schedule or a definition.

        ``name`` is the route, and ``write`` its transaction. The jobs that it reports as created are published and
        returned, and workers are notified about them.
        """
        route, hooks = ROUTES[name], self._hooks
        if route.hooks_first:
            jobs = hooks.pass_through(jobs)
            written = write(jobs)
        elif hooks.on_enqueue:
            step = HookStep("enqueue", jobs[0].task, jobs[0].tenant, jobs)
            written = hooks.enqueue(step, write)
            if route.fixed:
                check_same(step, jobs)
            jobs = step.jobs
        else:
            written = write(jobs)
        new = [job for job, answer in zip(jobs, written, strict=True) if answer.created]
        self.publish(new)
        if new:
            with contextlib.suppress(StoreError):  # a lost notification only causes a delay
                wake(self._client.store(None), new)
        return new

    def _answered(
        self, order: Order, jobs: Sequence[NewJob], written: Sequence[Enqueued]
    ) -> list[JobRow | NewJob]:
        """Return the stored jobs; apply the conflict rule to each job whose unique key was already taken."""
        if not order.route.final or (not self._events.wanted and all(map(_IS_CREATED, written))):
            return [
                job if type(job.args) is not SpilledText else _without_content(order, job) for job in jobs
            ]
        answers: list[JobRow | NewJob] = []
        for job, enqueued in zip(jobs, written, strict=True):
            if not enqueued.created:
                answers.append(self._settle(order, job, enqueued.id))
                continue
            answers.append(_without_content(order, job))
            self.publish([job])
        return answers

    def publish(self, jobs: Sequence[NewJob]) -> None:
        """Publish jobs that were just stored."""
        if self._events.wanted:
            for job in jobs:
                seen = snapshot(job, self._client.clock.now())
                state = JobState.WAITING if job.waiting is not None else seen.state
                self._events.publish(
                    Event("job.enqueued", seen.created_at, job.id, job.task, job.tenant, state)
                )

    # Unique conflicts --------------------------------------------------------------------------------------------------

    def _settle(self, order: Order, job: NewJob, holder: UUID) -> JobRow | NewJob:
        """Resolve a unique key conflict: return, replace or delay the job that holds the key, or raise JobExists."""
        rule: Unique = order.call.given("unique", order.declared.options.unique)
        store = order.store
        if order.call.connection is not None and rule.on_conflict != "raise":
            # Only the caller's open transaction may see the holder, so its id is all that is known here.
            return job._replace(id=holder)
        if rule.on_conflict == "raise":
            raise key_taken(job, holder)
        if rule.on_conflict == "replace":
            replaced = self._replace(order, job, holder)
            if replaced is not None:
                return replaced
        if rule.on_conflict == "extend":
            now = self._client.clock.now()
            wait = snapshot(job, now).run_at - now
            if wait > timedelta(0):
                later = Move(
                    holder, job.tenant, _WAITING, JobState.SCHEDULED, "postponed by a later call", wait
                )
                store.move([later])
        found = store.get([holder], tenant=ALL_TENANTS)
        if found:
            return self._retried(store, found[0]) if rule.failed == "retry" else found[0]
        (again,) = put(store, [job], order.by)  # the holder was deleted after the conflict
        if again.created:
            self.publish([job])
            return job
        return (
            self._left(store, job, holder, order.declared)
            if again.id == holder
            else self._settle(order, job, again.id)
        )

    def _retried(self, store: Store, holder: JobRow) -> JobRow:
        """Reopen the holder of a key if it ended without a result; the later call needs one."""
        if holder.state not in expected(Action.RETRY):
            return holder
        if store.move([move(holder, Action.RETRY, "retried by a later call")], now=self._client.pin):
            store.notify([f"ready:{holder.queue}"])
        return next(iter(store.get([holder.id], tenant=ALL_TENANTS)), holder)

    def _replace(self, order: Order, job: NewJob, holder: UUID) -> JobRow | NewJob | None:
        """Cancel the waiting holder of the key and store the job; None if the holder is no longer waiting."""
        store = order.store
        away = Move(
            holder, job.tenant, _WAITING, JobState.CANCELLED, f"replaced by job {job.id}", lets_go=True
        )
        with store.transaction():
            again = write(store, [job], order.by)[0] if store.move([away]) else None
        if again is None:
            return None
        wake(store, [job])
        if not again.created:
            return self._settle(order, job, again.id)
        self.publish([job])
        return job

    def _left(self, store: Store, job: NewJob, holder: UUID, declared: Declared) -> JobRow:
        """Return the archived copy of a job that keeps its unique key until the window ends.

        A job that left nothing behind was equal to the given one, and has completed.
        """
        copies = store.archived([holder], tenant=ALL_TENANTS)
        kept = copies[0] if copies else self._client.archived(holder, tenant=ALL_TENANTS, store=None)
        if kept is None and declared.record(job.details) is Record.NONE:
            seen = snapshot(job._replace(id=holder), self._client.clock.now())
            return replace(seen, state=JobState.COMPLETED, reason="completed; record='none' keeps nothing")
        if kept is None:
            raise JobExists(
                f"job {holder} of task {job.task}, which is no longer stored, holds the same unique key until its window ends",
                id=holder,
                task=job.task,
            )
        return read_archived(kept)

    # Group commit ------------------------------------------------------------------------------------------------------

    def _batcher(self, store: str) -> Batcher:
        with self._lock:
            found = self._batchers.get(store)
            if found is None:
                found = self._batchers[store] = Batcher(partial(put, self._client.store(store)))
            return found

    def _async_batcher(self, store: str) -> AsyncBatcher:
        with self._lock:
            found = self._async_batchers.get(store)
            if found is None:
                write = partial(put, self._client.store(store))
                found = self._async_batchers[store] = AsyncBatcher(write, self._client.executor)
            return found


def _without_content(order: Order, job: NewJob) -> NewJob:
    """Return the job as it was stored; a handle must not keep large arguments in memory."""
    if type(job.args) is not SpilledText:
        return job
    place = None if order.call.connection is not None else order.store.blob_url
    return job._replace(args=str(job.args if place is None else job.args.placed(place)))


# The writes of the routes ----------------------------------------------------------------------------------------------


def _single(order: Order, jobs: Sequence[NewJob]) -> list[Enqueued]:
    assert order.batcher is not None
    return order.batcher.submit(jobs)


def _asingle(order: Order, jobs: Sequence[NewJob]) -> Awaitable[list[Enqueued]]:
    assert order.async_batcher is not None
    return order.async_batcher.submit(jobs)


def _batch(order: Order, jobs: Sequence[NewJob]) -> list[Enqueued]:
    if len(jobs) <= BATCH:
        return put(order.store, jobs, order.by)
    lots = [jobs[at : at + BATCH] for at in range(0, len(jobs), BATCH)]
    with order.store.transaction():
        return [enqueued for lot in lots for enqueued in put(order.store, lot, order.by)]


def _on_connection(order: Order, jobs: Sequence[NewJob]) -> list[Enqueued]:
    return enqueue_on(order.call.connection, order.store, jobs, by=order.by)


def _aon_connection(order: Order, jobs: Sequence[NewJob]) -> Awaitable[list[Enqueued]]:
    return aenqueue_on(order.call.connection, order.store, jobs, by=order.by)


def _collect(order: Order, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Add these jobs to the running job's block, with their audit entries if the call asks for them."""
    assert order.block is not None
    jobs = [stored_job(order.store, job) for job in jobs]
    written = [Enqueued(job.id, True) for job in jobs]
    audit = []
    if order.by is not None:
        audit = [
            (job.id, entry)
            for job, answer in zip(jobs, written, strict=True)
            for entry in enqueued_entries([job], [answer], order.by)
        ]
    order.block.add(jobs, audit)
    return written


async def _acollect(order: Order, jobs: Sequence[NewJob]) -> list[Enqueued]:
    if any(type(job.args) is SpilledText for job in jobs):
        jobs = await asyncio.to_thread(lambda: [stored_job(order.store, job) for job in jobs])
    return _collect(order, jobs)


ROUTES: dict[str, Route] = {
    "single": Route(_single, _asingle),
    "batch": Route(_batch),
    "stream": Route(_batch),
    "connection": Route(_on_connection, _aon_connection),
    "follow_up": Route(_collect, _acollect, final=False),
    "trigger": Route(None, fixed=True),
    "backfill": Route(None, fixed=True, hooks_first=True),
}
"""Every way to make a job.

``single``: one job, which shares a commit with concurrent calls. ``batch``: several jobs, or audited ones. ``stream``:
many plain jobs, written while they are built. ``connection``: in the user's own transaction. ``follow_up``: collected
by ``ctx.transaction()`` or ``ctx.then`` and written with the completion of the running job. ``trigger``: by hand, from
a schedule or a definition. ``backfill``: the missed fires of a schedule.
"""
