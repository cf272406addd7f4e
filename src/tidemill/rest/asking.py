"""Pages of jobs are asked for here: in the order they are wanted, few at a time, and once for all who want the same.

A page is a millisecond of Python. Sixteen threads of that take the event loop's turns away, and whoever is unlucky waits three
times as long as the others. There is no memory here and no timer: an answer is given to those who came before its question was
put, so nobody is told what was true before he asked. What the question is, and whether it may be asked, others know.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Hashable
from weakref import WeakKeyDictionary

from tidemill.rest.threads import Threads, overloaded

ASIDE = 0.1
"""Seconds after which a question no longer counts: what takes so long waits for its database, and not for Python."""

Loop = asyncio.AbstractEventLoop


class _Question:
    """What is to be asked, and who waits for the answer."""

    __slots__ = ("askers", "context", "counts", "key", "put")

    def __init__(self, key: Hashable, put: Callable[[], bytes]) -> None:
        self.key, self.put = key, put
        self.context = contextvars.copy_context()  # of who was first
        self.askers: list[asyncio.Future[bytes]] = []
        self.counts = True

    def wanted(self) -> bool:
        return any(not asker.done() for asker in self.askers)


class _Line:
    """The questions of one event loop: those in line, and those at work."""

    def __init__(self) -> None:
        self.waiting: dict[Hashable, _Question] = {}  # in the order they came
        self.askers = 0
        self.at_work: set[Hashable] = set()  # those that count
        self.tasks: set[asyncio.Task[None]] = set()


class Asking:
    """At most ``at_once`` questions at work, those that take long beside; at most ``most`` callers in line."""

    def __init__(self, threads: Threads, at_once: int, most: int, *, aside: float = ASIDE) -> None:
        self._threads, self._at_once, self._most, self._aside = threads, at_once, most, aside
        self._lines: WeakKeyDictionary[Loop, _Line] = WeakKeyDictionary()

    async def ask(self, key: Hashable, put: Callable[[], bytes]) -> bytes:
        """The answer to ``put``, which blocks, and is called on a thread. Who gives the same key wants the same."""
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
        """Put the next questions, where there is room."""
        while len(line.at_work) < self._at_once:
            # The same is not asked twice at once: while it is at work, more gather who want to know it.
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
        except Exception as error:  # noqa: BLE001  (whoever asked is told)
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
                asker.cancel()  # nobody waits for ever, also if we were cancelled ourselves
            self._leave(loop, line, question)

    def _leave(self, loop: Loop, line: _Line, question: _Question) -> None:
        """This question counts no longer; others may be put."""
        if question.counts:
            question.counts = False
            line.at_work.discard(question.key)
            self._begin(loop, line)
