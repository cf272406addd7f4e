"""Runs one claim in process: a task's function with its arguments, and what came of it as an ``Outcome``.

Every exception of the task's own becomes data here. It decides nothing about the job and writes nothing: the outcome goes
to ``decide``, and the transition to a store.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import CoroutineType
from typing import Any, NamedTuple

from tidemill.clock import Clock
from tidemill.domain.job import Claim, ErrorInfo, Execution, Finish, Job, Transition
from tidemill.domain.outcome import Cancelled, Failed, Outcome, Review, Snoozed, Succeeded, TimedOut
from tidemill.domain.payload import PayloadLimits
from tidemill.domain.states import ExecutionState
from tidemill.engine import words
from tidemill.engine.context import Context, Outlet, OutOfTime
from tidemill.errors import BadArguments, PermanentError, Signal, UsageError
from tidemill.errors import Cancel as CancelSignal
from tidemill.errors import Retry as RetrySignal
from tidemill.errors import Review as ReviewSignal
from tidemill.errors import Snooze as SnoozeSignal
from tidemill.tasks.ambient import inside_job
from tidemill.tasks.item_task import ItemTask
from tidemill.tasks.middleware import Middleware, Step, around, around_async
from tidemill.tasks.task import Declared

_log = logging.getLogger("tidemill.engine")


class Ended(NamedTuple):
    """How an execution ended. ``began`` and ``ended`` are readings of the monotonic clock it was given."""

    outcome: Outcome
    result: str | None
    error: ErrorInfo | None
    began: float
    ended: float
    exception: BaseException | None = None  #: the very object, for whoever is in the same process

    def finish(self, claim: Claim, transition: Transition, at: float) -> Finish:
        """What a store is to write at the given reading of the same clock."""
        return Finish(claim, transition, self.result, self.error, at - self.began, at - self.ended)


_ended = partial(tuple.__new__, Ended)  # as Ended(...), which takes its arguments apart by name first


def run(
    declared: Declared,
    claim: Claim,
    job: Job | Callable[[], Job],
    outlet: Outlet,
    clock: Clock,
    chain: Sequence[Middleware] = (),
) -> Ended:
    """Run a claim to its end in this thread; a coroutine gets a loop of its own."""
    if declared.is_async:
        _need_no_loop(declared)
        return asyncio.run(arun(declared, claim, job, outlet, clock, chain))
    attempt = _Attempt(declared, claim, job, outlet, clock)

    def act() -> Any:
        return _driven(declared, attempt.call())

    try:
        # In a copy of the surroundings: what a task puts into a context variable is not the next one's.
        return attempt.returned(copy_context().run(attempt.surrounded, chain, act))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  (whatever a task raises is an outcome)
        return attempt.raised(error)


async def arun(
    declared: Declared,
    claim: Claim,
    job: Job | Callable[[], Job],
    outlet: Outlet,
    clock: Clock,
    chain: Sequence[Middleware] = (),
) -> Ended:
    """The same on the running loop. A function runs in a thread, as it would in a worker.

    Being cancelled from outside is no outcome: ``CancelledError`` then goes on to whoever did it.
    """
    if not declared.is_async:
        return await asyncio.to_thread(run, declared, claim, job, outlet, clock, chain)
    attempt = _Attempt(declared, claim, job, outlet, clock)

    try:
        with inside_job(attempt.context):
            if chain:
                return attempt.returned(await around_async(chain, attempt.step(), attempt.acall))
            answer = attempt.call()  # as acall, which would be one more coroutine for every job
            if type(answer) is CoroutineType or inspect.isawaitable(answer):
                answer = await answer
            return attempt.returned(answer)
    except KeyboardInterrupt:
        raise
    except asyncio.CancelledError as error:
        waiting = asyncio.current_task()
        if waiting is not None and waiting.cancelling():
            raise
        return attempt.raised(error)
    except BaseException as error:  # noqa: BLE001  (whatever a task raises is an outcome)
        return attempt.raised(error)


class _Attempt:
    """One execution from its first moment: its clock, its surroundings, and what its end means."""

    __slots__ = ("_began", "_claim", "_clock", "_declared", "_loaded", "_outlet", "_task", "context")

    def __init__(
        self,
        declared: Declared,
        claim: Claim,
        job: Job | Callable[[], Job],
        outlet: Outlet,
        clock: Clock,
    ) -> None:
        self._declared, self._claim, self._outlet, self._clock = declared, claim, outlet, clock
        self._began = clock.monotonic()
        self.context = Context(job, outlet)
        self._loaded = False
        self._task: object | None = None  # the object made for this execution, if the task is a class

    def step(self) -> Step:
        return Step("execute", self._declared.name, self._claim.tenant, job=self.context.job)

    def call(self) -> Any:
        """Read the arguments and call the task; ``BadArguments`` where the job does not fit it any more."""
        declared = self._declared
        arguments = declared.arguments.load(self._claim.args)
        self._loaded = True
        if declared.context_parameter is not None:
            arguments[declared.context_parameter] = self.context
        if not declared.is_class:
            return declared.target(**arguments)
        task = self._task = declared.target()
        # The framework's own run needs the context, whether or not the user's items asked for it.
        first = (self.context,) if isinstance(task, ItemTask) else ()
        return task.run(*first, **arguments)

    async def acall(self) -> Any:
        """The same, and what comes of it if it is to be awaited."""
        answer = self.call()
        if type(answer) is CoroutineType or inspect.isawaitable(answer):
            return await answer
        return answer

    def surrounded(self, chain: Sequence[Middleware], act: Callable[[], Any]) -> Any:
        """Act where what the task enqueues is this job's, and ``current()`` is its context."""
        with inside_job(self.context):
            return around(chain, self.step(), act) if chain else act()

    def returned(self, value: Any) -> Ended:
        try:
            text = self._declared.result.dump(value)
            self._check_size(text)
        except Exception as error:  # noqa: BLE001  (a result is the user's: it may refuse in any way)
            return self._ended(Failed(words.error_info(error), permanent=True), error)
        return _ended((Succeeded(text), text, None, self._began, self._clock.monotonic(), None))

    def raised(self, error: BaseException) -> Ended:
        try:
            return self._ended(self._meaning(_alone(error)), error)
        except Exception as worse:  # noqa: BLE001  (what the signal carries is not what it takes)
            return self._ended(Failed(words.error_info(worse), permanent=True), worse)

    def _meaning(self, error: BaseException) -> Outcome:
        match error:
            case OutOfTime() if self._claim.timeout is not None:
                return TimedOut(self._claim.timeout)
            case CancelSignal():
                return Cancelled(words.reason_of(error.reason))
            case asyncio.CancelledError():
                return Cancelled(self._claim.cancel_reason)
            case SnoozeSignal():
                return Snoozed(_span(error, error.for_), words.reason_of(error.reason))
            case ReviewSignal():
                return Review(words.reason_of(error.reason) or "review", self._output(error))
            case RetrySignal():
                after = None if error.after is None else _span(error, error.after)
                return Failed(words.error_info(error), retry_after=after)
            case PermanentError():
                return Failed(words.error_info(error), permanent=True)
            case BadArguments() if not self._loaded:  # the job's own; trying again reads the same
                return Failed(words.error_info(error), permanent=True)
        return self._asked(words.error_info(error))

    def _asked(self, info: ErrorInfo) -> Failed:
        """A failure, with what the task itself has to say about trying again."""
        failed = Failed(info)
        task = self._task
        if task is None:
            return failed
        job = self.context.job
        execution = Execution(
            job_id=job.id,
            number=self._claim.token,
            attempt=self._claim.attempt,
            state=ExecutionState.FAILED,
            worker=self._claim.worker or job.worker,
            claimed_at=job.claimed_at,
            started_at=job.started_at,
            finished_at=self._outlet.now(),
            error=info,
        )
        wish = self._ask(task, "should_retry", execution, bool)
        if wish is not None:
            failed = replace(failed, retryable=wish)
        if wish is not False:
            failed = replace(failed, retry_after=self._ask(task, "retry_delay", execution, timedelta))
        return failed

    def _ask(self, task: object, name: str, execution: Execution, kind: type[Any]) -> Any:
        hook = getattr(task, name, None)
        if hook is None:
            return None
        try:
            answer = hook(execution)
            if answer is None or isinstance(answer, kind):
                return answer
            raise UsageError(f"{name} of task {self._declared.name} answered {answer!r}, no {kind.__name__}")
        except Exception as error:  # noqa: BLE001  (a hook that fails has no say, and does no harm)
            _log.warning(
                "%s of task %s failed; its policy decides", name, self._declared.name, exc_info=error
            )
            text = f"{name} failed, the policy decides: {words.type_of(error)}: {words.text_of(error)}"
            self.context.log(text, level="warning")
            return None

    def _output(self, signal: ReviewSignal) -> str | None:
        if signal.output is None:
            return None
        from pydantic_core import to_json

        text = to_json(signal.output).decode()
        self._check_size(text)
        return text

    def _check_size(self, text: str) -> None:
        options = self._declared.options
        if len(text) * 4 > options.result_limit:  # else it fits whatever its characters are
            PayloadLimits(result=options.result_limit).check_result(options.name, text)

    def _ended(self, outcome: Outcome, error: BaseException | None = None) -> Ended:
        result = outcome.output if isinstance(outcome, Review) else None
        failure = outcome.error if isinstance(outcome, Failed) else None
        return Ended(outcome, result, failure, self._began, self._clock.monotonic(), error)


def _alone(error: BaseException) -> BaseException:
    """What a group of one says about the job: a task group wraps a signal that was raised inside it."""
    leaf = error
    while isinstance(leaf, BaseExceptionGroup) and len(leaf.exceptions) == 1:
        leaf = leaf.exceptions[0]
    return leaf if isinstance(leaf, Signal | PermanentError) else error


def _driven(declared: Declared, answer: Any) -> Any:
    """What a plain function returned; if that is something to await, what comes of it."""
    if not inspect.isawaitable(answer):
        return answer
    _need_no_loop(declared)

    async def main() -> Any:
        return await answer

    return asyncio.run(main())


def _need_no_loop(declared: Declared) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(f"task {declared.name} is a coroutine and a loop is running here; await it instead")


def _span(signal: Signal, value: object) -> timedelta:
    if not isinstance(value, timedelta):
        raise UsageError(f"{type(signal).__name__} takes a timedelta, not {value!r}")
    return value
