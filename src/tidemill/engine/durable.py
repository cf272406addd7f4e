"""The durable verbs of a context: steps, sleeps and versions.

Each verb has a twin for coroutines, whose name begins with ``a``.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from tidemill.domain.bounds import check_instant, check_span
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.steps import StepView
from tidemill.engine import children, steps
from tidemill.engine.completion import Completable, connections_of
from tidemill.engine.step_operations import StepOutlet, adrive, drive
from tidemill.engine.steps import StepLog
from tidemill.errors import UsageError
from tidemill.tasks.steps import Step

T = TypeVar("T")
P = ParamSpec("P")

J_co = TypeVar("J_co", covariant=True)

_CREATING = threading.Lock()


class Enqueueable(Protocol[P, J_co]):
    """A task that can be enqueued: ``@app.task``, or its ``using(…)``."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> J_co: ...


class DurableOutlet(StepOutlet, Completable, Protocol):
    """The parts of a running job that durable verbs need."""


class DurableVerbs:
    """Verbs of durable functions. A recorded step is not executed again when the job resumes."""

    __slots__ = ("step_log",)

    outlet: DurableOutlet
    step_log: StepLog | None

    def log(self, message: str, level: str = "info", **details: object) -> None:
        raise NotImplementedError

    def durable(self) -> StepLog:
        """The steps of this execution."""
        log = self.step_log
        if log is None:
            with _CREATING:
                # A trial replay has another kind, which ends at the first step without a record.
                kind: type[StepLog] = getattr(self.outlet, "step_log_type", StepLog)
                log = self.step_log = self.step_log or kind(self.outlet, self.log)
        return log

    # Steps -------------------------------------------------------------------------------------------------------------

    def step(self, step: Step | str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn`` once and record its result: ``ctx.step("charge", charge_card, order)``.

        When the job runs again after a crash, a retry or a wait, the recorded result is returned and ``fn`` is not called. The
        name identifies the step. A name that is used again in the same execution gets a number (``charge#2``); in a loop over
        data, give each step a key: ``Step("charge", key=order)``. The result must fit JSON, by the return annotation of ``fn``.
        """
        log = self.durable()
        if isinstance(step, str) and callable(fn):
            recorded = log.recall(step, fn, args, kwargs)
            if recorded is not steps.NOT_RECORDED:
                result: T = recorded
                return result
        value: T = drive(steps.perform(log, step, fn, args, kwargs), self.outlet)
        return value

    @overload
    async def astep(
        self, step: Step | str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @overload
    async def astep(
        self, step: Step | str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    async def astep(self, step: Step | str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Await ``fn`` once and record its result, like ``step``. A plain function runs on a thread."""
        if isinstance(step, str) and callable(fn):
            recorded = self.durable().recall(step, fn, args, kwargs)
            if recorded is not steps.NOT_RECORDED:
                return recorded
        return await adrive(steps.perform(self.durable(), step, fn, args, kwargs), self.outlet)

    def step_in(
        self, connection: object, step: Step | str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call ``fn`` once, and record its result in the transaction that is open on your own connection.

        The connection must lead to the store's own database, as for ``complete``. The record commits with what ``fn`` wrote on the
        connection, so both happen exactly once. ``LeaseLost`` is raised when this worker no longer holds the job: roll back.
        """
        log = self.durable()
        talk = steps.perform_in(log, connections_of(self.outlet), connection, step, fn, args, kwargs)
        value: T = drive(talk, self.outlet)
        return value

    async def astep_in(
        self, connection: object, step: Step | str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Record a step like ``step_in``, on an asynchronous connection."""
        log = self.durable()
        talk = steps.perform_in(log, connections_of(self.outlet), connection, step, fn, args, kwargs)
        return await adrive(talk, self.outlet)

    @property
    def steps(self) -> list[StepView]:
        """The recorded steps of this job, by name. In a coroutine, call ``await ctx.asteps()``."""
        return drive(self.durable().views(), self.outlet)

    async def asteps(self) -> list[StepView]:
        """Return the recorded steps of this job, by name."""
        return await adrive(self.durable().views(), self.outlet)

    @property
    def step_key(self) -> str:
        """A key for other systems that is the same at every try of the current step, and differs between steps."""
        return self.durable().key()

    # Other jobs --------------------------------------------------------------------------------------------------------

    def map(
        self,
        name: str,
        task: Enqueueable[..., Any],
        calls: Sequence[Mapping[str, Any]],
        *,
        failures: children.Failures = "raise",
        on_cancel: children.OnCancel = "cancel",
    ) -> list[Any]:
        """Run one job of ``task`` for each of these arguments, and return their results in the same order.

        The jobs are created once, in the transaction that suspends this job, which holds no worker while they run. ``failures``:
        ``"raise"`` raises ``JobFailed`` after all have ended, ``"return"`` returns the errors among the results, and ``"stop"``
        raises at the first failure and cancels the rest. If this job is cancelled while it waits, its jobs that have not ended are
        cancelled too, within seconds; with ``on_cancel="leave"`` they run to their end.
        """
        return drive(children.map_jobs(self.durable(), name, task, calls, failures, on_cancel), self.outlet)

    async def amap(
        self,
        name: str,
        task: Enqueueable[..., Any],
        calls: Sequence[Mapping[str, Any]],
        *,
        failures: children.Failures = "raise",
        on_cancel: children.OnCancel = "cancel",
    ) -> list[Any]:
        """Run jobs like ``map``."""
        return await adrive(
            children.map_jobs(self.durable(), name, task, calls, failures, on_cancel), self.outlet
        )

    def call(self, name: str, task: Enqueueable[..., Any], /, **arguments: Any) -> Any:
        """Run one job of ``task`` as a step, with its own queue, retries and isolation, and return its result."""
        return drive(children.call_job(self.durable(), name, task, arguments), self.outlet)

    async def acall(self, name: str, task: Enqueueable[..., Any], /, **arguments: Any) -> Any:
        """Run a job like ``call``."""
        return await adrive(children.call_job(self.durable(), name, task, arguments), self.outlet)

    def join(self, jobs: Any) -> Any:
        """Wait for a job, a flow or a batch, or for all of a list, and return the result or the results.

        A failure raises ``JobFailed``, and a cancelled one ``JobCancelled``.
        """
        return drive(children.join_jobs(self.durable(), jobs), self.outlet)

    async def ajoin(self, jobs: Any) -> Any:
        """Wait for jobs like ``join``."""
        return await adrive(children.join_jobs(self.durable(), jobs), self.outlet)

    def first(self, name: str, **waitables: Any) -> tuple[str, Any]:
        """Wait for the first of several jobs, durations or instants: ``which, value = ctx.first("answer", job=job, late="1h")``."""
        return drive(children.first_of(self.durable(), name, waitables), self.outlet)

    async def afirst(self, name: str, **waitables: Any) -> tuple[str, Any]:
        """Wait like ``first``."""
        return await adrive(children.first_of(self.durable(), name, waitables), self.outlet)

    # Sleeps ------------------------------------------------------------------------------------------------------------

    def sleep(self, name: str, duration: Duration) -> None:
        """Suspend the job for this long. It holds no thread and no worker, and survives restarts; the name identifies the sleep.

        A sleep of less than a second happens in place.
        """
        span = _span(name, duration)
        drive(steps.sleep(self.durable(), name, span), self.outlet)

    async def asleep(self, name: str, duration: Duration) -> None:
        """Suspend the job like ``sleep``."""
        span = _span(name, duration)
        await adrive(steps.sleep(self.durable(), name, span), self.outlet)

    def sleep_until(self, name: str, at: datetime) -> None:
        """Suspend the job until this instant, by the clock of the store."""
        drive(steps.sleep_until(self.durable(), name, _instant(name, at)), self.outlet)

    async def asleep_until(self, name: str, at: datetime) -> None:
        """Suspend the job like ``sleep_until``."""
        await adrive(steps.sleep_until(self.durable(), name, _instant(name, at)), self.outlet)

    @property
    def suspending(self) -> bool:
        """Whether this execution ends because the job is being suspended, for ``finally`` and ``with`` blocks."""
        return self.step_log is not None and self.step_log.suspending

    # Versions ----------------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int | None:
        """The version of the task that recorded the first step of this job; before that, the version of this code.

        None if the task declares no version. In a coroutine, call ``await ctx.aversion()``.
        """
        return drive(self.durable().version(), self.outlet)

    async def aversion(self) -> int | None:
        """Return the version of the task that recorded the first step of this job."""
        return await adrive(self.durable().version(), self.outlet)


def _span(name: str, duration: Duration) -> Any:
    span = read_duration(f"sleep {name}", duration, error=UsageError)
    check_span(f"sleep {name}", span)
    return span


def _instant(name: str, at: object) -> datetime:
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise UsageError(f"sleep_until({name!r}) needs an aware datetime, and got {at!r}")
    check_instant(f"sleep_until {name}", at)
    return at
