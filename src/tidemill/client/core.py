"""The client: what every handle and every bound task shares. Builds jobs, writes them, tells who wants to know."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from tidemill.client.acting import carried, who
from tidemill.client.archived import read_archived
from tidemill.client.batcher import AsyncBatcher, Batcher
from tidemill.client.build import Template, tracing
from tidemill.client.connections import aenqueue_on, enqueue_on
from tidemill.client.limiting import Limiting
from tidemill.client.options import NO_OPTIONS, CallOptions
from tidemill.client.waiting import Waiting
from tidemill.client.writing import put, snapshot, wake, write
from tidemill.clock import Clock, ManualClock
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Enqueued, Job, Move, NewJob
from tidemill.domain.limits import Rule
from tidemill.domain.payload import PayloadLimits
from tidemill.domain.retention import DEFAULT_POLICIES, ArchivePolicy
from tidemill.domain.states import JobState
from tidemill.domain.unique import Unique
from tidemill.errors import BadSettings, JobExists, JobNotFound, UsageError
from tidemill.stores.base import Store
from tidemill.tasks.ambient import current_job, current_tenant, in_transaction
from tidemill.tasks.events import Event, Events
from tidemill.tasks.middleware import Middleware, Step, around, around_async
from tidemill.tasks.registry import Registry
from tidemill.tasks.task import Declared

Call = tuple[Sequence[Any], Mapping[str, Any]]

BATCH = 1_000
"""Jobs of ``enqueue_many`` in one statement."""

MANY = 400
"""Jobs of one call of which some can be written while others are made."""


class Client:
    """Stores by name, tasks by name, and the ways between them."""

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
        self.stores = dict(stores)
        self.clock = clock
        self.tenant = tenant
        self.limits = limits
        self.rules = dict(rules or {})  #: limits that the app itself declares
        self.policies = tuple(policies)  #: what is archived, and when
        self._limiting: dict[str | None, Limiting] = {}
        self.registry = Registry()
        self.events = Events()
        self.middleware: list[Middleware] = []
        self._lock = threading.Lock()
        self._batchers: dict[str, Batcher] = {}
        self._async_batchers: dict[str, AsyncBatcher] = {}
        self._waiting: dict[str, Waiting] = {}
        self._templates: dict[tuple[str, str | None], Template] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._closing: list[Callable[[], None]] = []

    # Parts -----------------------------------------------------------------------------------------------------------

    def store(self, name: str | None) -> Store:
        """The store of that name; jobs go to ``jobs`` if there is one, else to ``default``."""
        wanted = name or ("jobs" if "jobs" in self.stores else "default")
        try:
            return self.stores[wanted]
        except KeyError:
            raise BadSettings(
                f"there is no store named {wanted!r}; there are {', '.join(sorted(self.stores))}"
            ) from None

    @property
    def pin(self) -> datetime | None:
        """The time to tell a store: its own, unless the clock is moved by hand."""
        return self.clock.now() if isinstance(self.clock, ManualClock) else None

    def waiting(self, name: str | None) -> Waiting:
        """Who tells about jobs of that store."""
        with self._lock:
            key = name or ""
            found = self._waiting.get(key)
            if found is None:
                found = self._waiting[key] = Waiting(self.store(name))
            return found

    def limiting(self, name: str | None) -> Limiting:
        """What is known of that store's limits."""
        found = self._limiting.get(name)
        if found is None:
            found = self._limiting.setdefault(name, Limiting(self.store(name), self.clock, self.rules))
        return found

    def executor(self) -> ThreadPoolExecutor:
        """Threads for what coroutines ask of a store."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(8, thread_name_prefix="tidemill-client")
            return self._pool

    async def in_thread(self, act: Any, *args: Any) -> Any:
        """A store's verb, awaited; done there by and for whom it would be done here."""
        return await asyncio.get_running_loop().run_in_executor(self.executor(), carried(act), *args)

    # Enqueueing ------------------------------------------------------------------------------------------------------

    def enqueue(self, declared: Declared, call: CallOptions, calls: Sequence[Call]) -> list[Job | NewJob]:
        """Write the jobs of these calls and answer with them, or with those that hold their keys."""
        if len(calls) >= MANY and self._is_plain(declared, call):
            return self._enqueue_meanwhile(declared, call, calls)
        jobs = self._build(declared, call, calls)
        if not jobs:
            return []
        if not self.middleware:
            return self._answer(declared, call, jobs, self._write(declared, jobs, call))
        step = Step("enqueue", declared.name, jobs[0].tenant, jobs)
        written: list[Enqueued] = around(
            self.middleware, step, lambda: self._write(declared, step.jobs, call)
        )
        return self._answer(declared, call, step.jobs, written)

    def _is_plain(self, declared: Declared, call: CallOptions) -> bool:
        """Whether nobody has to see all the jobs before the first of them is written."""
        limiting = self.limiting(call.store)
        limiting.look(declared)
        return not (
            self.middleware
            or call.connection is not None
            or call.given("unique", declared.options.unique) is not None
            or not limiting.is_silent
            or in_transaction()
            or _by(declared, call) is not None
        )

    def _enqueue_meanwhile(
        self, declared: Declared, call: CallOptions, calls: Sequence[Call]
    ) -> list[Job | NewJob]:
        """The store inserts some of the jobs while others are made; all of them or none."""
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
    ) -> list[Job | NewJob]:
        """The same for coroutines; a middleware runs in a thread, so that it cannot block the loop."""
        if not in_transaction() and self.limiting(call.store).asks():
            jobs = await asyncio.to_thread(self._build, declared, call, calls)
        else:
            jobs = self._build(declared, call, calls)
        if not jobs:
            return []
        step = Step("enqueue", declared.name, jobs[0].tenant, jobs)
        if call.connection is not None:
            store, by = self.store(call.store), _by(declared, call)
            written = await around_async(
                self.middleware, step, lambda: aenqueue_on(call.connection, store, step.jobs, by=by)
            )
        elif self.middleware or in_transaction() or len(jobs) > 1 or _by(declared, call) is not None:
            written = await asyncio.to_thread(
                around, self.middleware, step, lambda: self._write(declared, step.jobs, call)
            )
        else:
            written = await self._async_batcher(call.store).submit(jobs)
        if all(enqueued.created for enqueued in written) or call.connection is not None:
            return self._answer(declared, call, step.jobs, written)
        answer: list[Job | NewJob] = await self.in_thread(self._answer, declared, call, step.jobs, written)
        return answer

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
        # A worker that knows nothing of a limit would not keep it: the first call of a task writes its limits down.
        limiting = self.limiting(call.store)
        limiting.look(declared)
        return jobs if limiting.is_silent else limiting.admitted(declared, jobs)

    def declare_limits(self) -> None:
        """Write down what all tasks and the app itself say of limits."""
        self.limiting(None).declare(self.registry)

    def forget_limits(self) -> None:
        """Somebody changed limits here: what is known of them is read again."""
        for limiting in list(self._limiting.values()):
            limiting.forget()

    def _template(self, declared: Declared, call: CallOptions) -> Template:
        """What this task's calls with these options have in common; remembered where nothing around them matters."""
        if call is not NO_OPTIONS or current_job() is not None or tracing():
            return Template(declared, call, tenant=self.tenant, limits=self.limits, clock=self.clock)
        key = (declared.name, current_tenant())
        known = self._templates.get(key)
        if known is None or known.declared is not declared:
            known = Template(declared, call, tenant=self.tenant, limits=self.limits, clock=self.clock)
            self._templates[key] = known
        return known

    def _write(self, declared: Declared, jobs: Sequence[NewJob], call: CallOptions) -> list[Enqueued]:
        store, by = self.store(call.store), _by(declared, call)
        if call.connection is not None:
            return enqueue_on(call.connection, store, jobs, by=by)
        if len(jobs) == 1 and by is None and not in_transaction():
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
    ) -> list[Job | NewJob]:
        """The jobs as they were written; for one whose key was held, what its rule makes of that."""
        if not self.events.wanted and all(enqueued.created for enqueued in written):
            return list(jobs)
        answers: list[Job | NewJob] = []
        for job, enqueued in zip(jobs, written, strict=True):
            if not enqueued.created:
                answers.append(self._settle(declared, call, job, enqueued.id))
                continue
            answers.append(job)
            if self.events.wanted:
                seen = snapshot(job, self.clock.now())
                self.events.publish(
                    Event("job.enqueued", seen.created_at, job.id, job.task, job.tenant, seen.state)
                )
        return answers

    def _settle(self, declared: Declared, call: CallOptions, job: NewJob, holder: UUID) -> Job | NewJob:
        """Another job holds this one's key: return it, replace it, put it off, or say so."""
        rule: Unique = call.given("unique", declared.options.unique)
        store = self.store(call.store)
        waiting = frozenset({JobState.PENDING, JobState.SCHEDULED})
        if call.connection is not None and rule.on_conflict != "raise":
            # The holder may live in the caller's own transaction, which only he can see: all we know is who it is.
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
                return job if again.created else self._settle(declared, call, job, again.id)
        if rule.on_conflict == "extend":
            wait = snapshot(job, self.clock.now()).run_at - self.clock.now()
            if wait > timedelta(0):
                store.move(
                    [Move(holder, job.tenant, waiting, JobState.SCHEDULED, "put off by a later call", wait)]
                )
        found = store.get([holder], tenant=ALL_TENANTS)
        if found:
            return found[0]
        (again,) = put(store, [job], _by(declared, call))  # the holder is gone meanwhile
        if again.created:
            return job
        return (
            self._left(store, job, holder)
            if again.id == holder
            else self._settle(declared, call, job, again.id)
        )

    def _left(self, store: Store, job: NewJob, holder: UUID) -> Job:
        """A job that has left the live tables and holds its key until the window ends, as the archive has it."""
        kept = self.stores.get("archive", store).archived([holder], tenant=ALL_TENANTS)
        if not kept:
            raise JobExists(
                f"job {holder} of task {job.task}, of which nothing is kept, holds the same unique key until its window ends",
                id=holder,
                task=job.task,
            )
        return read_archived(kept[0])

    # Reading ---------------------------------------------------------------------------------------------------------

    def get(self, id: UUID, *, tenant: str, store: str | None) -> Job:
        """The job of that id, or ``JobNotFound``."""
        found = self.store(store).get([id], tenant=tenant)
        if not found:
            raise JobNotFound(f"there is no job {id}", id=id)
        return found[0]

    def at_close(self, act: Callable[[], None]) -> None:
        """Have this called first when the client is closed: for those who ask it on threads of their own."""
        self._closing.append(act)

    def close(self) -> None:
        """Let go of threads and stores."""
        for act in self._closing:
            act()
        for waiting in list(self._waiting.values()):
            waiting.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        for store in self.stores.values():
            store.close()


def _by(declared: Declared, call: CallOptions) -> str | None:
    """Whom the audit is to name, where the call or its task asks for that."""
    audited = declared.options.audit if call.audit is None else call.audit
    return who() if audited else None
