"""User hooks around every enqueue and every execution of an app.

Context managers (``app.around``) observe: they are entered where the user's code runs. Middleware functions
(``app.middleware``) may also change or refuse jobs.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from dataclasses import replace
from typing import Any, Literal

from tidemill.domain.bounds import check_headers
from tidemill.domain.job import Enqueued, JobRow, NewJob
from tidemill.errors import BadSettings, UsageError
from tidemill.tasks.middleware import Middleware, Step, around, around_async, is_coroutine
from tidemill.tasks.task import Declared

Managed = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
ExecuteManager = Callable[[JobRow], Managed]
EnqueueManager = Callable[[Step], AbstractContextManager[Any]]
Only = Literal["enqueue", "execute"]


class Hooks:
    """The hooks of one app. Workers keep a reference, so hooks added later take effect too."""

    __slots__ = (
        "enqueue_managers",
        "enqueue_middleware",
        "execute_managers",
        "execute_middleware",
        "on_execute",
    )

    def __init__(self) -> None:
        self.enqueue_managers: list[EnqueueManager] = []
        self.execute_managers: list[ExecuteManager] = []
        self.enqueue_middleware: list[Middleware] = []
        self.execute_middleware: list[Middleware] = []
        #: whether any hook is around executions; an attribute, because every execution reads it
        self.on_execute = False

    def add_middleware(self, middleware: Middleware, only: Only | None, tasks: Iterator[Declared]) -> None:
        """Add a middleware for enqueues, executions or both; the first one added is outermost."""
        if only not in (None, "enqueue", "execute"):
            raise BadSettings(f"unknown step {only!r}; expected 'enqueue' or 'execute'", option="only")
        if only != "enqueue":
            for task in tasks:
                _check_middleware(middleware, task)
            self.execute_middleware.append(middleware)
            self.on_execute = True
        if only != "execute":
            self.enqueue_middleware.append(middleware)

    def add_managers(
        self, execute: ExecuteManager | None, enqueue: EnqueueManager | None, tasks: Iterator[Declared]
    ) -> None:
        """Add context managers; the first one added is outermost."""
        if execute is None and enqueue is None:
            raise BadSettings("app.around needs execute=, enqueue= or both")
        for name, manager in (("execute", execute), ("enqueue", enqueue)):
            if manager is not None:
                _check_makes_managers(name, manager)
        if enqueue is not None and _is_async_only(enqueue):
            raise BadSettings("enqueue takes a synchronous context manager; it wraps aenqueue too")
        if execute is not None:
            for task in tasks:
                _check_manager(execute, task)
            self.execute_managers.append(execute)
            self.on_execute = True
        if enqueue is not None:
            self.enqueue_managers.append(enqueue)

    def check(self, task: Declared) -> None:
        """Refuse a task that one of the hooks cannot wrap."""
        for middleware in self.execute_middleware:
            _check_middleware(middleware, task)
        for manager in self.execute_managers:
            _check_manager(manager, task)

    @property
    def on_enqueue(self) -> bool:
        """Whether any hook is around enqueues."""
        return bool(self.enqueue_managers or self.enqueue_middleware)

    # Executing -------------------------------------------------------------------------------------------------------

    def execute(self, step: Callable[[], Step], job: JobRow, act: Callable[[], Any]) -> Any:
        """Run a synchronous execution inside all hooks; context managers are innermost."""
        managers = self.execute_managers
        if not self.execute_middleware:
            return _inside(managers, job, act)
        return around(self.execute_middleware, step(), lambda: _inside(managers, job, act))

    async def aexecute(self, step: Callable[[], Step], job: JobRow, act: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine inside all hooks."""
        managers = self.execute_managers
        if not self.execute_middleware:
            return await _ainside(managers, job, act)
        return await around_async(self.execute_middleware, step(), lambda: _ainside(managers, job, act))

    # Enqueueing ------------------------------------------------------------------------------------------------------

    def entered(self, step: Step) -> ExitStack:
        """Enter the context managers around an enqueue and return them as a stack, which the caller must close."""
        with ExitStack() as stack:
            for manager in self.enqueue_managers:
                stack.enter_context(manager(step))
            return stack.pop_all()

    def enqueue(self, step: Step, write: Callable[[Sequence[NewJob]], Sequence[Enqueued]]) -> list[Enqueued]:
        """Write the jobs of a step inside all hooks. ``write`` receives the jobs as changed by the hooks."""
        written = None
        with self.entered(step):
            written = around(self.enqueue_middleware, step, lambda: write(stamped(step)))
        return carried_out(step, written)

    def pass_through(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Run the hooks for jobs that are written elsewhere, and return the jobs as changed by the hooks.

        The hooks end before the write. The jobs must keep their ids, which other rows refer to.
        """
        if not jobs or not self.on_enqueue:
            return jobs
        step = Step("enqueue", jobs[0].task, jobs[0].tenant, jobs)
        self.enqueue(step, lambda changed: [Enqueued(job.id, True) for job in changed])
        check_same(step, jobs)
        return step.jobs


NO_HOOKS = Hooks()
"""Hooks for jobs that belong to no app. Nothing may be added to it."""


def stamped(step: Step) -> Sequence[NewJob]:
    """Return the jobs of a step with the step's headers added."""
    if step.headers:
        check_headers(step.headers)
        jobs = []
        for job in step.jobs:
            headers = {**job.details.headers, **step.headers}
            check_headers(headers)
            jobs.append(job._replace(details=replace(job.details, headers=headers)))
        step.jobs = jobs
    return step.jobs


def carried_out(step: Step, written: Any) -> list[Enqueued]:
    """Return the store's answer after checking that the hooks passed it through."""
    if not isinstance(written, list):
        raise UsageError(
            f"a hook around the enqueue of {step.task} returned {type(written).__name__}; a middleware must return"
            " what proceed() returns, and a hook that refuses a job must raise",
            task=step.task,
        )
    return written


def check_same(step: Step, jobs: Sequence[NewJob]) -> None:
    """Refuse hooks that added or removed jobs, or changed ids that other rows refer to."""
    if [job.id for job in step.jobs] != [job.id for job in jobs]:
        raise UsageError(
            f"a hook around the enqueue of {step.task} added, removed or renumbered jobs; it may only change them",
            task=step.task,
        )


def _inside(managers: Sequence[ExecuteManager], job: JobRow, act: Callable[[], Any]) -> Any:
    # If a context manager suppresses the exception, the result is None.
    if len(managers) == 1:  # avoids the cost of a stack
        with managers[0](job):  # type: ignore[union-attr]  # async-only ones are refused at declaration
            return act()
    else:
        with ExitStack() as stack:
            for manager in managers:
                stack.enter_context(manager(job))  # type: ignore[arg-type]
            return act()


async def _ainside(managers: Sequence[ExecuteManager], job: JobRow, act: Callable[[], Awaitable[Any]]) -> Any:
    async with AsyncExitStack() as stack:
        for manager in managers:
            entered = manager(job)
            if isinstance(entered, AbstractAsyncContextManager):
                await stack.enter_async_context(entered)
            else:
                stack.enter_context(entered)
        return await act()


def _check_middleware(middleware: Middleware, task: Declared) -> None:
    if task.is_async and not is_coroutine(middleware):
        raise BadSettings(
            f"middleware {_name(middleware)} is a plain function and cannot wrap the execution of {task.name}, which is a"
            " coroutine: it would return before the task begins. Use app.around(execute=...) to wrap executions,"
            " @app.middleware(only='enqueue') to change jobs, or make the middleware a coroutine function.",
            task=task.name,
        )


def _check_manager(manager: ExecuteManager, task: Declared) -> None:
    if not task.is_async and _is_async_only(manager):
        raise BadSettings(
            f"app.around: {_name(manager)} is an async context manager and cannot wrap {task.name}, which is a plain function;"
            " use a synchronous context manager, which wraps both, or one that has both protocols",
            task=task.name,
        )


def _check_makes_managers(name: str, manager: Any) -> None:
    if not callable(manager):
        raise BadSettings(f"{name} is {manager!r}; give a function that returns a context manager")
    if inspect.isgeneratorfunction(manager) or inspect.isasyncgenfunction(manager) or is_coroutine(manager):
        raise BadSettings(
            f"{name}: {_name(manager)} does not return a context manager; decorate it with contextlib.contextmanager"
        )


def _is_async_only(manager: Any) -> bool:
    if isinstance(manager, type):
        return hasattr(manager, "__aenter__") and not hasattr(manager, "__enter__")
    # @asynccontextmanager keeps the generator function it wraps.
    return inspect.isasyncgenfunction(inspect.unwrap(manager))


def _name(hook: Any) -> str:
    return str(getattr(hook, "__name__", type(hook).__name__))
