"""Where jobs run: coroutines on a loop, functions on threads. A lane runs what it is given and says how it ended.

It decides nothing about jobs and writes nothing. The third lane, processes of their own, is in ``isolated``.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, copy_context
from typing import Any

from tidemill.clock import Clock
from tidemill.domain.outcome import Failed
from tidemill.engine import words
from tidemill.engine.execute import Ended, arun, run
from tidemill.engine.held import Held
from tidemill.engine.looping import Steps, new_loop
from tidemill.engine.plan import Kind
from tidemill.engine.settings import WorkerSettings
from tidemill.stores.waiting import meanwhile
from tidemill.tasks.middleware import Middleware
from tidemill.tasks.task import Declared

_log = logging.getLogger("tidemill.engine")

LOOP, THREAD, PROCESS = "loop", "thread", "process"

TURN = 0.002
"""Seconds a hand runs job after job before the loop gets a turn: jobs that never wait must not keep others from theirs."""

GIVEN_UP = object()
"""The handle of a job whose thread does not come back."""


def kind_of(declared: Declared) -> str:
    """Which lane a task's jobs go to."""
    match declared.options.isolation:
        case "process":
            return PROCESS
        case "thread":
            return THREAD
    return LOOP if declared.is_async else THREAD


def kinds_of(tasks: Iterable[Declared], settings: WorkerSettings, *, processes: bool) -> dict[str, Kind]:
    """The lanes with their slots and their tasks; without processes, what wants one is not claimed here."""
    named: dict[str, list[str]] = {LOOP: [], THREAD: [], PROCESS: []}
    for declared in tasks:
        named[kind_of(declared)].append(declared.name)
    if named[PROCESS] and not processes:
        _log.error(
            "tasks %s want a process of their own and are not claimed here: the app has no name to import it by"
            " (make it a variable of a module), or children is 0",
            ", ".join(named[PROCESS]),
        )
        named[PROCESS] = []
    slots = {LOOP: settings.concurrency, THREAD: settings.threads, PROCESS: settings.children}
    return {name: Kind(name, slots[name], tuple(named[name])) for name in named}


OnEnded = Callable[[Held, Ended | None], None]
"""Called with how a handler ended; None: it was stopped from outside."""


class LoopLane:
    """Coroutines, ``slots`` at a time, on a loop in a thread of its own."""

    def __init__(
        self,
        slots: int,
        clock: Clock,
        chain: Sequence[Middleware],
        on_ended: OnEnded,
        on_turn: Callable[[], None],
        steps: Steps | None = None,
    ) -> None:
        self.slots = slots
        self._steps, self._waiting_here, self._over = steps, False, False
        self._clock, self._chain, self._on_ended, self._on_turn = clock, chain, on_ended, on_turn
        self._waiting: deque[Held] = deque()
        self._active = 0
        self._hands: set[asyncio.Task[None]] = set()
        self._turn_asked = False
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pinged_at: float | None = None

    def submit(self, jobs: Sequence[Held]) -> None:
        """Run these, as slots come free."""
        self._waiting.extend(jobs)
        (self._loop or self._start()).call_soon_threadsafe(self._fill)

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._starting:  # two pumps may bring the first jobs at once
            if self._loop is None:
                loop = new_loop()
                self._thread = threading.Thread(
                    target=self._run_loop, args=(loop,), name="tidemill-loop", daemon=True
                )
                self._thread.start()
                self._loop = loop
            return self._loop

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        meanwhile.set(self.turn_until)
        try:
            while not self._over:
                if self._steps is None or not self._steps.drive():
                    self._turn(loop)
        finally:
            if self._steps is not None:
                self._steps.leave()
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Turn until somebody stops the loop."""
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: BLE001  (sys.exit() in a task that a job has started comes out here)
            _log.error("%r was raised on the event loop; it goes on", error)

    def turn_until(self, file: int, *, alert: bool = False) -> None:
        """What the loop's own thread does while it waits for the store: it turns the loop, until this can be read; or, when ``alert``,
        until there is something to do.
        """
        loop = asyncio.get_event_loop()
        self._waiting_here = not alert
        loop.add_reader(file, loop.stop)
        try:
            self._turn(loop)
        finally:
            loop.remove_reader(file)
            self._waiting_here = False

    @property
    def idle(self) -> bool:
        """Whether the loop turns and has nothing to run."""
        return self._loop is not None and not self._active and not self._waiting

    def interrupt(self) -> bool:
        """Have the loop's thread ask ``Steps`` what to do, and then turn again; whether this is that thread."""
        if threading.current_thread() is self._thread:
            self._stop_turning()
            return True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_turning)
        return False

    def _stop_turning(self) -> None:
        if not self._waiting_here and self._loop is not None:  # else it will ask when it has its answer
            self._loop.stop()

    def soon(self, act: Callable[[], None]) -> None:
        """On the loop's thread: have this done after what is waiting now has begun."""
        if self._loop is not None:
            self._loop.call_soon(self._loop.call_soon, act)

    def _fill(self) -> None:
        """On the loop: have one more hand take what waits, if there is a slot; the next one when this one has to wait."""
        if self._waiting and self._active < self.slots:
            assert self._loop is not None
            self._active += 1
            # In surroundings of its own: those of whoever called may be a job's.
            self._hands.add(hand := self._loop.create_task(self._work(), context=Context()))
            hand.add_done_callback(self._hands.discard)
            self._loop.call_soon(self._fill)

    async def _work(self) -> None:
        """One hand: an asyncio task that runs jobs one after the other for as long as some wait.

        A task for each job would cost as much as many a job. What a job leaves in context variables, or of a cancellation,
        must not be the next one's, so a hand that finds such a thing goes, and another takes over.
        """
        me, clean, monotonic = asyncio.current_task(), copy_context(), self._clock.monotonic
        turned_at = monotonic()
        while (held := self._next()) is not None:
            held.handle, held.began = me, monotonic()
            ended: Ended | None
            try:
                ended = await arun(held.declared, held.claim, held.job, held, self._clock, self._chain)
            except asyncio.CancelledError:
                ended = None
            except BaseException as error:  # noqa: BLE001  (here an interrupt can only be the task's own doing)
                ended = _failed(held, error, self._clock)
            held.handle = None
            self._on_ended(held, ended)
            self._ask_turn()
            if me is None or me.cancelling() or copy_context() != clean:
                break  # before Python 3.13 uncancel() leaves a cancellation standing that was not delivered yet
            if ended is not None and ended.ended - turned_at > TURN:
                await asyncio.sleep(0)
                turned_at = monotonic()
        self._active -= 1
        if self._waiting and self._loop is not None:
            self._loop.call_soon(self._fill)

    def _next(self) -> Held | None:
        while True:
            try:
                held = self._waiting.popleft()
            except IndexError:
                return None
            if not held.settled:
                return held
            self._on_ended(held, None)
            self._ask_turn()

    def _ask_turn(self) -> None:
        """Tell of ends once for all in this turn of the loop, after the last of them."""
        if not self._turn_asked and self._loop is not None:
            self._turn_asked = True
            self._loop.call_soon(self._turned)

    def _turned(self) -> None:
        self._turn_asked = False
        if self._steps is not None and self._steps.wants():
            self._stop_turning()
        else:
            self._on_turn()

    def withdraw(self, held: Held | None = None) -> list[Held]:
        """Take back what has not begun: this job, or all of them."""
        return withdrawn(self._waiting, held)

    def stop(self, held: Held) -> None:
        """Cancel a running coroutine; it may still refuse."""
        if self._loop is not None:
            # On the loop, where jobs are begun: one that is being begun just now is cancelled all the same.
            self._loop.call_soon_threadsafe(self._cancel, held)

    def _cancel(self, held: Held) -> None:
        if held.handle is not None:
            held.handle.cancel()

    # Is it still turning? ------------------------------------------------------------------------------------------------

    def ping(self) -> float:
        """Ask the loop for a sign of life; the seconds since it owes us one."""
        now = self._clock.monotonic()
        if self._loop is None or self._active == 0:
            self._pinged_at = None
            return 0.0
        asked = self._pinged_at
        if asked is None:
            asked = self._pinged_at = now
            self._loop.call_soon_threadsafe(self._pong)
        return now - asked  # the loop may have answered meanwhile

    def _pong(self) -> None:
        self._pinged_at = None

    def guilty(self) -> Any:
        """The asyncio task the loop is inside of right now."""
        return None if self._loop is None else asyncio.current_task(self._loop)

    def close(self) -> None:
        """End the loop; what still runs on it is cancelled and gets a moment."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return

        async def end() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others, timeout=1.0)
            self._over = True
            loop.stop()

        def begin() -> None:
            self._ending = loop.create_task(end())

        if thread.is_alive():
            loop.call_soon_threadsafe(begin)
            thread.join(5.0)
            if thread.is_alive():
                _log.warning("the event loop does not end; a job blocks it")
        self._loop = self._thread = None


class ThreadLane:
    """Functions, ``slots`` at a time, each on a thread of its own while it runs."""

    def __init__(self, slots: int, clock: Clock, chain: Sequence[Middleware], on_ended: OnEnded) -> None:
        self.slots = slots
        self._clock, self._chain, self._on_ended = clock, chain, on_ended
        self._changed = threading.Condition()
        self._waiting: deque[Held] = deque()
        self._threads = 0
        self._idle = 0
        self._extra = 0  # threads whose job was given up, and who end with it
        self._closed = False

    def submit(self, jobs: Sequence[Held]) -> None:
        """Run these, as slots come free."""
        with self._changed:
            self._waiting.extend(jobs)
            self._crew(len(jobs))

    def _crew(self, jobs: int) -> None:
        wanted = min(len(self._waiting) - self._idle, self.slots + self._extra - self._threads)
        for _ in range(wanted):
            self._threads += 1
            threading.Thread(target=self._work, name=f"tidemill-job-{self._threads}", daemon=True).start()
        self._changed.notify(jobs)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                if self._closed:
                    self._threads -= 1
                    return
                held = self._waiting.popleft()
            self._run(held)
            if held.handle is GIVEN_UP:
                with self._changed:
                    self._extra -= 1
                    self._threads -= 1
                return

    def _run(self, held: Held) -> None:
        if held.settled:
            self._on_ended(held, None)
            return
        held.began = self._clock.monotonic()
        ended: Ended | None
        try:
            ended = run(held.declared, held.claim, held.job, held, self._clock, self._chain)
        except BaseException as error:  # noqa: BLE001  (here an interrupt can only be the task's own doing)
            ended = _failed(held, error, self._clock)
        with self._changed:
            held.over = True
            given_up = held.handle is GIVEN_UP
        if not given_up:  # else its slot has been given away already
            self._on_ended(held, ended)

    def withdraw(self, held: Held | None = None) -> list[Held]:
        """Take back what has not begun: this job, or all of them."""
        with self._changed:
            return withdrawn(self._waiting, held)

    def give_up(self, held: Held) -> bool:
        """The job's thread does not come back; another takes its place, so that the slot is not lost. False: it is back."""
        with self._changed:
            if held.over:
                return False
            held.handle = GIVEN_UP
            self._extra += 1
            self._crew(1)
            return True

    def close(self) -> None:
        """Idle threads end; busy ones end with their job."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def withdrawn(waiting: deque[Held], held: Held | None) -> list[Held]:
    """What waits, taken out. Each job is taken by one side only: by us, or by the lane that begins it."""
    taken: list[Held] = []
    try:
        if held is not None:
            waiting.remove(held)
            return [held]
        while True:
            taken.append(waiting.popleft())
    except (IndexError, ValueError):
        return taken


def _failed(held: Held, error: BaseException, clock: Clock) -> Ended:
    info = words.error_info(error)
    now = clock.monotonic()
    return Ended(Failed(info), None, info, held.began or now, now, error)


def names(jobs: Iterable[Held]) -> str:
    """Jobs for a log line."""
    return ", ".join(f"{held.claim.task} {held.claim.id}" for held in jobs)
