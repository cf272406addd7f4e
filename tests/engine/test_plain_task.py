"""The short way of plain coroutine tasks gives the same ends as the general way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.engine.kit import START, Notes, a_claim, a_job

from tidemill.clock import ManualClock
from tidemill.domain.job import Claim, JobRow
from tidemill.engine.context import Context, current
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.runner.execution import ExecutionEnd, arun
from tidemill.engine.runner.plain_task import arun_plain, plain_task
from tidemill.errors import BadArguments, PermanentError, Retry
from tidemill.tasks.ambient import current_job
from tidemill.tasks.codec import ArgumentsCodec
from tidemill.tasks.hooks import NO_HOOKS, Hooks
from tidemill.tasks.options import TaskOptions
from tidemill.tasks.secret_values import Secret
from tidemill.tasks.task import Declared, declare


class Held(Notes):
    """The parts of a held job that an execution needs."""

    def __init__(self, declared: Declared, args: str) -> None:
        super().__init__(ManualClock(START))
        self.declared, self._args = declared, args

    @property
    def claim(self) -> Claim:
        return a_claim(self._args)

    def job(self) -> JobRow:
        return a_job(args=self._args)


async def add(a: int, b: int = 2) -> int:
    return a + b


async def return_nothing() -> None: ...


async def return_anything(value: int | None) -> Any:
    return value


async def wait_a_turn(text: str) -> list[str]:
    await asyncio.sleep(0)
    return [text]


async def take_the_context(ctx: Context, text: str) -> str:
    return f"{text} {ctx.attempt} {current() is ctx}"


async def suspend(ctx: Context) -> None:
    await ctx.asleep("nap", "1h")


async def read_the_current_job() -> int:
    return current().attempt


async def report(ctx: Context) -> None:
    ctx.progress(0.5)


async def fail(text: str) -> None:
    raise ValueError(text)


async def fail_for_good() -> None:
    raise PermanentError("no")


async def ask_for_a_retry() -> None:
    raise Retry(after=5)


async def cancel_itself() -> None:
    raise asyncio.CancelledError


async def return_the_wrong_type() -> int:
    return cast(int, "text")


async def return_much(length: int) -> str:
    return "x" * length


def ends(target: Callable[..., Any], args: str, hooks: Hooks = NO_HOOKS) -> list[ExecutionEnd]:
    """The ends of the same job in both ways."""
    declared = declare(target, TaskOptions(name="work"))
    plain = plain_task(declared)
    assert plain is not None

    async def both() -> list[ExecutionEnd]:
        general, short = Held(declared, args), Held(declared, args)
        return [
            await arun(declared, general.claim, general.job, general, general.clock, hooks),
            await arun_plain(plain, cast(HeldJob, short), short.clock, hooks, short.clock.monotonic()),
        ]

    return asyncio.run(both())


@pytest.mark.parametrize(
    ("target", "args"),
    [
        (add, '{"a":1}'),
        (add, '{"a":1,"b":5}'),
        (add, '{"a":"one"}'),
        (add, '{"b":1}'),
        (add, '{"a":1,"c":1}'),
        (return_nothing, "{}"),
        (return_anything, '{"value":null}'),
        (return_anything, '{"value":1}'),
        (wait_a_turn, '{"text":"é"}'),
        (take_the_context, '{"text":"x"}'),
        (suspend, "{}"),
        (read_the_current_job, "{}"),
        (report, "{}"),
        (fail, '{"text":"broken"}'),
        (fail_for_good, "{}"),
        (ask_for_a_retry, "{}"),
        (cancel_itself, "{}"),
        (return_the_wrong_type, "{}"),
        (return_much, '{"length":3997}'),
        (return_much, '{"length":3998}'),
        (return_much, '{"length":400000}'),
    ],
)
def test_both_ways_end_alike(target: Callable[..., Any], args: str) -> None:
    general, short = ends(target, args)
    if general.exception is not None:
        # The tracebacks differ in the frames of the engine, which are not stored.
        assert repr(short.exception) == repr(general.exception)
        general, short = general._replace(exception=None), short._replace(exception=None)
    assert short == general
    assert type(short.outcome) is type(general.outcome)


def test_the_short_way_leaves_no_current_job() -> None:
    async def run() -> None:
        for target in (add, fail, return_much):
            declared = declare(target, TaskOptions(name="work"))
            plain = plain_task(declared)
            assert plain is not None
            args = {add: '{"a":1}', fail: '{"text":"x"}', return_much: '{"length":4000}'}[target]
            held = Held(declared, args)
            await arun_plain(plain, cast(HeldJob, held), held.clock, NO_HOOKS, 0.0)
            assert current_job() is None

    asyncio.run(run())


def test_a_failure_is_reported_to_the_hooks_once() -> None:
    hooks, told = Hooks(), list[tuple[BaseException, bool]]()
    hooks.failures.append(lambda _job, error, final: told.append((error, final)))
    ends(fail, '{"text":"broken"}', hooks)
    assert [(str(error), final) for error, final in told] == [("broken", False)] * 2


async def take_a_secret(password: Secret[str]) -> None: ...


async def return_a_secret() -> Secret[str]:
    return Secret("x")


class AClass:
    async def run(self) -> None: ...


def a_function() -> None: ...


async def take_a_float(share: float) -> None: ...


def test_a_type_that_cannot_be_built_has_no_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = declare(add, TaskOptions(name="work"))

    def fail_to_build(_codec: ArgumentsCodec) -> None:
        raise BadArguments("the type is not defined yet")

    monkeypatch.setattr(ArgumentsCodec, "short_reader", fail_to_build)
    assert plain_task(declared) is None


@pytest.mark.parametrize("target", [take_a_secret, return_a_secret, AClass, a_function, take_a_float])
def test_other_tasks_have_no_short_way(target: Callable[..., Any]) -> None:
    assert plain_task(declare(target, TaskOptions(name="work"))) is None
