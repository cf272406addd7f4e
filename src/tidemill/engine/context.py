"""The API of a running job: progress, stages, log, checkpoints and next jobs.

A ``Context`` does no I/O of its own: it passes everything to an ``Outlet``, which may be called from any thread. It
must not decide anything about the job.
"""

from __future__ import annotations

import threading
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, ClassVar, NoReturn, ParamSpec, Protocol, TypeVar, overload
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.bounds import MOST_CHECKPOINT, check_key, check_size, check_text
from tidemill.domain.job import LEVELS, JobRow, LogEntry, Progress
from tidemill.domain.large_values import SpilledText
from tidemill.domain.node_results import NodeResult
from tidemill.domain.payload import clip, cut
from tidemill.domain.steps import PREFIX
from tidemill.domain.streams import StreamVolume
from tidemill.engine.completion import Completable, check_held, completion, connections_of
from tidemill.engine.durable import DurableVerbs, Enqueueable
from tidemill.engine.flow_growth import FlowGrowth, FlowVerbs
from tidemill.engine.follow_ups import Again, Block, FollowUps, successor
from tidemill.engine.lifespan import Lifetime
from tidemill.engine.message_verbs import MessageVerbs
from tidemill.engine.pipelines import PipelineVerbs
from tidemill.engine.sanitize import (
    MESSAGE_LENGTH,
    plain,
    read_progress,
    scrubbed,
    scrubbed_details,
    text_of,
    within,
)
from tidemill.engine.step_operations import StepOutlet
from tidemill.engine.steps import StepLog
from tidemill.engine.stream_verbs import StreamOutlet, StreamVerbs
from tidemill.errors import Cancel, Signal, UsageError
from tidemill.stores.base import Store
from tidemill.tasks.ambient import current_job
from tidemill.tasks.task import Declared

T = TypeVar("T")
P = ParamSpec("P")
J_co = TypeVar("J_co", covariant=True)

LINE_LENGTH = 10_000
DETAILS_SIZE = 16 * 1024
"""Maximum bytes of a log line's details as JSON."""

_ZERO = timedelta(0)
_CREATING = threading.Lock()


class Outlet(Completable, StepOutlet, StreamOutlet, Protocol):
    """The receiver of everything that a context reports. Tasks use threads: every method may be called concurrently.

    ``start_by`` is set for a job under a rate limit. After this reading of the monotonic clock its handler is not
    called until ``renew_start`` has set a later one, which may raise ``StartRefused``.
    """

    start_by: float | None

    @property
    def life(self) -> Lifetime:
        """The lifespan of the runner."""
        ...

    def renew_start(self) -> None: ...

    def report(self, progress: Progress) -> None: ...

    def log(self, entry: LogEntry) -> None: ...

    def checkpoint(self, name: str) -> str | None: ...

    def save_checkpoint(self, name: str, value: str) -> None: ...

    def is_cancelled(self) -> bool: ...

    def is_timed_out(self) -> bool:
        """Whether the worker is stopping this execution because it ran past its timeout."""

    def now(self) -> datetime: ...

    @property
    def is_private(self) -> bool:
        """Whether only this process can reach the store."""
        ...

    def spill(self, value: SpilledText) -> str:
        """Store a large result, and return the reference to it."""
        ...

    def fetch(self, text: str) -> str:
        """Read the value that a reference stands for."""
        ...

    @property
    def flow_store(self) -> Store:
        """The store of the job, for reads of its flow."""
        ...

    def read_results(self) -> Mapping[UUID, NodeResult]:
        """The results of other nodes that were read with the job's details."""
        ...


class StartRefused(Signal):
    """Raised instead of calling a handler whose rate limit has no capacity left.

    The job returns to its queue and keeps its attempt.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class OutOfTime(Cancel):
    """Raised by ``Context.check`` once the deadline has passed. The execution counts as timed out."""


class Context(FlowVerbs, DurableVerbs, MessageVerbs, PipelineVerbs, StreamVerbs):
    """The API of a running job for its own task. Every execution has a new one."""

    __tidemill_context__: ClassVar[bool] = True
    __slots__ = (
        "_began",
        "_clock",
        "_job",
        "_own_lock",
        "_progress",
        "_stages",
        "_started_at",
        "_volume",
        "capture",
        "captured",
        "following",
        "grown",
        "outlet",
    )
    outlet: Outlet

    def __init__(
        self,
        job: JobRow | Callable[[], JobRow],
        outlet: Outlet,
        clock: Clock | None = None,
        began: float = 0.0,
        capture: int | None = None,
    ) -> None:
        """The execution began at this reading of the monotonic clock; without a clock, it begins now."""
        # Workers create tens of thousands of contexts per second, and most tasks never use them. So every part is
        # created lazily.
        self._job = job
        self.outlet = outlet
        self._clock = clock
        self._began = began
        self._started_at = outlet.now() if clock is None else None
        self._own_lock: threading.Lock | None = None
        self._progress: Progress | None = None
        self._stages: tuple[_Stage, ...] = ()
        #: the lowest level of log records that are copied into the job's log; None for no records
        self.capture = capture
        #: created by the first ``then``, ``transaction`` or ``complete``
        self.following: FollowUps | None = None
        self.grown: FlowGrowth | None = None  #: created by the first use of ``flow`` or ``batch``
        #: created by the first durable verb
        self.step_log: StepLog | None = None
        self._volume: StreamVolume | None = None

    # The job ---------------------------------------------------------------------------------------------------------

    @property
    def job(self) -> JobRow:
        """The job as it was when this execution began."""
        job = self._job
        if not isinstance(job, JobRow):
            job = self._job = job()
        return job

    @property
    def _lock(self) -> threading.Lock:
        lock = self._own_lock
        if lock is None:
            with _CREATING:
                lock = self._own_lock = self._own_lock or threading.Lock()
        return lock

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self.job.id

    @property
    def deadline(self) -> datetime | None:
        """When the execution reaches its timeout; None if it has none."""
        timeout = self.job.timeout
        return None if timeout is None else _later(self._start(), timeout)

    def _start(self) -> datetime:
        """When this execution began."""
        started_at = self._started_at
        if started_at is None:
            age = 0.0 if self._clock is None else self._clock.monotonic() - self._began
            started_at = self._started_at = self.outlet.now() - timedelta(seconds=age)
        return started_at

    @property
    def attempt(self) -> int:
        """1 at the first execution."""
        return self.job.attempt

    @property
    def tenant(self) -> str:
        """The tenant of the job."""
        return self.job.tenant

    @property
    def store_name(self) -> str | None:
        """The name of the store that the job is in; None if its app has one store."""
        return self.outlet.store_name

    @property
    def declared(self) -> Declared:
        """The task of the job, as its app declares it."""
        return self.outlet.declared

    @property
    def correlation_id(self) -> str:
        """The id that this job shares with all jobs it starts."""
        return self.job.details.correlation_id or str(self.job.id)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that ``using(headers=…)`` and the enqueue hooks gave this job."""
        return self.job.details.headers

    @property
    def state(self) -> Any:
        """The state that the app's ``lifespan`` yields in this runner."""
        return self.outlet.life.state

    @property
    def idempotency_key(self) -> str:
        """A key that is the same at every attempt, so that other systems can recognise a repeated request."""
        return str(self.job.id)

    @property
    def cancelled(self) -> bool:
        """Whether this job was asked to stop."""
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
        """Return if the job may continue; otherwise raise a signal that ends it."""
        deadline = self.deadline
        if deadline is not None and (self.outlet.is_timed_out() or self.outlet.now() >= deadline):
            raise OutOfTime(f"past its deadline of {deadline.isoformat()}")
        if self.outlet.is_cancelled():
            raise Cancel(self.job.cancel_reason)

    # Progress --------------------------------------------------------------------------------------------------------

    @overload
    def progress(self, fraction: float, message: str | None = None, /) -> None: ...

    @overload
    def progress(self, step: int, total: int | None, message: str | None = None, /) -> None: ...

    @overload
    def progress(self, value: float, /, *, total: int | None = None, message: str | None = None) -> None: ...

    def progress(
        self, value: float, /, *rest: Any, total: int | None = None, message: str | None = None
    ) -> None:
        """Report the progress of the job: ``progress(0.5, "half")``, or ``progress(5, 10, "5 of 10")``.

        A fraction outside of 0 to 1 is refused. A step is clamped to 0 and the total. A total of None means that it is
        unknown.
        """
        told = read_progress(value, rest, total, message)
        # Reported under the lock, so that of two threads the last one to count is also the last one to report.
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
        """The same items, with progress reported after each. An asynchronous iterable stays one.

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
        """A named part of the work: ``with ctx.stage("copy"):``, in functions and in coroutines. Stages may be nested.

        If the task declares its ``stages``, other names raise ``UsageError``. ``run_stages`` runs stages that are functions.
        """
        declared = self.outlet.declared
        if declared.options.stages and name not in declared.options.stages:
            raise UsageError(
                f"task {declared.name} has no stage {name!r}; its stages are {', '.join(declared.options.stages)}"
            )
        return _Stage(self, name)

    def _stage_name(self) -> str | None:
        return self._stages[-1].name if self._stages else None

    # Log and checkpoints -----------------------------------------------------------------------------------------------

    def log(self, message: str, level: str = "info", **details: object) -> None:
        """Write a line to the job's log, with optional structured details."""
        if level not in LEVELS:
            raise UsageError(f"{level!r} is not a level; expected one of {', '.join(LEVELS)}", level=level)
        with self._lock:
            stage = self._stage_name()
        self._write(
            message,
            level,
            stage,
            details=within(scrubbed_details(plain(details)), DETAILS_SIZE) if details else None,
        )

    def _write(
        self,
        message: str,
        level: str,
        stage: str | None,
        *,
        details: Mapping[str, object] | None = None,
        duration: timedelta | None = None,
    ) -> None:
        text = cut(scrubbed(str(message)), LINE_LENGTH)
        job = self.job
        entry = LogEntry(
            job.id, job.token, self.outlet.now(), text, level, stage, details, duration, job.worker
        )
        self.outlet.log(entry)

    def checkpoint(self, name: str) -> str | None:
        """The text that an earlier attempt at this job saved under this name."""
        return self.outlet.checkpoint(name)

    def save_checkpoint(self, name: str, value: str) -> None:
        """Save a text for the next attempt at this job. It replaces an earlier text of that name."""
        check_key("a checkpoint's name", name)
        if name.startswith(PREFIX):
            raise UsageError(
                f"{name!r} cannot be a checkpoint: names that begin with {PREFIX!r} belong to steps"
            )
        check_text(f"checkpoint {name}", value, MOST_CHECKPOINT)
        check_size(f"checkpoint {name}", value, MOST_CHECKPOINT)
        self.outlet.save_checkpoint(name, value)

    def _write_stream(self, name: str, values: Sequence[object]) -> None:
        # Under the lock, so that the items of concurrent threads reach the outlet in the order of their indexes.
        with self._lock:
            if self._volume is None:
                self._volume = StreamVolume()
            self.outlet.write_stream(name, self._volume.encode(name, values))

    def now(self) -> datetime:
        """The current time by the worker's clock."""
        return self.outlet.now()

    # Next jobs and completion ------------------------------------------------------------------------------------------

    def then(self, task: Enqueueable[P, J_co], /, *args: P.args, **kwargs: P.kwargs) -> J_co:
        """Enqueue a job exactly if this one completes: ``ctx.then(send_mail, to="ada")``.

        The job is built now, so its id is known, and it is written in the transaction that completes this job. If this
        execution fails, is retried, released, timed out or lost, nothing is written. Coroutines call it the same way.
        """
        if not callable(getattr(task, "enqueue", None)):
            raise UsageError(f"{task!r} is not a task; declare it with @app.task and give that to ctx.then")
        with Block(self._followed(), only=True):
            return task.enqueue(*args, **kwargs)

    def again(self, **arguments: Any) -> NoReturn:
        """Complete this job, and run its task again in a new job with these arguments; the others stay the same.

        The new job is written in the transaction that completes this one, and takes over its queue, priority, correlation id and
        unique key. It begins without recorded steps, so a function with an endless loop calls this from time to time.
        """
        following, job = self._followed(), self.job
        following.add([successor(job, self.outlet.declared, self.outlet.fetch(job.args), arguments)], ())
        following.result = "null"
        raise Again(f"{job.task} continues in a new job")

    def transaction(self) -> Block:
        """Collect the jobs enqueued inside, and write them in the transaction that completes this job.

        ``with ctx.transaction():``, in functions and in coroutines; ``async with`` works too. A block that raises drops
        its jobs. Blocks may be nested: an inner one that raises drops only its own. Nothing is locked while the block
        is open.
        """
        return Block(self._followed())

    def complete(self, connection: object, result: object = None) -> None:
        """Complete this job inside the transaction that is open on your own connection: it commits with your rows.

        The connection must lead to the store's own database and be one of the kinds that ``using(connection=…)`` takes.
        The jobs of ``then`` and ``transaction`` are enqueued in it too. ``LeaseLost`` is raised when this worker no
        longer holds the job. Return afterwards: if your transaction was rolled back, the return completes the job as
        usual, and the return value is its result (None stands for ``result``).
        """
        connections = connections_of(self.outlet)
        finish = completion(self.outlet, self._followed(), result)
        check_held(finish.claim.id, connections.finish(connection, finish, self.outlet))

    async def acomplete(self, connection: object, result: object = None) -> None:
        """Complete this job like ``complete``, on an asynchronous connection."""
        connections = connections_of(self.outlet)
        finish = completion(self.outlet, self._followed(), result)
        check_held(finish.claim.id, await connections.afinish(connection, finish, self.outlet))

    def _followed(self) -> FollowUps:
        with self._lock:
            if self.following is None:
                self.following = FollowUps(self.outlet.declared)
            return self.following


class _Stage:
    """An entered stage. It removes itself, so stages of parallel coroutines may end in any order."""

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
                context._stages = (*context._stages, self)
            else:
                context._stages = tuple(stage for stage in context._stages if stage is not self)
            name = context._stage_name()
            context._progress = replace(context._so_far(), stage=name, at=context.outlet.now())
            context.outlet.report(context._progress)


def _later(now: datetime, timeout: timedelta) -> datetime | None:
    try:
        return now + timeout
    except OverflowError:
        return None


def current() -> Context:
    """The context of the job that this code runs in, at any call depth. Raises ``UsageError`` outside of a job."""
    context = current_job()
    if not isinstance(context, Context):
        raise UsageError("this code does not run in a job; there is no context")
    return context
