"""What a running task sees of its own job, and how it speaks about it: progress, stages, log lines, checkpoints.

A ``Context`` knows no store, no queue and no clock: all it says goes through an ``Outlet``, which may be called from any
thread. It must not decide anything about the job.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, ClassVar, Protocol, TypeVar, overload
from uuid import UUID

from tidemill.domain.bounds import check_key, check_text
from tidemill.domain.job import Job, LogEntry, Progress
from tidemill.domain.payload import clip
from tidemill.engine.words import MESSAGE_LENGTH, plain, read_progress, text_of
from tidemill.errors import Cancel, UsageError
from tidemill.tasks.ambient import current_job, own_transaction

T = TypeVar("T")

LEVELS = ("debug", "info", "warning", "error")
LINE_LENGTH = 10_000
_ZERO = timedelta(0)


class Outlet(Protocol):
    """Where a context's words go. Tasks use threads: every method may be called from several at once."""

    def report(self, progress: Progress) -> None: ...

    def log(self, entry: LogEntry) -> None: ...

    def checkpoint(self, name: str) -> str | None: ...

    def save_checkpoint(self, name: str, value: str) -> None: ...

    def is_cancelled(self) -> bool: ...

    def now(self) -> datetime: ...

    def transaction(self) -> AbstractContextManager[None]: ...


class OutOfTime(Cancel):
    """Raised by ``Context.check`` once the deadline has passed; the execution counts as timed out."""


class Context:
    """A job's view of itself, made anew for every execution."""

    __tidemill_context__: ClassVar[bool] = True
    __slots__ = ("_job", "_lock", "_progress", "_stages", "_started_at", "outlet")

    def __init__(self, job: Job | Callable[[], Job], outlet: Outlet) -> None:
        # Tens of thousands are made a second, and most tasks never look: what is not asked for is not made.
        self._job = job
        self.outlet = outlet
        self._started_at = outlet.now()
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._stages: list[_Stage] = []

    # Who am I --------------------------------------------------------------------------------------------------------

    @property
    def job(self) -> Job:
        """The job, as it was when this execution began."""
        job = self._job
        if not isinstance(job, Job):
            job = self._job = job()
        return job

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self.job.id

    @property
    def deadline(self) -> datetime | None:
        """When the execution is out of time; None if it may take as long as it likes."""
        return _later(self._started_at, self.job.timeout)

    @property
    def attempt(self) -> int:
        """1 at the first execution."""
        return self.job.attempt

    @property
    def tenant(self) -> str:
        """Whose job this is."""
        return self.job.tenant

    @property
    def correlation_id(self) -> str:
        """What this job and all that it starts are found by."""
        return self.job.details.correlation_id or str(self.job.id)

    @property
    def idempotency_key(self) -> str:
        """The same at every attempt; for others to recognise what they have done already."""
        return str(self.job.id)

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked this job to stop."""
        return self.outlet.is_cancelled()

    @property
    def current(self) -> Progress:
        """The last progress that was reported."""
        with self._lock:
            return self._so_far()

    def _so_far(self) -> Progress:
        if self._progress is None:
            self._progress = self.job.progress or Progress()
        return self._progress

    def check(self) -> None:
        """Return if the job may go on; else raise a signal that ends it."""
        if self.outlet.is_cancelled():
            raise Cancel(self.job.cancel_reason)
        deadline = self.deadline
        if deadline is not None and self.outlet.now() >= deadline:
            raise OutOfTime(f"past its deadline of {deadline.isoformat()}")

    # How far am I ----------------------------------------------------------------------------------------------------

    @overload
    def progress(self, fraction: float, message: str | None = None, /) -> None: ...

    @overload
    def progress(self, step: int, total: int | None, message: str | None = None, /) -> None: ...

    @overload
    def progress(self, value: float, /, *, total: int | None = None, message: str | None = None) -> None: ...

    def progress(
        self, value: float, /, *rest: Any, total: int | None = None, message: str | None = None
    ) -> None:
        """Say how far the job is: ``progress(0.5, "half")``, or ``progress(5, 10, "5 of 10")``.

        A fraction is held within 0 and 1, a step within 0 and the total; a total of None is one that is not known.
        """
        told = read_progress(value, rest, total, message)
        # Reported under the lock, so that of two threads the one that counts last is also heard last.
        with self._lock:
            self._progress = replace(told, stage=self._stage_name(), at=self.outlet.now())
            self.outlet.report(self._progress)

    @overload
    def track(
        self, items: Iterable[T], total: int | None = None, message: str | None = None
    ) -> Iterator[T]: ...

    @overload
    def track(
        self, items: AsyncIterable[T], total: int | None = None, message: str | None = None
    ) -> AsyncIterator[T]: ...

    def track(
        self, items: Iterable[T] | AsyncIterable[T], total: int | None = None, message: str | None = None
    ) -> Iterator[T] | AsyncIterator[T]:
        """The same items, with progress reported after each; what can be iterated with ``async for`` still is.

        Before each item the job is stopped if it was cancelled or is out of time, as by ``check``.
        """
        if total is None and isinstance(items, Sized):
            total = len(items)
        if isinstance(items, Iterable):
            return self._track(items, total, message)
        if isinstance(items, AsyncIterable):
            return self._atrack(items, total, message)
        raise UsageError(f"{type(items).__name__} cannot be iterated; give track an iterable")

    def _track(self, items: Iterable[T], total: int | None, message: str | None) -> Iterator[T]:
        for done, item in enumerate(items, start=1):
            self.check()
            yield item
            self.progress(done, total, message)

    async def _atrack(
        self, items: AsyncIterable[T], total: int | None, message: str | None
    ) -> AsyncIterator[T]:
        done = 0
        async for item in items:
            self.check()
            yield item
            done += 1
            self.progress(done, total, message)

    def stage(self, name: str) -> AbstractContextManager[None]:
        """A named part of the work: ``with ctx.stage("copy"):``, in functions and in coroutines; stages may be nested."""
        return _Stage(self, name)

    def _stage_name(self) -> str | None:
        return self._stages[-1].name if self._stages else None

    # What is there to say ----------------------------------------------------------------------------------------------

    def log(self, message: str, level: str = "info", **details: object) -> None:
        """Write a line to the job's log, with details that can be looked at later."""
        if level not in LEVELS:
            raise UsageError(f"{level!r} is no level; there are {', '.join(LEVELS)}", level=level)
        with self._lock:
            stage = self._stage_name()
        self._write(message, level, stage, details=plain(details) if details else None)

    def _write(
        self,
        message: str,
        level: str,
        stage: str | None,
        *,
        details: Mapping[str, object] | None = None,
        duration: timedelta | None = None,
    ) -> None:
        text = clip(str(message), LINE_LENGTH)
        job = self.job
        entry = LogEntry(job.id, job.token, self.outlet.now(), text, level, stage, details, duration)
        self.outlet.log(entry)

    def checkpoint(self, name: str) -> str | None:
        """What an earlier attempt at this job saved under this name."""
        return self.outlet.checkpoint(name)

    def save_checkpoint(self, name: str, value: str) -> None:
        """Keep a text for the next attempt at this job, over what was there."""
        check_key("a checkpoint's name", name)
        check_text(f"checkpoint {name}", value)
        self.outlet.save_checkpoint(name, value)

    def now(self) -> datetime:
        """The time, as whoever runs this job tells it."""
        return self.outlet.now()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is enqueued inside commits together when the block ends, or not at all."""
        with own_transaction(), self.outlet.transaction():
            yield


class _Stage:
    """An entered stage; it takes itself out, so stages of parallel coroutines may end in any order."""

    def __init__(self, context: Context, name: str) -> None:
        self.name = clip(name, MESSAGE_LENGTH)
        self._context = context
        self._began: datetime | None = None

    def __enter__(self) -> None:
        self._began = self._context.outlet.now()
        self._context._write(f"stage {self.name} begins", "debug", self.name)
        self._move(enter=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._move(enter=False)
        assert self._began is not None
        took = max(self._context.outlet.now() - self._began, _ZERO)
        if error is None:
            self._context._write(f"stage {self.name} ends", "info", self.name, duration=took)
        elif isinstance(error, Exception):
            why = f"stage {self.name} failed: {type(error).__name__}: {text_of(error)}"
            self._context._write(why, "error", self.name, duration=took)
        else:
            self._context._write(
                f"stage {self.name} left by {type(error).__name__}", "info", self.name, duration=took
            )

    def _move(self, *, enter: bool) -> None:
        context = self._context
        with context._lock:
            if enter:
                context._stages.append(self)
            else:
                context._stages = [stage for stage in context._stages if stage is not self]
            name = context._stage_name()
            context._progress = replace(context._so_far(), stage=name, at=context.outlet.now())
            context.outlet.report(context._progress)


def _later(now: datetime, timeout: timedelta | None) -> datetime | None:
    try:
        return None if timeout is None else now + timeout
    except OverflowError:
        return None


def current() -> Context:
    """The context of the job this code runs in, however deep; ``UsageError`` outside of one."""
    context = current_job()
    if not isinstance(context, Context):
        raise UsageError("this code does not run in a job; there is no context")
    return context
