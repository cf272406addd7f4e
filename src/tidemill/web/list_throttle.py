"""Throttle for job list queries: first come, first served, few at a time.

Encoding a page takes about a millisecond of Python. Sixteen threads that do this take the GIL from the event loop, and
some requests take three times as long as others. Callers with the same query share one execution, and only if they
arrived before it started, so no response is older than its request. There is no cache and no timer. This module does
not interpret the queries and does not check permissions.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Hashable
from weakref import WeakKeyDictionary

from tidemill.web.threads import Threads, overloaded

ASIDE = 0.1
"""Seconds after which a query no longer counts against ``at_once``: it is waiting for the database, not for Python."""

Loop = asyncio.AbstractEventLoop


class _Question:
    """A query to run, and the callers that wait for its result."""

    __slots__ = ("askers", "context", "counts", "key", "put")

    def __init__(self, key: Hashable, put: Callable[[], bytes]) -> None:
        self.key, self.put = key, put
        # The context of the first caller.
        self.context = contextvars.copy_context()
        self.askers: list[asyncio.Future[bytes]] = []
        self.counts = True

    def wanted(self) -> bool:
        return any(not asker.done() for asker in self.askers)


class _Line:
    """The queries of one event loop, waiting and running."""

    def __init__(self) -> None:
        # In order of arrival.
        self.waiting: dict[Hashable, _Question] = {}
        self.askers = 0
        # Only those that count against ``at_once``.
        self.at_work: set[Hashable] = set()
        self.tasks: set[asyncio.Task[None]] = set()


class ListThrottle:
    """Runs at most ``at_once`` queries at a time, besides slow ones, and accepts at most ``most`` waiting callers."""

    def __init__(self, threads: Threads, at_once: int, most: int, *, aside: float = ASIDE) -> None:
        self._threads, self._at_once, self._most, self._aside = threads, at_once, most, aside
        self._lines: WeakKeyDictionary[Loop, _Line] = WeakKeyDictionary()

    async def ask(self, key: Hashable, put: Callable[[], bytes]) -> bytes:
        """Run ``put``, which blocks, on a thread and return its result. Callers with the same key share the result."""
        loop = asyncio.get_running_loop()
        line = self._lines.setdefault(loop, _Line())
        if line.askers >= self._most:
            raise overloaded()
        question = line.waiting.get(key)
        if question is None:
            question = line.waiting[key] = _Question(key, put)
        asker: asyncio.Future[bytes] = loop.create_future()
        question.askers.append(asker)
        line.askers += 1
        try:
            self._begin(loop, line)
            return await asker
        finally:
            line.askers -= 1

    def _begin(self, loop: Loop, line: _Line) -> None:
        """Start the next queries while there is capacity."""
        while len(line.at_work) < self._at_once:
            # Never run the same query twice at a time. While it runs, more callers can join its next execution.
            key = next((key for key in line.waiting if key not in line.at_work), None)
            if key is None:
                return
            question = line.waiting.pop(key)
            if not question.wanted():
                continue
            line.at_work.add(key)
            task = loop.create_task(self._put(loop, line, question), context=question.context)
            line.tasks.add(task)
            task.add_done_callback(line.tasks.discard)

    async def _put(self, loop: Loop, line: _Line, question: _Question) -> None:
        late = loop.call_later(self._aside, self._leave, loop, line, question)
        try:
            answer = await self._threads.run(question.put)
        except Exception as error:  # noqa: BLE001  (the callers receive the error)
            for asker in question.askers:
                if not asker.done():
                    asker.set_exception(error)
        else:
            for asker in question.askers:
                if not asker.done():
                    asker.set_result(answer)
        finally:
            late.cancel()
            for asker in question.askers:
                # Release all callers, even if this task was cancelled.
                asker.cancel()
            self._leave(loop, line, question)

    def _leave(self, loop: Loop, line: _Line, question: _Question) -> None:
        """Stop counting this query and start others."""
        if question.counts:
            question.counts = False
            line.at_work.discard(question.key)
            self._begin(loop, line)
