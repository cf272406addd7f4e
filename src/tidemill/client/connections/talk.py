"""Enqueueing as a conversation: statements go out, rows come back, and nobody here knows how they travel.

A conversation is a generator. It yields lines, which the user's connection is to run, and errands, which ask the store itself
and may block. So one text serves plain connections and asynchronous ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from tidemill.client.acting import enqueued_entries
from tidemill.domain.job import Enqueued, NewJob
from tidemill.stores.sql.driver import Driver, Items, Row, Takes
from tidemill.stores.sql.flow import SqlFlow
from tidemill.stores.sql.records import SqlRecords

T = TypeVar("T")


class Line(NamedTuple):
    """One statement for the user's connection, spelt as that connection wants it."""

    sql: str
    values: Any = ()
    many: bool = False  #: the values are many rows of them
    gives: bool = True  #: it may answer with rows


class Errand(NamedTuple):
    """A question to the store, outside the user's transaction."""

    call: Callable[[], Any]


Talk = Generator[Line | Errand, Any, T]


class Host(Protocol):
    """A user's connection, as far as every kind is alike."""

    @property
    def dialect(self) -> str:
        """``postgres`` or ``sqlite``."""
        ...

    @property
    def style(self) -> str:
        """How the values of a statement are spelt: packed, named, numbered (PostgreSQL); marks, percents (SQLite)."""
        ...

    @property
    def key(self) -> object:
        """What stands for the physical connection, for remembering which database it leads to."""
        ...

    def ready(self) -> None:
        """Raise, unless a transaction is open or opens with the first write."""
        ...


class PlainHost(Host, Protocol):
    """One that answers at once."""

    def execute(self, line: Line) -> list[Row]: ...


class AsyncHost(Host, Protocol):
    """One that is awaited."""

    def execute(self, line: Line) -> Awaitable[list[Row]]: ...


def drive(talk: Talk[T], host: PlainHost) -> T:
    """Hold the conversation with a plain connection."""
    try:
        step = next(talk)
        while True:
            try:
                answer = step.call() if isinstance(step, Errand) else host.execute(step)
            except BaseException as error:  # noqa: BLE001  (the conversation decides, and lets it go on)
                step = talk.throw(error)
            else:
                step = talk.send(answer)
    except StopIteration as end:
        return cast(T, end.value)


async def adrive(talk: Talk[T], host: AsyncHost) -> T:
    """Hold the conversation with an asynchronous connection; errands run in a thread, so that the loop goes on."""
    try:
        step = next(talk)
        while True:
            try:
                if isinstance(step, Errand):
                    answer = await asyncio.to_thread(step.call)
                else:
                    answer = await host.execute(step)
            except BaseException as error:  # noqa: BLE001  (the conversation decides, and lets it go on)
                step = talk.throw(error)
            else:
                step = talk.send(answer)
    except StopIteration as end:
        return cast(T, end.value)


# The store's own enqueue -------------------------------------------------------------------------------------------------

Run = Callable[[str, Takes, Items], Talk[list[Row]]]


class _Asks(Exception):
    def __init__(self, name: str, takes: Takes, items: Items) -> None:
        super().__init__(name)
        self.name, self.takes, self.items = name, takes, items


class _Answers:
    """In a driver's place: the answers that are there so far. It stops the caller at the first that is missing."""

    def __init__(self, answers: Sequence[list[Row]]) -> None:
        self._answers = iter(answers)

    def run(
        self, name: str, takes: Takes | None = None, items: Items | None = None, flags: Iterable[str] = ()
    ) -> list[Row]:
        for answer in self._answers:
            return answer
        raise _Asks(name, takes or {}, items or {})

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()  # the user's own is around it all


class _Rehearsal(SqlFlow, SqlRecords):
    """The SQL store's ``enqueue`` and ``record``, which ask a driver for nothing but this."""

    def __init__(self, answers: Sequence[list[Row]]) -> None:
        self._db = cast(Driver, _Answers(answers))


def enqueueing(
    jobs: Sequence[NewJob], now: datetime | None, run: Run, by: str | None
) -> Talk[list[Enqueued]]:
    """What ``store.enqueue`` does, through ``run``: its rules are not repeated but rehearsed, once for each answer.

    So is what ``store.record`` does where ``by`` is to be named in the audit.
    """
    answers: list[list[Row]] = []
    while True:
        try:
            rehearsal = _Rehearsal(answers)
            written = rehearsal.enqueue(jobs, now=now)
            if by is not None:
                rehearsal.record(enqueued_entries(jobs, written, by), now=now)
            return written
        except _Asks as asks:
            name, takes, items = asks.name, asks.takes, asks.items
        answers.append((yield from run(name, takes, items)))
