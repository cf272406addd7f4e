"""User hooks around every enqueue and every execution of an app.

Context managers (``app.around``) observe: they are entered where the user's code runs. Middleware functions
(``app.middleware``) may also change or refuse jobs.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from uuid import UUID
from weakref import WeakSet

from tidemill.domain.bounds import check_headers
from tidemill.domain.job import Enqueued, JobRow, NewJob
from tidemill.domain.schedules import ScheduleRow
from tidemill.errors import BadSettings, UsageError
from tidemill.tasks.middleware import HookStep, Middleware, around, around_async, is_coroutine

if TYPE_CHECKING:
    from tidemill.tasks.task import Declared

_log = logging.getLogger("tidemill.engine")

Managed = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
ExecuteManager = Callable[[JobRow], Managed]
EnqueueManager = Callable[[HookStep], AbstractContextManager[Any]]
Lifespan = Callable[[Any], Managed]
Only = Literal["enqueue", "execute"]


class Hooks:
    """The hooks of one app. Workers keep a reference, so hooks added later take effect too."""

    __slots__ = (
        "__weakref__",
        "capture",
        "enqueue_managers",
        "enqueue_middleware",
        "execute_managers",
        "execute_middleware",
        "failures",
        "find_schedule",
        "flushes",
        "lifespan",
        "log_jobs",
        "on_execute",
        "site_url",
    )

    def __init__(self) -> None:
        self.enqueue_managers: list[EnqueueManager] = []
        self.execute_managers: list[ExecuteManager] = []
        self.enqueue_middleware: list[Middleware] = []
        self.execute_middleware: list[Middleware] = []
        #: makes the context manager that every runner enters before its first job
        self.lifespan: Callable[[], Managed] | None = None
        #: whether any hook is around executions; an attribute, because every execution reads it
        self.on_execute = False
        #: called with the job, its exception and whether it is not retried, where an attempt has failed
        self.failures: list[Callable[[JobRow, BaseException, bool], object]] = []
        #: returns a schedule by its id and the name of its store; None if it is gone
        self.find_schedule: Callable[[UUID, str | None], ScheduleRow | None] | None = None
        #: called before a process that runs jobs ends, with the seconds that it may take
        self.flushes: list[Callable[[float], object]] = []
        #: the lowest level of log records that are copied into the log of their job; None for no records
        self.capture: int | None = None
        #: whether the start and the end of every job are logged at INFO
        self.log_jobs = False
        #: the address of the dashboard and the HTTP API, for links that jobs make
        self.site_url: str | None = None

    def flush(self, seconds: float = 3.0) -> None:
        """Send what integrations have collected, because this process is about to end."""
        for send in self.flushes:
            try:
                send(seconds)
            except Exception:  # noqa: BLE001  (an integration must not prevent the end of a worker)
                _log.warning("cannot send collected data before the process ends", exc_info=True)

    def remove(
        self,
        execute: ExecuteManager | None,
        enqueue: EnqueueManager | None,
        flush: Callable[[float], object] | None = None,
    ) -> None:
        """Remove context managers that an integration has added."""
        self.execute_managers[:] = [manager for manager in self.execute_managers if manager != execute]
        self.enqueue_managers[:] = [manager for manager in self.enqueue_managers if manager != enqueue]
        self.flushes[:] = [send for send in self.flushes if send != flush]
        self.on_execute = bool(self.execute_managers or self.execute_middleware)

    def set_logging(self, capture: int | None, *, log_jobs: bool) -> None:
        """Set which log records are copied into the log of their job, and which events of jobs are logged."""
        self.capture, self.log_jobs = capture, log_jobs

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

    def add_managers(self, execute: ExecuteManager | None, enqueue: EnqueueManager | None) -> None:
        """Add context managers; the first one added is outermost."""
        if execute is None and enqueue is None:
            raise BadSettings("app.around needs execute=, enqueue= or both")
        for name, manager in (("execute", execute), ("enqueue", enqueue)):
            if manager is not None:
                _check_makes_managers(name, manager)
        if enqueue is not None and _is_async_only(enqueue):
            raise BadSettings("enqueue takes a synchronous context manager; it wraps aenqueue too")
        if execute is not None:
            self.execute_managers.append(execute)
            self.on_execute = True
        if enqueue is not None:
            self.enqueue_managers.append(enqueue)

    def set_lifespan(self, lifespan: Lifespan | None, app: object) -> None:
        """Set the context manager of every runner; it is called with the app."""
        if lifespan is not None:
            _check_makes_managers("lifespan", lifespan)
        self.lifespan = None if lifespan is None else partial(lifespan, app)

    def check(self, task: Declared) -> None:
        """Refuse a task that one of the hooks cannot wrap."""
        for middleware in self.execute_middleware:
            _check_middleware(middleware, task)

    @property
    def on_enqueue(self) -> bool:
        """Whether any hook is around enqueues."""
        return bool(self.enqueue_managers or self.enqueue_middleware)

    # Executing -------------------------------------------------------------------------------------------------------

    def execute(self, step: Callable[[], HookStep], job: JobRow, act: Callable[[], Any]) -> Any:
        """Run a synchronous execution inside all hooks; context managers are innermost."""
        managers = self.execute_managers
        if not self.execute_middleware:
            return _inside(managers, job, act)
        return around(self.execute_middleware, step(), lambda: _inside(managers, job, act))

    async def aexecute(
        self, step: Callable[[], HookStep], job: JobRow, act: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Run a coroutine inside all hooks."""
        managers = self.execute_managers
        if not self.execute_middleware:
            return await _ainside(managers, job, act)
        return await around_async(self.execute_middleware, step(), lambda: _ainside(managers, job, act))

    # Enqueueing ------------------------------------------------------------------------------------------------------

    def entered(self, step: HookStep) -> ExitStack:
        """Enter the context managers around an enqueue and return them as a stack, which the caller must close."""
        with ExitStack() as stack:
            for manager in self.enqueue_managers:
                stack.enter_context(manager(step))
            return stack.pop_all()

    def enqueue(
        self, step: HookStep, write: Callable[[Sequence[NewJob]], Sequence[Enqueued]]
    ) -> list[Enqueued]:
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
        step = HookStep("enqueue", jobs[0].task, jobs[0].tenant, jobs)
        self.enqueue(step, lambda changed: [Enqueued(job.id, True) for job in changed])
        check_same(step, jobs)
        return step.jobs


class AllHooks:
    """The hooks of every app of this process, for integrations that a program switches on once for all apps."""

    _living: ClassVar[WeakSet[Hooks]] = WeakSet()
    _installers: ClassVar[list[Callable[[Hooks], None]]] = []

    @classmethod
    def create(cls) -> Hooks:
        """Create the hooks of a new app."""
        hooks = Hooks()
        cls._living.add(hooks)
        for install in cls._installers:
            install(hooks)
        return hooks

    @classmethod
    def install(cls, install: Callable[[Hooks], None]) -> None:
        """Call ``install`` with the hooks of every app, also of apps that are created later."""
        cls._installers.append(install)
        for hooks in list(cls._living):
            install(hooks)

    @classmethod
    def uninstall(cls, install: Callable[[Hooks], None], undo: Callable[[Hooks], None]) -> None:
        """Stop calling ``install``, and call ``undo`` with the hooks of every app."""
        cls._installers[:] = [other for other in cls._installers if other != install]
        for hooks in list(cls._living):
            undo(hooks)


NO_HOOKS = Hooks()
"""Hooks for jobs that belong to no app. Nothing may be added to it."""


def stamped(step: HookStep) -> Sequence[NewJob]:
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


def carried_out(step: HookStep, written: Any) -> list[Enqueued]:
    """Return the store's answer after checking that the hooks passed it through."""
    if not isinstance(written, list):
        raise UsageError(
            f"a hook around the enqueue of {step.task} returned {type(written).__name__}; a middleware must return"
            " what proceed() returns, and a hook that refuses a job must raise",
            task=step.task,
        )
    return written


def check_same(step: HookStep, jobs: Sequence[NewJob]) -> None:
    """Refuse hooks that added or removed jobs, or changed ids that other rows refer to."""
    if [job.id for job in step.jobs] != [job.id for job in jobs]:
        raise UsageError(
            f"a hook around the enqueue of {step.task} added, removed or renumbered jobs; it may only change them",
            task=step.task,
        )


def _inside(managers: Sequence[ExecuteManager], job: JobRow, act: Callable[[], Any]) -> Any:
    if not managers:
        return act()
    entered = managers[0](job)
    if not isinstance(entered, AbstractContextManager):
        return _inside_async(entered, lambda: _inside(managers[1:], job, act))
    result = None  # if the context manager suppresses the exception of the function
    with entered:
        result = _inside(managers[1:], job, act)
    return result  # noqa: RET504  (mypy takes a return inside the block for the only one)


def _inside_async(manager: AbstractAsyncContextManager[Any], act: Callable[[], Any]) -> Any:
    """Run a plain function inside an async context manager, on an event loop that runs only to enter and to exit it.

    The function runs in the context of the manager, and may start an event loop itself.
    """

    async def enter() -> None:
        await manager.__aenter__()

    async def leave(error: BaseException | None) -> bool | None:
        raised = (None, None, None) if error is None else (type(error), error, error.__traceback__)
        return await manager.__aexit__(*raised)

    context = copy_context()
    with ExitStack() as stack:
        run = _own_loop(stack)
        run(enter(), context=context)
        try:
            value = context.run(act)
        except BaseException as error:
            if run(leave(error), context=context):
                return None
            raise
        run(leave(None), context=context)
        return value


def _own_loop(stack: ExitStack) -> Callable[..., Any]:
    """Return the ``run`` of a new event loop; it is on another thread if this one runs a loop already."""
    # Imported here: a supervisor loads this module, and asyncio would cost it 7 MB.
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return stack.enter_context(asyncio.Runner()).run
    pool = stack.enter_context(ThreadPoolExecutor(1))
    runner = pool.submit(asyncio.Runner).result()
    stack.callback(lambda: pool.submit(runner.close).result())
    return lambda coroutine, *, context: pool.submit(runner.run, coroutine, context=context).result()


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
