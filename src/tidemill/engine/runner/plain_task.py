"""The short way of a coroutine task that takes plain arguments and returns a short plain value.

Tens of thousands of jobs pass here per second. Whatever is not plain takes the general way of ``execution``, which gives
the same results.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill.clock import Clock
from tidemill.domain.outcome import Succeeded
from tidemill.engine.context import Context
from tidemill.engine.log_capture import PARTIAL_LINES, flush_print
from tidemill.engine.runner.execution import ExecutionEnd, aend, arun
from tidemill.tasks.ambient import JOB
from tidemill.tasks.codec import REFUSALS, SURELY_READ
from tidemill.tasks.hooks import Hooks
from tidemill.tasks.task import Declared

if TYPE_CHECKING:
    from tidemill.engine.exchange.held_job import HeldJob

# Tuples without the cost of parsing keyword arguments.
_new = tuple.__new__


@dataclass(slots=True)
class PlainTask:
    """The parts of a declared task that its short way needs. A class with slots, whose fields are the fastest to read."""

    target: Callable[..., Coroutine[Any, Any, Any]]
    read: Callable[[str], dict[str, Any]]
    write: Callable[[Any], bytes]
    longest: int  #: bytes of a result; a longer one takes the general way
    context_parameter: str | None


def plain_task(declared: Declared) -> PlainTask | None:
    """Return the parts for the short way; None if the task may need anything else."""
    arguments, result = declared.arguments, declared.result
    if declared.is_class or declared.providers or arguments.secrets or result.is_secret:
        return None
    if not inspect.iscoroutinefunction(declared.target):
        return None
    try:
        read, write = arguments.short_reader(), result.short_writer() or (None if result.is_typed else _none)
    except Exception:  # noqa: BLE001  (a type that cannot be built fails its own jobs, in the general way)
        return None
    if read is None or write is None:
        return None
    longest = min(declared.options.result_limit, SURELY_READ)
    return PlainTask(declared.target, read, write, longest, declared.context_parameter)


def _none(value: Any) -> bytes:
    """The only result without a type that is surely plain."""
    if value is not None:
        raise ValueError
    return b"null"


async def arun_plain(
    plain: PlainTask, held: HeldJob, clock: Clock, hooks: Hooks, began: float
) -> ExecutionEnd:
    """Run a job of a plain task that has neither limits nor details, for an app without execution hooks."""
    try:
        arguments = plain.read(held.claim.args)
    except REFUSALS:
        # Large arguments are somewhere else, and the general way reports the faults of others.
        return await arun(held.declared, held.claim, held.job, held, clock, hooks, began)
    context = Context(held.job, held, clock, began, hooks.capture)
    if plain.context_parameter is not None:
        arguments[plain.context_parameter] = context
    token = JOB.set(context)
    try:
        value = await plain.target(**arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  (any exception of a task is an outcome)
        JOB.reset(token)
        if PARTIAL_LINES:
            flush_print(context)
        return await aend(held.declared, held.claim, context, clock, hooks, began, None, error)
    JOB.reset(token)
    if PARTIAL_LINES:
        flush_print(context)
    try:
        raw = plain.write(value)
    except REFUSALS:
        raw = None
    if (
        raw is None
        or len(raw) >= plain.longest
        or context.following is not None
        or context.step_log is not None
        or context.grown is not None
    ):
        return await aend(held.declared, held.claim, context, clock, hooks, began, value, None)
    text = raw.decode()
    outcome = _new(Succeeded, (text,))
    return _new(ExecutionEnd, (outcome, text, None, began, clock.monotonic(), None, (), (), None))
