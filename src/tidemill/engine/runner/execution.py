"""Execution of one claim in this process, from its arguments to its ``Outcome``.

Every exception of the task becomes data here. This module decides nothing about the job and writes nothing: the outcome
goes to ``decide``, and the transition to a store.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Callable
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from types import CoroutineType
from typing import Any, NamedTuple, cast
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.decide import decide
from tidemill.domain.durations import read_duration
from tidemill.domain.graph import Additions
from tidemill.domain.job import Claim, ErrorInfo, Finish, JobRow, NewJob, Transition
from tidemill.domain.large_values import PREFIX, SpilledText
from tidemill.domain.outcome import (
    Cancelled,
    Failed,
    Misfit,
    Outcome,
    Released,
    ReviewRequested,
    Snoozed,
    Succeeded,
    TimedOut,
)
from tidemill.domain.payload import clip_error
from tidemill.domain.record import Record
from tidemill.domain.states import ExecutionState
from tidemill.domain.stats import FAILURES
from tidemill.domain.steps import UNDO_OPTION
from tidemill.engine import built_in_tasks as _built_in_tasks  # noqa: F401  (registers them)
from tidemill.engine import callbacks as _callbacks  # noqa: F401  (registers its task)
from tidemill.engine import sanitize
from tidemill.engine.compensation import with_result
from tidemill.engine.completion import dump_result, fitted
from tidemill.engine.context import Context, Outlet, OutOfTime, StartRefused
from tidemill.engine.django_connections import close_old_connections
from tidemill.engine.flow_growth import joined
from tidemill.engine.follow_ups import Again
from tidemill.engine.inputs import Inputs, are_read, takes_inputs
from tidemill.engine.log_capture import PARTIAL_LINES, flush_print
from tidemill.engine.provided_values import acall_with_provided, call_with_provided
from tidemill.engine.runner.large_values import stored_end
from tidemill.engine.runner.retry_hooks import NO_WISH, RetryWish, ask, execution_of, has_hooks
from tidemill.engine.steps import StepLog, is_suspension
from tidemill.errors import BadArguments, BlobDamaged, PermanentError, Signal, StoreError, UsageError
from tidemill.errors import Cancel as CancelSignal
from tidemill.errors import Retry as RetrySignal
from tidemill.errors import Review as ReviewSignal
from tidemill.errors import Snooze as SnoozeSignal
from tidemill.tasks.ambient import Audited, inside_job
from tidemill.tasks.hooks import NO_HOOKS, Hooks
from tidemill.tasks.item_task import ItemTask
from tidemill.tasks.middleware import HookStep
from tidemill.tasks.task import Declared

_log = logging.getLogger("tidemill.engine")

_UNREADABLE = timedelta(seconds=5)  # until the next try to read large arguments

ENDED_ALREADY = "this job has ended; no more jobs can be enqueued with its completion"


class ExecutionEnd(NamedTuple):
    """The end of an execution. ``began`` and ``ended`` are readings of the given monotonic clock."""

    outcome: Outcome
    result: str | None
    error: ErrorInfo | None
    began: float
    ended: float
    exception: BaseException | None = None  #: the original object, for callers in the same process
    then: tuple[NewJob, ...] = ()  #: enqueued with the job's completion
    audit: tuple[Audited, ...] = ()
    additions: Additions | None = None  #: written with the completion or the suspension of the job

    def finish(self, claim: Claim, transition: Transition, at: float) -> Finish:
        """The write for a store, at the given reading of the same clock."""
        ages = at - self.began, at - self.ended
        return Finish(
            claim, transition, self.result, self.error, *ages, self.then, self.audit, additions=self.additions
        )


# Like Ended(...), without the cost of parsing keyword arguments.
_ended = partial(tuple.__new__, ExecutionEnd)
_NOTHING: tuple[tuple[NewJob, ...], tuple[Audited, ...]] = ((), ())


def run(
    declared: Declared,
    claim: Claim,
    job: JobRow | Callable[[], JobRow],
    outlet: Outlet,
    clock: Clock,
    hooks: Hooks = NO_HOOKS,
) -> ExecutionEnd:
    """Run a claim to its end in this thread. A coroutine gets its own event loop."""
    if declared.is_async:
        _need_no_loop(declared)
        return cast("ExecutionEnd", outlet.life.run(arun(declared, claim, job, outlet, clock, hooks)))
    if "django.db" in sys.modules:
        close_old_connections()
    attempt = _Attempt(declared, claim, job, outlet, clock, capture=hooks.capture)

    def act() -> Any:
        return _driven(declared, attempt.call())

    try:
        # Run in a copy of the context, so that a task's context variables do not leak into the next task.
        ended = attempt.returned(copy_context().run(attempt.surrounded, hooks, act))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  (any exception of a task is an outcome)
        ended = attempt.raised(error)
    finally:
        if PARTIAL_LINES:
            flush_print(attempt.context)
        if "django.db" in sys.modules:  # the job may have imported it
            close_old_connections()
    if hooks.failures:
        attempt.report(hooks, ended)
    return stored_end(ended, outlet) if type(ended.result) is SpilledText else ended


async def arun(
    declared: Declared,
    claim: Claim,
    job: JobRow | Callable[[], JobRow],
    outlet: Outlet,
    clock: Clock,
    hooks: Hooks = NO_HOOKS,
    began: float | None = None,
) -> ExecutionEnd:
    """Run a claim on the running event loop. A plain function runs in a thread, as it would in a worker.

    ``began`` is a reading of the clock just before the call, if the caller has one. A cancellation from outside is not an
    outcome: ``CancelledError`` then propagates to the caller.
    """
    if not declared.is_async:
        return await asyncio.to_thread(run, declared, claim, job, outlet, clock, hooks)
    attempt = _Attempt(declared, claim, job, outlet, clock, began, hooks.capture)
    try:
        with attempt:
            if hooks.on_execute:
                answer = await hooks.aexecute(attempt.step, attempt.context.job, attempt.acall)
            else:
                answer = attempt.begin()
                if type(answer) is CoroutineType or inspect.isawaitable(answer):
                    answer = await answer
            ended = attempt.returned(answer)
    except KeyboardInterrupt:
        raise
    except asyncio.CancelledError as error:
        ended = attempt.cancelled(error)
    except BaseException as error:  # noqa: BLE001  (any exception of a task is an outcome)
        ended = attempt.raised(error)
    finally:
        if PARTIAL_LINES:
            flush_print(attempt.context)
    return await _reported(attempt, ended, hooks, outlet)


async def aend(
    declared: Declared,
    claim: Claim,
    context: Context,
    clock: Clock,
    hooks: Hooks,
    began: float,
    value: Any,
    error: BaseException | None,
) -> ExecutionEnd:
    """The end of a coroutine that ran in this context outside ``arun``: with this value, or with an exception."""
    outlet = context.outlet
    attempt = _Attempt(declared, claim, context, outlet, clock, began)
    attempt.loaded = True
    if error is None:
        with attempt:
            ended = attempt.returned(value)
    elif isinstance(error, asyncio.CancelledError):
        ended = attempt.cancelled(error)
    else:
        ended = attempt.raised(error)
    return await _reported(attempt, ended, hooks, outlet)


async def _reported(attempt: _Attempt, ended: ExecutionEnd, hooks: Hooks, outlet: Outlet) -> ExecutionEnd:
    """Report a failure to the hooks, and store a large result."""
    if hooks.failures:
        attempt.report(hooks, ended)
    if type(ended.result) is SpilledText:
        return await asyncio.to_thread(stored_end, ended, outlet)
    return ended


class _Attempt(inside_job):
    """One execution: its start time, its context, and the meaning of its end.

    A ``with`` block of it runs inside the job. One object for both spares each job a second one.
    """

    __slots__ = (
        "_began",
        "_claim",
        "_clock",
        "_declared",
        "_handed_over",
        "_outlet",
        "_task",
        "context",
        "loaded",
    )

    def __init__(
        self,
        declared: Declared,
        claim: Claim,
        job: JobRow | Callable[[], JobRow] | Context,
        outlet: Outlet,
        clock: Clock,
        began: float | None = None,
        capture: int | None = None,
    ) -> None:
        self._declared = declared
        self._claim = claim
        self._outlet = outlet
        self._clock = clock
        self._began = clock.monotonic() if began is None else began
        self._job = self.context = (
            job if isinstance(job, Context) else Context(job, outlet, clock, self._began, capture)
        )
        self.loaded = False  #: its arguments have been read
        self._handed_over: tuple[Inputs, str] | None = None  # with the arguments as they were stored
        self._task: Any = None  # the instance created for this execution, if the task is a class

    def step(self) -> HookStep:
        return HookStep("execute", self._declared.name, self._claim.tenant, job=self.context.job)

    def call(self) -> Any:
        """Read the arguments and call the task. Raise ``BadArguments`` if the job no longer fits the task."""
        declared = self._declared
        if self._claim.args.startswith(PREFIX):
            self.fetch()
        if self._claim.detailed and self.takes_inputs and not self._handed_over:
            self.hand_over()
        arguments = (
            self._read_arguments()
            if self._handed_over
            else declared.arguments.load(
                self._claim.args,
                self._claim.id,
                self._definition_id() if declared.arguments.secrets and self._claim.detailed else None,
            )
        )
        self.loaded = True
        if declared.context_parameter is not None:
            arguments[declared.context_parameter] = self.context
        if declared.is_class:
            self._task = declared.target()
        if self._outlet.start_by is not None:
            self._start_in_time()
        if declared.providers:
            return self._call_with_provided(arguments)
        return self._call(arguments)

    def _call_with_provided(self, arguments: dict[str, Any]) -> Any:
        """Call the task with the values of its providers; return a coroutine if the task is one."""
        declared = self._declared

        def call(values: dict[str, Any]) -> Any:
            answer = self._call(arguments | values)
            # Its values are released when it ends.
            return answer if declared.is_async else _driven(declared, answer)

        if declared.is_async:
            return acall_with_provided(call, declared.providers, self.context)
        return call_with_provided(call, declared.providers, self.context, self._outlet.life.wait)

    def _call(self, arguments: dict[str, Any]) -> Any:
        declared = self._declared
        if not declared.is_class:
            return declared.target(**arguments)
        # The framework's own run needs the context, whether or not the user's items asked for it.
        first = (self.context,) if isinstance(self._task, ItemTask) else ()
        return self._task.run(*first, **arguments)

    def _definition_id(self) -> UUID | None:
        return self.context.job.details.definition_id

    @property
    def takes_inputs(self) -> bool:
        """Whether the job needs results of other nodes before it begins."""
        options = self.context.job.details.options
        return takes_inputs(options) or UNDO_OPTION in options

    def hand_over(self) -> None:
        """Read the results that the job takes, check its condition, and put the results into its arguments."""
        options = self.context.job.details.options
        inputs = Inputs(self._outlet.flow_store, self._claim.tenant, options, self._outlet.read_results())
        inputs.check_condition()
        self._handed_over = inputs, self._claim.args
        args = inputs.arguments(self._claim.args)
        secrets = self._declared.arguments.secrets
        args = with_result(self._outlet.flow_store, self._claim, options, secrets, args)
        self._claim = self._claim._replace(args=args)

    def _read_arguments(self) -> dict[str, Any]:
        """Read arguments that contain results. A result that does not fit never will, and the error names its producer."""
        try:
            return self._declared.arguments.load(self._claim.args, self._claim.id, self._definition_id())
        except BadArguments as error:
            assert self._handed_over is not None
            inputs, text = self._handed_over
            faults: Any = error.details.get("errors", ())
            fields = {str(fault["field"]).partition(".")[0] for fault in faults}
            names = [name for field in sorted(fields) for name in inputs.producers(text, field)]
            if not names:
                raise
            raise PermanentError(f"the result of {' and '.join(names)} does not fit: {error}") from None

    def fetch(self) -> None:
        """Read large arguments from their place."""
        self._claim = self._claim._replace(args=self._outlet.fetch(self._claim.args))

    def _start_in_time(self) -> None:
        """Record the start again for as long as it is late."""
        while self._is_late():
            self._outlet.renew_start()

    def _is_late(self) -> bool:
        """Whether the job is under a rate limit and too much time has passed since the store recorded its start."""
        start_by = self._outlet.start_by
        return start_by is not None and self._clock.monotonic() > start_by

    def begin(self) -> Any:
        """Return the awaitable of a coroutine's call, with no more steps than the job needs.

        Nearly all jobs need only their arguments: ``acall`` costs them 5 % more bytecode.
        """
        declared, claim = self._declared, self._claim
        if (
            claim.args.startswith(PREFIX)
            or self._outlet.start_by is not None
            or (claim.detailed and self.takes_inputs)
        ):
            return self.acall()
        if not declared.is_plain:
            return self.acall() if declared.providers else self.call()
        arguments = declared.arguments.load(claim.args)
        self.loaded = True
        return declared.target(**arguments)

    async def acall(self) -> Any:
        """Like ``call``, and also await the result if it is awaitable."""
        while self._is_late():
            # The store call runs on another thread, so that other coroutines keep running.
            await asyncio.to_thread(self._outlet.renew_start)
        if self._claim.args.startswith(PREFIX):
            await asyncio.to_thread(self.fetch)
        if self._claim.detailed and self.takes_inputs:
            options = self.context.job.details.options
            if UNDO_OPTION in options or not are_read(options, self._outlet.read_results()):
                await asyncio.to_thread(self.hand_over)
        answer = self.call()
        if type(answer) is CoroutineType or inspect.isawaitable(answer):
            return await answer
        return answer

    def surrounded(self, hooks: Hooks, act: Callable[[], Any]) -> Any:
        """Call ``act`` inside the job.

        Jobs that it enqueues have this job as their parent, and ``current()`` returns the context.
        """
        with self:
            return hooks.execute(self.step, self.context.job, act) if hooks.on_execute else act()

    def returned(self, value: Any) -> ExecutionEnd:
        context, additions = self.context, None
        following, log = context.following, context.step_log
        if log is not None and context.suspending:
            # The function swallowed the signal; the job is still suspended.
            return self._suspended(log, None)
        text: str | None
        try:
            if following is None or following.result is None or value is not None:
                text = dump_result(self._declared, value, self._claim)
            else:
                text = following.result
            if type(text) is SpilledText and self._outlet.record is Record.NONE:
                text = None
        except Exception as error:  # noqa: BLE001  (the user's result may raise any exception when it is serialized)
            return self.raised_as(Failed(sanitize.error_info(error), permanent=True), error)
        then, audit = _NOTHING if following is None else following.close(ENDED_ALREADY)
        if log is not None:
            additions = log.completed()
        if context.grown is not None:
            additions = joined(additions, context.grown.close())
        ended = self._clock.monotonic()
        return _ended((Succeeded(text), text, None, self._began, ended, None, then, audit, additions))

    def cancelled(self, error: asyncio.CancelledError) -> ExecutionEnd:
        """End a coroutine that was cancelled. A cancellation from outside that is no timeout is raised again."""
        waiting = asyncio.current_task()
        if waiting is not None and waiting.cancelling():
            if self._outlet.is_timed_out() and self._claim.timeout is not None:
                return self.raised(OutOfTime(None))
            raise error
        return self.raised(error)

    def raised(self, error: BaseException) -> ExecutionEnd:
        try:
            if isinstance(_alone(error), Again):
                return self.returned(None)
            log = self.context.step_log
            if log is not None and (log.suspending or is_suspension(error)):
                return self._suspended(log, error)
            return self.raised_as(self._meaning(_alone(error)), error)
        except KeyboardInterrupt:
            raise
        except BaseException as worse:  # noqa: BLE001  (the signal's own values are invalid)
            return self.raised_as(Failed(sanitize.error_info(worse), permanent=True), worse)

    def _suspended(self, log: StepLog, error: BaseException | None) -> ExecutionEnd:
        """End with the suspension that a durable verb has raised, unless the function raised an error of its own."""
        ended = self._clock.monotonic()
        if error is not None and not is_suspension(error):
            return self.raised_as(self._meaning(_alone(error)), error)
        suspended = log.suspended()
        if suspended is None:
            raise UsageError("Suspend was raised by hand; call ctx.sleep or another durable verb")
        if self.context.following is not None:
            self.context.following.close(ENDED_ALREADY)
        outcome, additions = suspended
        return ExecutionEnd(outcome, None, None, self._began, ended, error, additions=additions)

    def report(self, hooks: Hooks, ended: ExecutionEnd) -> None:
        """Call the hooks for failures, if this execution failed with an exception or ran out of time."""
        error, outcome = ended.exception, ended.outcome
        if error is None or not isinstance(outcome, Failed | TimedOut):
            return
        policy = self._declared.policy(self.context.job.details)
        try:
            change = decide(self._claim, outcome, policy, self._outlet.now(), 0.5)
            for tell in hooks.failures:
                tell(self.context.job, error, change.state in FAILURES)
        except Exception:  # noqa: BLE001  (an integration must not change the outcome of a job)
            _log.warning("cannot report the failure of job %s", self._claim.id, exc_info=True)

    def raised_as(self, outcome: Outcome, error: BaseException) -> ExecutionEnd:
        """End with this outcome, and drop the jobs that were to be enqueued with a completion."""
        if self.context.following is not None:
            self.context.following.close(ENDED_ALREADY)
        return self._ended(outcome, error)

    def _meaning(self, error: BaseException) -> Outcome:
        match error:
            case OutOfTime() if self._claim.timeout is not None:
                wish = self._wish(ExecutionState.TIMED_OUT, None)
                return TimedOut(self._claim.timeout, wish.retryable, wish.after)
            case CancelSignal():
                return Cancelled(sanitize.reason_of(error.reason))
            case StartRefused():
                return Released(error.reason)
            case asyncio.CancelledError():
                return Cancelled(self._claim.cancel_reason)
            case SnoozeSignal():
                return Snoozed(_span(error, error.for_), sanitize.reason_of(error.reason))
            case ReviewSignal():
                return ReviewRequested(sanitize.reason_of(error.reason) or "review", self._output(error))
            case RetrySignal():
                after = None if error.after is None else _span(error, error.after)
                return Failed(sanitize.error_info(error), retry_after=after)
            case PermanentError():
                return Failed(sanitize.error_info(error), permanent=True)
            # The stored arguments do not fit this version of the code. A worker with other code may read them.
            case BlobDamaged() if not self.loaded:
                return Failed(sanitize.error_info(error), permanent=True)
            case StoreError() if not self.loaded:
                return Snoozed(_UNREADABLE, sanitize.reason_of(f"its arguments cannot be read now: {error}"))
            case BadArguments() if not self.loaded:
                # Without a traceback: it would show only our own code.
                info = ErrorInfo(sanitize.type_of(error), sanitize.text_of(error))
                return Misfit(clip_error(info), sanitize.reason_of(_problem(error)) or "")
        info = sanitize.error_info(error)
        wish = self._wish(ExecutionState.FAILED, info)
        return Failed(info, retryable=wish.retryable, retry_after=wish.after)

    def _wish(self, state: ExecutionState, info: ErrorInfo | None) -> RetryWish:
        """The answer of the task's retry hooks."""
        if self._task is None and not has_hooks(self._declared):
            return NO_WISH
        execution = execution_of(self._claim, self.context.job, state, self._outlet.now(), info)
        return ask(self._declared, self._task, execution, partial(self.context.log, level="warning"))

    def _output(self, signal: ReviewSignal) -> str | None:
        if signal.output is None:
            return None
        # An approved output becomes the result, so it must fit the result type.
        if self._declared.result.is_typed:
            try:
                return dump_result(self._declared, signal.output, self._claim)
            except BadArguments as error:
                raise UsageError(f"Review(output=…): {error}, or give no output") from None
        from pydantic_core import to_json

        return fitted(self._declared, to_json(signal.output).decode(), self._claim)

    def _ended(self, outcome: Outcome, error: BaseException | None = None) -> ExecutionEnd:
        result = outcome.output if isinstance(outcome, ReviewRequested) else None
        failure = outcome.error if isinstance(outcome, Failed | Misfit) else None
        return ExecutionEnd(outcome, result, failure, self._began, self._clock.monotonic(), error)


def _problem(error: BadArguments) -> str:
    """The problem without the task's name, which its readers know."""
    return error.message.removeprefix(f"task {error.details.get('task')}: ")


def _alone(error: BaseException) -> BaseException:
    """The signal or permanent error inside a group with one exception: a task group wraps what is raised inside it."""
    leaf = error
    while isinstance(leaf, BaseExceptionGroup) and len(leaf.exceptions) == 1:
        leaf = leaf.exceptions[0]
    return leaf if isinstance(leaf, Signal | PermanentError) else error


def _driven(declared: Declared, answer: Any) -> Any:
    """The return value of a plain function. If that is awaitable, the result of awaiting it."""
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
    return read_duration(type(signal).__name__, value, error=UsageError)
