"""Jobs that are enqueued when the running job completes.

``ctx.then`` and ``ctx.transaction()`` collect them. Nothing here holds a connection, a lock of the store or a
transaction. The jobs wait in memory until the worker writes the job's completion, and go to the store in that
transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from tidemill.domain.job import JobRow, NewJob, UniqueHold
from tidemill.errors import Signal, UsageError
from tidemill.ids import new_id
from tidemill.tasks.ambient import Audited, collecting, stop_collecting
from tidemill.tasks.secret_values import seal_arguments
from tidemill.tasks.task import Declared

MOST = 10_000
"""Jobs that one execution may collect: all of them are inserted in the transaction that completes the job."""


class Again(Signal):
    """Raised by ``ctx.again``: the job completes, and the collected new job continues."""


def successor(job: JobRow, declared: Declared, args: str, changes: Mapping[str, Any]) -> NewJob:
    """A new job of the same task that continues with these arguments changed."""
    id, codec = new_id(), declared.arguments
    text = codec.dump((), {**codec.load(args, job.id), **changes}).text
    details = replace(
        job.details,
        correlation_id=job.details.correlation_id or str(job.id),
        parent_id=job.id,
        flow_id=None,
        node=None,
        position=None,
        group_id=None,
        group_shard=None,
    )
    return NewJob(
        id,
        job.task,
        seal_arguments(text, codec.secrets, id) if codec.secrets else text,
        job.tenant,
        job.queue,
        job.priority,
        job.max_attempts,
        job.timeout,
        expires_at=job.expires_at,
        unique=None if job.unique_key is None else UniqueHold(job.unique_key),
        limits=job.limits,
        details=details,
    )


class FollowUps:
    """The jobs that one execution has collected. It accepts no more once the execution has ended or is being completed."""

    def __init__(self, declared: Declared) -> None:
        self.declared = declared  #: the task of the running job
        self._jobs: list[NewJob] = []
        self._audit: list[Audited] = []
        self._closed: str | None = None
        self._lock = threading.Lock()
        self.result: str | None = None  #: the result given to ``ctx.complete``, as JSON

    def check_open(self) -> None:
        """Raise ``UsageError`` if it accepts no more jobs."""
        if self._closed is not None:
            raise UsageError(self._closed)

    def add(self, jobs: Sequence[NewJob], audit: Sequence[Audited]) -> None:
        """Add jobs to enqueue, and their audit entries."""
        with self._lock:
            self.check_open()
            check_most(len(self._jobs) + len(jobs))
            self._jobs += jobs
            self._audit += audit

    def close(self, why: str) -> tuple[tuple[NewJob, ...], tuple[Audited, ...]]:
        """Accept no more jobs; return those that were collected."""
        with self._lock:
            self._closed = why
            return tuple(self._jobs), tuple(self._audit)


class Block:
    """One ``with ctx.transaction():``, which may also be entered with ``async with``.

    It collects jobs that are enqueued in its own context while it is open: by the code inside, and by the asyncio tasks
    and threads that this code starts with a copy of its context.
    """

    __slots__ = ("_audit", "_following", "_jobs", "_lock", "_open", "_outer", "_token", "only")

    def __init__(self, following: FollowUps, *, only: bool = False) -> None:
        self._following = following
        #: refuse jobs that cannot be collected, including those for the user's own connection
        self.only = only
        self._jobs: list[NewJob] = []
        self._audit: list[Audited] = []
        self._open = False
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def declared(self) -> Declared:
        """The task of the job that the block belongs to."""
        return self._following.declared

    def add(self, jobs: Sequence[NewJob], audit: Sequence[Audited]) -> None:
        """Collect these jobs. They are dropped if the block raises."""
        with self._lock:
            self._following.check_open()
            if not self._open:
                raise UsageError(
                    "this ctx.transaction() has ended; enqueue outside of it, or open another one"
                )
            check_most(len(self._jobs) + len(jobs))
            self._jobs += jobs
            self._audit += audit

    def __enter__(self) -> None:
        if self._open:
            raise UsageError("this ctx.transaction() is already open; call ctx.transaction() for another one")
        self._following.check_open()
        self._open = True
        self._outer, self._token = collecting(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop_collecting(self._token)
        with self._lock:
            self._open = False
            jobs, self._jobs = self._jobs, []
            audit, self._audit = self._audit, []
        if error is None and jobs:
            outer = self._outer
            joined = outer if isinstance(outer, Block) and outer._following is self._following else None
            (joined or self._following).add(jobs, audit)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def check_most(jobs: int) -> None:
    """Raise ``UsageError`` if these are too many for one transaction."""
    if jobs > MOST:
        raise UsageError(
            f"one job can enqueue at most {MOST:,} jobs with its completion, and this would be {jobs:,};"
            " enqueue them outside ctx.transaction(), or have a job of the chain enqueue the rest"
        )
