"""Tests of a single execution: arguments, result, context and middleware."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from tests.engine.kit import ID, START, World, a_claim, raising

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Execution
from tidemill.domain.large_values import read_reference
from tidemill.domain.outcome import Failed, Succeeded
from tidemill.engine.context import Context, current
from tidemill.errors import PermanentError, Retry, Review, UsageError
from tidemill.tasks.ambient import current_job, current_tenant
from tidemill.tasks.hooks import Hooks
from tidemill.tasks.middleware import HookStep
from tidemill.tasks.task import Task

_leak: ContextVar[str] = ContextVar("leak", default="clean")


@pytest.fixture
def world() -> World:
    return World()


@dataclass
class Point:
    x: int


# -------------------------------------------------------------------------------------------------- success


def test_a_function_gets_its_arguments_and_its_result_is_json(world: World) -> None:
    def work(point: Point, times: int = 2) -> dict[str, int]:
        return {"x": point.x * times}

    ended = world.run(work, '{"point":{"x":21}}')
    assert ended.outcome == Succeeded('{"x":42}')
    assert (ended.result, ended.error, ended.exception) == ('{"x":42}', None, None)


def test_a_coroutine_function_is_run_to_completion(world: World) -> None:
    async def work(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    assert world.run(work, '{"n":1}').result == "2"
    assert asyncio.run(world.arun(work, '{"n":1}')).result == "2"


def test_an_awaitable_return_value_is_awaited(world: World) -> None:
    async def inner() -> int:
        return 5

    def work() -> Awaitable[int]:
        return inner()

    assert world.run(work).result == "5"


def test_the_context_is_passed_in_and_is_the_current_one_inside(world: World) -> None:
    def work(ctx: Context, n: int) -> bool:
        return current() is ctx and ctx.job.id == ID and ctx.tenant == "acme"

    assert world.run(work, '{"n":1}').result == "true"
    with pytest.raises(UsageError):
        current()


def test_a_job_enqueued_by_a_task_becomes_its_child(world: World) -> None:
    def work() -> list[str | None]:
        job = current_job()
        return [None if job is None else str(job.job_id), current_tenant()]

    assert world.run(work).result == f'["{ID}","acme"]'
    assert current_job() is None


def test_a_context_variable_set_by_a_task_is_gone_afterwards(world: World) -> None:
    def work() -> None:
        _leak.set("dirty")

    world.run(work)
    assert _leak.get() == "clean"


def test_start_and_end_of_an_execution_are_measured_on_the_monotonic_clock(world: World) -> None:
    def work() -> None:
        world.clock.advance(timedelta(seconds=5))

    ended = world.run(work)
    world.clock.advance(timedelta(seconds=2))
    finish = ended.finish(a_claim(), COMPLETED, world.clock.monotonic())
    assert (finish.started_ago, finish.ended_ago, finish.result) == (7.0, 2.0, "null")


# -------------------------------------------------------------------------------------------------- results


def test_a_result_over_the_limit_of_a_row_becomes_a_reference(world: World) -> None:
    def work() -> str:
        return "x" * 100

    ended = world.run(work, result_limit=50)
    (value,) = world.outlet.spilled
    assert ended.outcome == Succeeded(str(value))
    assert (ended.result, value.content) == (str(value), '"' + "x" * 100 + '"')


@pytest.mark.parametrize(
    ("options", "words"),
    [({"max_result": 60}, "max_result"), ({"large_results": "refuse"}, "large_results is 'refuse'")],
)
def test_a_result_that_is_not_kept_does_not_fail_the_job(
    world: World, options: dict[str, Any], words: str
) -> None:
    def work() -> str:
        return "x" * 100

    ended = world.run(work, result_limit=50, **options)
    assert isinstance(ended.outcome, Succeeded)
    reference = read_reference(ended.result)
    assert reference is not None
    assert (reference.size, reference.key) == (102, None)
    assert words in (reference.refused or "")
    assert world.outlet.spilled == []


@pytest.mark.parametrize("value", [object(), "wrong type"])
def test_a_result_that_cannot_be_serialized_fails_permanently(world: World, value: Any) -> None:
    def work() -> int:
        return value  # type: ignore[no-any-return]

    ended = world.run(work)
    assert isinstance(ended.outcome, Failed)
    assert ended.outcome.permanent


# --------------------------------------------------------------------------------------------- task classes


def test_a_task_class_is_instantiated_for_every_execution(world: World) -> None:
    class Work(Task[None, int]):
        def __init__(self) -> None:
            self.calls = 0

        def run(self, ctx: Context, by: int) -> int:
            self.calls += by
            return self.calls

    assert [world.run(Work, '{"by":2}').result for _ in range(2)] == ["2", "2"]


def test_a_task_class_may_have_an_async_run_method(world: World) -> None:
    class Work(Task[None, int]):
        async def run(self, by: int) -> int:
            return by

    assert world.run(Work, '{"by":2}').result == "2"


class Choosy(Task[None, None]):
    """Retries server errors, with the delay that the error asks for."""

    def run(self, status: int) -> None:
        raise ConnectionError(f"status {status}")

    def should_retry(self, execution: Execution) -> bool:
        assert execution.error is not None
        return execution.error.message != "status 404"

    def retry_delay(self, execution: Execution) -> timedelta | None:
        assert execution.error is not None
        if execution.error.message == "status 503":
            return timedelta(seconds=10 * 2**execution.attempt)
        return None


@pytest.mark.parametrize(
    ("status", "retryable", "after"),
    [(404, False, None), (503, True, timedelta(seconds=20)), (500, True, None)],
)
def test_a_task_class_can_decide_about_its_retries(
    world: World, status: int, retryable: bool, after: timedelta | None
) -> None:
    outcome = world.run(Choosy, f'{{"status":{status}}}').outcome
    assert isinstance(outcome, Failed)
    assert (outcome.retryable, outcome.retry_after) == (retryable, after)


def test_retry_hooks_receive_the_failed_execution(world: World) -> None:
    seen: list[Execution] = []

    class Work(Task[None, None]):
        def run(self) -> None:
            raise ValueError("boom")

        def should_retry(self, execution: Execution) -> bool:
            seen.append(execution)
            return True

    world.run(Work)
    (execution,) = seen
    assert (execution.job_id, execution.number, execution.attempt, execution.finished_at) == (ID, 3, 1, START)


def test_retry_hooks_are_not_called_after_a_permanent_error_or_a_retry(world: World) -> None:
    class Work(Choosy):
        def should_retry(self, execution: Execution) -> bool:
            raise AssertionError("asked")

    for error in (PermanentError("x"), Retry()):
        outcome = world.run(type("Said", (Work,), {"run": lambda self, error=error: _raise(error)})).outcome
        assert isinstance(outcome, Failed)
        assert outcome.retryable is None


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("answer", ["fails", "nonsense"])
def test_a_failing_retry_hook_is_logged_and_the_policy_decides(world: World, answer: str) -> None:
    class Work(Task[None, None]):
        def run(self) -> None:
            raise ValueError("boom")

        def should_retry(self, execution: Execution) -> bool:
            if answer == "fails":
                raise KeyError("oops")
            return answer  # type: ignore[return-value]

        def retry_delay(self, execution: Execution) -> timedelta | None:
            return "soon"  # type: ignore[return-value]

    outcome = world.run(Work).outcome
    assert isinstance(outcome, Failed)
    assert (outcome.retryable, outcome.retry_after) == (None, None)
    assert [line.level for line in world.outlet.lines] == ["warning", "warning"]
    assert "should_retry failed, the policy decides" in world.outlet.lines[0].message


def test_a_task_class_whose_constructor_fails_is_a_failed_execution(world: World) -> None:
    class Work:
        def __init__(self) -> None:
            raise ValueError("no connection")

        def run(self) -> None: ...

    outcome = world.run(Work).outcome
    assert isinstance(outcome, Failed)
    assert not outcome.permanent


# ---------------------------------------------------------------------------------------------- environment


def test_middleware_wraps_the_execution(world: World) -> None:
    told: list[object] = []

    def outer(step: HookStep, proceed: Callable[[], Any]) -> Any:
        told.append((step.kind, step.task, step.tenant))
        answer = proceed()
        told.append(answer)
        return answer

    def work() -> int:
        return 4

    hooks = Hooks()
    hooks.add_middleware(outer, "execute", iter(()))
    assert world.run(work, hooks=hooks).result == "4"
    assert told == [("execute", "work", "acme"), 4]


def test_a_coroutine_cannot_be_run_synchronously_inside_a_running_loop(world: World) -> None:
    async def work() -> None: ...

    async def main() -> None:
        with pytest.raises(UsageError, match="await it instead"):
            world.run(work)

    asyncio.run(main())


def test_a_function_runs_in_a_thread_next_to_a_running_loop(world: World) -> None:
    async def inner() -> int:
        return 3

    def work() -> int:
        return asyncio.run(inner())

    assert asyncio.run(world.arun(work)).result == "3"


class Unreadable(Exception):
    """Raises SystemExit when converted to a string."""

    def __str__(self) -> str:
        raise SystemExit(3)


class Worse(Exception):
    """Raises GeneratorExit, with an unreadable cause, when converted to a string."""

    def __str__(self) -> str:
        raise GeneratorExit from Unreadable()


@pytest.mark.parametrize("error", [Unreadable(), Worse(), Review(Unreadable())])  # type: ignore[arg-type]
def test_an_exception_whose_string_conversion_exits_is_a_failure(error: BaseException) -> None:
    ended = World().run(raising(error))
    assert isinstance(ended.outcome, Failed)


def test_ctrl_c_while_an_exception_is_formatted_is_not_swallowed() -> None:
    class Interrupted(Exception):
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        World().run(raising(Interrupted()))
