"""Operations of durable functions, each for a thread and for a coroutine."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import copy_context
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID

from tidemill.domain.job import Claim
from tidemill.engine.completion import Connections, check_held
from tidemill.engine.job_ends import GroupEnds, JobEnd
from tidemill.engine.suspension import records_of
from tidemill.errors import UsageError
from tidemill.stores.base import Store
from tidemill.tasks.task import Declared

T = TypeVar("T")


class StepOutlet(Protocol):
    """The parts of a running job that its steps need."""

    @property
    def declared(self) -> Declared: ...

    @property
    def claim(self) -> Claim: ...

    def step_records(self) -> Mapping[str, str]:
        """All checkpoints of the job."""

    def record_steps(self, records: Mapping[str, str]) -> None:
        """Write records of steps, by name. Raises ``Cancel`` if this worker no longer holds the job."""

    async def arecord_steps(self, records: Mapping[str, str]) -> None:
        """Write records like ``record_steps``, without blocking the event loop."""

    def job_ends(self, ids: Sequence[UUID]) -> list[JobEnd]:
        """The jobs of the job's tenant with these ids, in their order."""

    def group_ends(self, id: UUID) -> GroupEnds:
        """The members of a group of jobs."""

    def stop_group(self, id: UUID, reason: str) -> None:
        """Cancel the members of a group that have not ended."""

    @property
    def flow_store(self) -> Store:
        """The store of the job, with its verbs of flows."""

    def fetch(self, text: str) -> str:
        """Read the value that a reference stands for."""

    def store_now(self) -> datetime:
        """The store's own time."""

    def take_signal(self, names: Sequence[str], record: str, before: datetime | None) -> str | None:
        """Take a signal, and return the record of the step, which is written. Raises ``Cancel`` if the job was lost."""

    def find_event(self, name: str, match: str, since: datetime | None) -> str | None:
        """The record of the first event of a name since an instant, or since the job was created."""

    def signal_url(self, name: str, ttl: timedelta) -> str:
        """A signed URL that sends a signal of this name to the job."""

    def pause(self, seconds: float) -> None:
        """Wait in this thread."""

    async def apause(self, seconds: float) -> None:
        """Wait in this coroutine."""


class StepOperation:
    """One operation that a verb asks for."""

    def run(self, outlet: StepOutlet) -> Any:
        raise NotImplementedError

    async def arun(self, outlet: StepOutlet) -> Any:
        return await asyncio.to_thread(self.run, outlet)


class Read(StepOperation):
    """Reads the job's checkpoints."""

    def run(self, outlet: StepOutlet) -> Mapping[str, str]:
        return outlet.step_records()


class Write(StepOperation):
    """Writes records of steps."""

    def __init__(self, records: Mapping[str, str]) -> None:
        self._records = records

    def run(self, outlet: StepOutlet) -> None:
        outlet.record_steps(self._records)

    async def arun(self, outlet: StepOutlet) -> None:
        await outlet.arecord_steps(self._records)


class WriteOn(StepOperation):
    """Writes records of steps in the transaction that is open on the user's own connection."""

    def __init__(self, connections: Connections, connection: object, records: Mapping[str, str]) -> None:
        self._connections, self._connection, self._records = connections, connection, records

    def run(self, outlet: StepOutlet) -> None:
        held = self._connections.record_steps(self._connection, records_of(outlet.claim, self._records))
        check_held(outlet.claim.id, held)

    async def arun(self, outlet: StepOutlet) -> None:
        held = await self._connections.arecord_steps(
            self._connection, records_of(outlet.claim, self._records)
        )
        check_held(outlet.claim.id, held)


class StoreTime(StepOperation):
    """Reads the store's time."""

    def run(self, outlet: StepOutlet) -> datetime:
        return outlet.store_now()


class TakeSignal(StepOperation):
    """Takes a signal for a step."""

    def __init__(self, names: Sequence[str], record: str, before: datetime | None) -> None:
        self._names, self._record, self._before = names, record, before

    def run(self, outlet: StepOutlet) -> str | None:
        return outlet.take_signal(self._names, self._record, self._before)


class FindEvent(StepOperation):
    """Looks for an event."""

    def __init__(self, name: str, match: str, since: datetime | None) -> None:
        self._name, self._match, self._since = name, match, since

    def run(self, outlet: StepOutlet) -> str | None:
        return outlet.find_event(self._name, self._match, self._since)


class WaitInPlace(StepOperation):
    """Waits in place."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def run(self, outlet: StepOutlet) -> None:
        outlet.pause(self._seconds)

    async def arun(self, outlet: StepOutlet) -> None:
        await outlet.apause(self._seconds)


class Invoke(StepOperation):
    """Calls the function of a step."""

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        timeout: timedelta | None,
    ) -> None:
        self._name, self._fn, self._args, self._kwargs = name, fn, args, kwargs
        self._timeout = None if timeout is None else timeout.total_seconds()
        self.milliseconds = 0.0

    def run(self, outlet: StepOutlet) -> Any:
        began = time.perf_counter()
        try:
            if self._timeout is None:
                value = self._call()
            else:
                value = self._on_a_thread(self._timeout)
        finally:
            self.milliseconds = (time.perf_counter() - began) * 1000
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise UsageError(
                f"step {self._name} calls a coroutine function; await ctx.astep(…) in a coroutine"
            )
        return value

    def _call(self) -> Any:
        return self._fn(*self._args, **self._kwargs)

    def _on_a_thread(self, timeout: float) -> Any:
        """Call the function on another thread, and abandon it at the timeout: a thread cannot be stopped."""
        done = threading.Event()
        answer: list[Any] = []
        context = copy_context()

        def call() -> None:
            try:
                answer.extend((True, context.run(self._call)))
            except BaseException as error:  # noqa: BLE001  (raised again by the step)
                answer.extend((False, error))
            finally:
                done.set()

        threading.Thread(target=call, name="tidemill-step", daemon=True).start()
        if not done.wait(timeout):
            raise self._too_late()
        if answer[0]:
            return answer[1]
        raise answer[1]

    def _too_late(self) -> TimeoutError:
        return TimeoutError(f"step {self._name} exceeded its timeout of {self._timeout:g} s")

    async def arun(self, outlet: StepOutlet) -> Any:
        began = time.perf_counter()
        try:
            if self._timeout is None:
                return await self._acall()
            limit = asyncio.timeout(self._timeout)
            try:
                async with limit:
                    return await self._acall()
            except TimeoutError:
                if limit.expired():
                    raise self._too_late() from None
                raise
        finally:
            self.milliseconds = (time.perf_counter() - began) * 1000

    async def _acall(self) -> Any:
        if inspect.iscoroutinefunction(self._fn):
            return await self._fn(*self._args, **self._kwargs)
        # A plain function may block, so it does not run on the event loop.
        value = await asyncio.to_thread(self._fn, *self._args, **self._kwargs)
        return await value if inspect.isawaitable(value) else value


def drive(talk: Generator[StepOperation, Any, T], outlet: StepOutlet) -> T:
    """Carry out the operations of a verb in this thread."""
    try:
        operation = next(talk)
        while True:
            try:
                answer = operation.run(outlet)
            except BaseException as error:  # noqa: BLE001  (the verb decides)
                operation = talk.throw(error)
            else:
                operation = talk.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value


async def adrive(talk: Generator[StepOperation, Any, T], outlet: StepOutlet) -> T:
    """Carry out the operations of a verb in this coroutine."""
    try:
        operation = next(talk)
        while True:
            try:
                answer = await operation.arun(outlet)
            except BaseException as error:  # noqa: BLE001  (the verb decides)
                operation = talk.throw(error)
            else:
                operation = talk.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value
