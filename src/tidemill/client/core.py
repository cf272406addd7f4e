"""The client behind all handles and bound tasks: builds, stores and reads jobs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from tidemill.client.access import carried, who
from tidemill.client.archive import read_archived
from tidemill.client.enqueue.batcher import AsyncBatcher, Batcher
from tidemill.client.enqueue.builder import Template, tracing
from tidemill.client.enqueue.follow_ups import collect, collector_for
from tidemill.client.enqueue.limit_cache import LimitCache
from tidemill.client.enqueue.options import NO_OPTIONS, CallOptions
from tidemill.client.enqueue.writer import put, snapshot, wake, write
from tidemill.client.own_connection import aenqueue_on, alook_on, enqueue_on, look_on
from tidemill.client.own_connection.dispatch import OwnConnections
from tidemill.client.watch import Waiter
from tidemill.clock import Clock, ManualClock
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Enqueued, JobRow, Move, NewJob
from tidemill.domain.limits import Rule
from tidemill.domain.payload import PayloadLimits
from tidemill.domain.retention import DEFAULT_POLICIES, ArchivedJob, ArchivePolicy
from tidemill.domain.states import JobState
from tidemill.domain.unique import Unique
from tidemill.errors import BadSettings, JobExists, JobNotFound, UsageError
from tidemill.stores.base import Store
from tidemill.tasks.ambient import Collector, current_job, current_tenant
from tidemill.tasks.events import Event, Events
from tidemill.tasks.hooks import Hooks, carried_out, check_same, stamped
from tidemill.tasks.middleware import Step, around, around_async
from tidemill.tasks.registry import Registry
from tidemill.tasks.task import Declared

Call = tuple[Sequence[Any], Mapping[str, Any]]

BATCH = 1_000
"""Maximum number of jobs that ``enqueue_many`` writes in one statement."""

MANY = 400
"""Number of jobs in one call from which the store inserts some while the client builds the rest."""


_OF_THE_STORES = (
    "stores", "clock", "_limiting", "_batchers", "_async_batchers", "_waiting", "_templates", "_pool", "_closing",
)  # fmt: skip
"""Attributes of a client that depend on its stores and its clock."""


class Client:
    """Stores and tasks by name, and the operations that connect them."""

    def __init__(
        self,
        stores: Mapping[str, Store],
        *,
        clock: Clock,
        tenant: str,
        limits: PayloadLimits,
        rules: Mapping[str, Rule] | None = None,
        policies: Sequence[ArchivePolicy] = DEFAULT_POLICIES,
    ) -> None:
        self._use(stores, clock)
        self.tenant = tenant
        self.limits = limits
        self.rules = dict(rules or {})  #: limits that the app itself declares
        self.policies = tuple(policies)  #: which ended jobs are archived, and when
        self.registry = Registry()
        self.events = Events()
        self.hooks = Hooks()
        self._lock = threading.Lock()
        self.connections = OwnConnections(partial(self.store, None))

    def _use(self, stores: Mapping[str, Store], clock: Clock) -> None:
        """Switch to these stores and this clock, and reset everything cached for the previous ones."""
        self.stores = dict(stores)
        self.clock = clock
        self._limiting: dict[str | None, LimitCache] = {}
        self._batchers: dict[str, Batcher] = {}
        self._async_batchers: dict[str, AsyncBatcher] = {}
        self._waiting: dict[str, Waiter] = {}
        self._templates: dict[tuple[str, str | None], Template] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._closing: list[Callable[[], None]] = []

    @contextmanager
    def override(self, stores: Mapping[str, Store], clock: Clock) -> Iterator[None]:
        """Use other stores and another clock inside the block.

        On exit the given stores stay open, and the threads that used them stop.
        """
        kept = {name: getattr(self, name) for name in _OF_THE_STORES}
        self._use(stores, clock)
        try:
            yield
        finally:
            try:
                self._end_threads()
            finally:
                vars(self).update(kept)

    # Stores, caches and threads --------------------------------------------------------------------------------------

    def store(self, name: str | None) -> Store:
        """Return the named store; the default for jobs is ``jobs`` if it is configured, else ``default``."""
        wanted = name or ("jobs" if "jobs" in self.stores else "default")
        try:
            return self.stores[wanted]
        except KeyError:
            raise BadSettings(
                f"there is no store named {wanted!r}; there are {', '.join(sorted(self.stores))}"
            ) from None

    @property
    def pin(self) -> datetime | None:
        """The time to pass to a store: None for the store's own clock, unless the client has a manual clock."""
        return self.clock.now() if isinstance(self.clock, ManualClock) else None

    def waiting(self, name: str | None) -> Waiter:
        """Return the watcher of jobs in that store."""
        with self._lock:
            key = name or ""
            found = self._waiting.get(key)
            if found is None:
                found = self._waiting[key] = Waiter(self.store(name))
            return found

    def limiting(self, name: str | None) -> LimitCache:
        """Return the cached limits of that store."""
        found = self._limiting.get(name)
        if found is None:
            found = self._limiting.setdefault(name, LimitCache(self.store(name), self.clock, self.rules))
        return found

    def executor(self) -> ThreadPoolExecutor:
        """Return the thread pool that runs store calls for coroutines."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(8, thread_name_prefix="tidemill-client")
            return self._pool

    async def in_thread(self, act: Any, *args: Any) -> Any:
        """Run a store call in a thread and await it, with the caller's tenant and identity."""
        return await asyncio.get_running_loop().run_in_executor(self.executor(), carried(act), *args)

    # Enqueueing ------------------------------------------------------------------------------------------------------

    def enqueue(self, declared: Declared, call: CallOptions, calls: Sequence[Call]) -> list[JobRow | NewJob]:
        """Store the jobs of these calls and return them, or the existing jobs that hold their unique keys."""
        if call.connection is not None:
            look_on(call.connection, self.store(call.store))
        block = collector_for(self, declared, call)
        if block is None and len(calls) >= MANY and self._is_plain(declared, call):
            return self._enqueue_meanwhile(declared, call, calls)
        jobs = self._build(declared, call, calls)
        if not jobs:
            return []
        if not self.hooks.on_enqueue:
            written = self._write(declared, jobs, call, block)
            return list(jobs) if block is not None else self._answer(declared, call, jobs, written)
        step = Step("enqueue", declared.name, jobs[0].tenant, jobs)
        written = self.hooks.enqueue(step, lambda changed: self._write(declared, changed, call, block))
        return list(step.jobs) if block is not None else self._answer(declared, call, step.jobs, written)

    def enqueue_made(
        self, jobs: Sequence[NewJob], write: Callable[[Sequence[NewJob]], Sequence[Enqueued]]
    ) -> list[NewJob]:
        """Store jobs of one task that were not built from a call, such as triggered ones.

        The enqueue hooks run around the write, and the jobs are published.
        """
        step = Step("enqueue", jobs[0].task, jobs[0].tenant, jobs)
        if self.hooks.on_enqueue:
            self.hooks.enqueue(step, write)
            check_same(step, jobs)
        else:
            write(jobs)
        self.publish_enqueued(step.jobs)
        return list(step.jobs)

    def _is_plain(self, declared: Declared, call: CallOptions) -> bool:
        """Whether writing can start before all the jobs are built: nothing needs to see the whole list first."""
        limiting = self.limiting(call.store)
        limiting.look(declared)
        return not (
            self.hooks.on_enqueue
            or call.connection is not None
            or call.given("unique", declared.options.unique) is not None
            or not limiting.is_silent
            or _by(declared, call) is not None
        )

    def _enqueue_meanwhile(
        self, declared: Declared, call: CallOptions, calls: Sequence[Call]
    ) -> list[JobRow | NewJob]:
        """Build jobs while the store inserts earlier ones; the call stores all of them or none."""
        template, jobs = self._template(declared, call), list[NewJob]()

        def made() -> Iterator[NewJob]:
            for args, kwargs in calls:
                job = template.job(args, kwargs)
                jobs.append(job)
                yield job

        store = self.store(call.store)
        written = store.enqueue(made())
        wake(store, jobs[:1])
        return self._answer(declared, call, jobs, written)

    async def aenqueue(
        self, declared: Declared, call: CallOptions, calls: Sequence[Call]
    ) -> list[JobRow | NewJob]:
        """Asynchronous twin of ``enqueue``; middleware runs in a thread, so that it cannot block the event loop.

        Context managers of hooks are entered here, in the caller's own context.
        """
        if call.connection is not None:
            await alook_on(call.connection, self.store(call.store))
        block = collector_for(self, declared, call)
        if self.limiting(call.store).asks():
            jobs = await asyncio.to_thread(self._build, declared, call, calls)
        else:
            jobs = self._build(declared, call, calls)
        if not jobs:
            return []
        step = Step("enqueue", declared.name, jobs[0].tenant, jobs)
        answered: list[Enqueued] | None = None
        with self.hooks.entered(step):
            answered = await self._awrite(declared, call, step, block)
        written = carried_out(step, answered)
        if block is not None:
            return list(step.jobs)
        if all(enqueued.created for enqueued in written) or call.connection is not None:
            return self._answer(declared, call, step.jobs, written)
        answer: list[JobRow | NewJob] = await self.in_thread(self._answer, declared, call, step.jobs, written)
        return answer

    async def _awrite(
        self, declared: Declared, call: CallOptions, step: Step, block: Collector | None
    ) -> list[Enqueued]:
        chain, by = self.hooks.enqueue_middleware, _by(declared, call)
        if call.connection is not None:
            store = self.store(call.store)
            answer: list[Enqueued] = await around_async(
                chain, step, lambda: aenqueue_on(call.connection, store, stamped(step), by=by)
            )
            return answer
        if chain or (block is None and (len(step.jobs) > 1 or by is not None)):
            return await asyncio.to_thread(
                around, chain, step, lambda: self._write(declared, stamped(step), call, block)
            )
        if block is not None:
            return collect(block, stamped(step), by)
        return await self._async_batcher(call.store).submit(stamped(step))

    def _build(self, declared: Declared, call: CallOptions, calls: Sequence[Call]) -> list[NewJob]:
        if not calls:
            return []
        rule: Unique | None = call.given("unique", declared.options.unique)
        if call.connection is not None and rule is not None and rule.on_conflict in ("replace", "extend"):
            raise UsageError(
                f"on_conflict={rule.on_conflict!r} changes another job, which a connection= of yours cannot"
            )
        template = self._template(declared, call)
        jobs = [template.job(args, kwargs) for args, kwargs in calls]
        # A worker only enforces limits that are in the store, so the first call of a task stores its limits.
        limiting = self.limiting(call.store)
        limiting.look(declared)
        return jobs if limiting.is_silent else limiting.admitted(declared, jobs)

    @property
    def declares_limits(self) -> bool:
        """Whether a task or the app itself declares a limit."""
        return self.limiting(None).declares(self.registry)

    def declare_limits(self, *, change: bool = True) -> list[str]:
        """Store the limits that the tasks and the app declare.

        Returns the names of stored limits that differ and were left unchanged.
        """
        return self.limiting(None).declare(self.registry, change=change)

    def forget_limits(self) -> None:
        """Drop the cached limits after a change, so that the next call reads them again."""
        for limiting in list(self._limiting.values()):
            limiting.forget()

    def _template(self, declared: Declared, call: CallOptions) -> Template:
        """Return the common part of this task's jobs with these options; cached if it is independent of the context."""
        if call is not NO_OPTIONS or current_job() is not None or tracing():
            return Template(declared, call, tenant=self.tenant, limits=self.limits, clock=self.clock)
        key = (declared.name, current_tenant())
        known = self._templates.get(key)
        if known is None or known.declared is not declared:
            known = Template(declared, call, tenant=self.tenant, limits=self.limits, clock=self.clock)
            self._templates[key] = known
        return known

    def _write(
        self, declared: Declared, jobs: Sequence[NewJob], call: CallOptions, block: Collector | None
    ) -> list[Enqueued]:
        store, by = self.store(call.store), _by(declared, call)
        if block is not None:
            return collect(block, jobs, by)
        if call.connection is not None:
            return enqueue_on(call.connection, store, jobs, by=by)
        if len(jobs) == 1 and by is None:
            return self._batcher(call.store).submit(jobs)
        if len(jobs) <= BATCH:
            return put(store, jobs, by)
        with store.transaction():
            return [
                enqueued
                for at in range(0, len(jobs), BATCH)
                for enqueued in put(store, jobs[at : at + BATCH], by)
            ]

    def _batcher(self, name: str | None) -> Batcher:
        key = name or ""
        found = self._batchers.get(key)
        if found is None:
            with self._lock:
                found = self._batchers.setdefault(key, Batcher(partial(put, self.store(name))))
        return found

    def _async_batcher(self, name: str | None) -> AsyncBatcher:
        with self._lock:
            key = name or ""
            found = self._async_batchers.get(key)
        if found is None:
            found = AsyncBatcher(partial(put, self.store(name)), self.executor)
            with self._lock:
                found = self._async_batchers.setdefault(key, found)
        return found

    def _answer(
        self, declared: Declared, call: CallOptions, jobs: Sequence[NewJob], written: Sequence[Enqueued]
    ) -> list[JobRow | NewJob]:
        """Return the stored jobs; apply the conflict rule to each job whose unique key was already taken."""
        if not self.events.wanted and all(enqueued.created for enqueued in written):
            return list(jobs)
        answers: list[JobRow | NewJob] = []
        for job, enqueued in zip(jobs, written, strict=True):
            if not enqueued.created:
                answers.append(self._settle(declared, call, job, enqueued.id))
                continue
            answers.append(job)
            self.publish_enqueued([job])
        return answers

    def publish_enqueued(self, jobs: Sequence[NewJob]) -> None:
        """Publish jobs that were just stored."""
        if self.events.wanted:
            for job in jobs:
                seen = snapshot(job, self.clock.now())
                state = JobState.WAITING if job.waiting is not None else seen.state
                self.events.publish(
                    Event("job.enqueued", seen.created_at, job.id, job.task, job.tenant, state)
                )

    def publish_acts(self, name: str, jobs: Iterable[JobRow], **data: object) -> None:
        """Publish an action of a person or a program on these jobs, each with its current state."""
        if self.events.wanted:
            now, by = self.clock.now(), who()
            for job in jobs:
                facts = {"by": by, **data}
                self.events.publish(Event(name, now, job.id, job.task, job.tenant, job.state, facts))

    def _settle(self, declared: Declared, call: CallOptions, job: NewJob, holder: UUID) -> JobRow | NewJob:
        """Resolve a unique key conflict: return, replace or delay the job that holds the key, or raise JobExists."""
        rule: Unique = call.given("unique", declared.options.unique)
        store = self.store(call.store)
        waiting = frozenset({JobState.PENDING, JobState.SCHEDULED})
        if call.connection is not None and rule.on_conflict != "raise":
            # Only the caller's open transaction may see the holder, so its id is all that is known here.
            return job._replace(id=holder)
        if rule.on_conflict == "raise":
            raise JobExists(
                f"job {holder} of task {job.task} holds the same unique key", id=holder, task=job.task
            )
        if rule.on_conflict == "replace":
            away = Move(
                holder, job.tenant, waiting, JobState.CANCELLED, f"replaced by job {job.id}", lets_go=True
            )
            with store.transaction():
                again = write(store, [job], _by(declared, call))[0] if store.move([away]) else None
            if again is not None:
                wake(store, [job])
                if not again.created:
                    return self._settle(declared, call, job, again.id)
                self.publish_enqueued([job])
                return job
        if rule.on_conflict == "extend":
            wait = snapshot(job, self.clock.now()).run_at - self.clock.now()
            if wait > timedelta(0):
                store.move(
                    [Move(holder, job.tenant, waiting, JobState.SCHEDULED, "postponed by a later call", wait)]
                )
        found = store.get([holder], tenant=ALL_TENANTS)
        if found:
            return found[0]
        (again,) = put(store, [job], _by(declared, call))  # the holder was deleted after the conflict
        if again.created:
            self.publish_enqueued([job])
            return job
        return (
            self._left(store, job, holder)
            if again.id == holder
            else self._settle(declared, call, job, again.id)
        )

    def _left(self, store: Store, job: NewJob, holder: UUID) -> JobRow:
        """Return the archived copy of a job that keeps its unique key until the window ends."""
        kept = self.stores.get("archive", store).archived([holder], tenant=ALL_TENANTS)
        if not kept:
            raise JobExists(
                f"job {holder} of task {job.task}, which is no longer stored, holds the same unique key until its window ends",
                id=holder,
                task=job.task,
            )
        return read_archived(kept[0])

    # Reading ---------------------------------------------------------------------------------------------------------

    def get(self, id: UUID, *, tenant: str, store: str | None) -> JobRow:
        """Return the job with that id, live or archived, or raise ``JobNotFound``."""
        found = self.store(store).get([id], tenant=tenant)
        if found:
            return found[0]
        kept = self.archived(id, tenant=tenant, store=store)
        if kept is None:
            raise JobNotFound(f"there is no job {id}", id=id)
        return read_archived(kept)

    def archived(self, id: UUID, *, tenant: str, store: str | None) -> ArchivedJob | None:
        """Return the archived copy of a job, if any: from the store named ``archive``, else from the job's store."""
        copies = (self.stores.get("archive") or self.store(store)).archived([id], tenant=tenant)
        return copies[0] if copies else None

    def at_close(self, act: Callable[[], None]) -> None:
        """Register a function that ``close`` calls first, for components that use the client in their own threads."""
        self._closing.append(act)

    def close(self) -> None:
        """Stop the threads and close the stores."""
        self._end_threads()
        for store in self.stores.values():
            store.close()

    def _end_threads(self) -> None:
        for act in self._closing:
            act()
        for waiting in list(self._waiting.values()):
            waiting.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True)


def _by(declared: Declared, call: CallOptions) -> str | None:
    """Return the identity for the audit, if the call or its task asks for an audit record."""
    audited = declared.options.audit if call.audit is None else call.audit
    return who() if audited else None
