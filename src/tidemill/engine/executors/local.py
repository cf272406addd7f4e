"""Executors for coroutines on an event loop and for functions on threads.

They run jobs and report how they ended. They decide nothing about jobs and write nothing. The executor for processes is
in ``processes``.
"""

from __future__ import annotations

import asyncio
import logging
import select
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, copy_context
from typing import Any, Protocol

from tidemill.clock import Clock
from tidemill.domain.outcome import Failed, Released
from tidemill.engine import sanitize
from tidemill.engine.deathwatch import Forks, end_fork
from tidemill.engine.exchange.held_job import OPEN, HeldJob
from tidemill.engine.exchange.loop_io import LoopStepper, new_loop
from tidemill.engine.runner.execution import ExecutionEnd, arun, run
from tidemill.engine.runner.plain_task import arun_plain
from tidemill.stores.wait_function import wait_function
from tidemill.tasks.hooks import Hooks

_log = logging.getLogger("tidemill.engine")

TURN = 0.002
"""Seconds for which one asyncio task runs jobs before it yields: jobs that never wait must not starve the others."""

ALONE = 0.002
"""Seconds for which an idle loop is not run while its thread waits for the store."""

GIVEN_UP = object()
"""The handle of a job whose thread does not return."""


OnEnded = Callable[[HeldJob, ExecutionEnd | None], None]
"""Called with how a handler ended, or None if it was stopped from outside."""


class Executor(Protocol):
    """The interface of every executor to its runner."""

    def submit(self, jobs: Sequence[HeldJob]) -> None: ...

    def withdraw(self, held: HeldJob | None = None) -> list[HeldJob]: ...


class LeaseTime(Protocol):
    """The worker's lease, by the monotonic clock of the executor."""

    @property
    def until(self) -> float: ...


class _Endless:
    """The lease of a worker that no other process observes."""

    until = float("inf")


ENDLESS = _Endless()


class LoopExecutor:
    """Runs up to ``slots`` coroutines at a time on an event loop in its own thread."""

    def __init__(
        self,
        slots: int,
        clock: Clock,
        hooks: Hooks,
        on_ended: OnEnded,
        on_turn: Callable[[], None],
        steps: LoopStepper | None = None,
        lease: LeaseTime = ENDLESS,
    ) -> None:
        self.slots, self._lease = slots, lease
        self._steps, self._waiting_here, self._over = steps, False, False
        self._clock, self._hooks, self._on_ended, self._on_turn = clock, hooks, on_ended, on_turn
        self._forks = Forks.number
        self._waiting: deque[HeldJob] = deque()
        self._active = 0
        self._hands: set[asyncio.Task[None]] = set()
        self._turn_asked = False
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turning: asyncio.AbstractEventLoop | None = None  # set by the loop's thread, and never cleared
        self._thread: threading.Thread | None = None
        self._pinged_at: float | None = None

    def submit(self, jobs: Sequence[HeldJob]) -> None:
        """Run these jobs as slots become free."""
        enqueue(self._waiting, jobs)
        self.started().call_soon_threadsafe(self._fill)

    def started(self) -> asyncio.AbstractEventLoop:
        """The event loop, which is started if it was not."""
        return self._loop or self._start()

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._starting:  # two threads may submit the first jobs at once
            if self._loop is None:
                loop = new_loop()
                self._thread = threading.Thread(
                    target=self._run_loop, args=(loop,), name="tidemill-loop", daemon=True
                )
                self._thread.start()
                self._loop = loop
            return self._loop

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        self._turning = loop
        asyncio.set_event_loop(loop)
        wait_function.set(self.turn_until)
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
        """Run the loop until it is stopped."""
        try:
            loop.run_forever()
        except BaseException as error:  # noqa: BLE001  (sys.exit() in an asyncio task of a job is raised here)
            _log.error("%r was raised on the event loop; continuing", error)

    def turn_until(self, file: int, *, alert: bool = False) -> None:
        """Run the loop while its thread waits for the store, until ``file`` is readable.

        With ``alert``, it also stops when there is work. While no job needs the loop, the thread waits for the file alone at
        first: most answers arrive sooner than the loop starts and stops.
        """
        if not alert and self.idle and _arrives(file):
            return
        # Not asyncio.get_event_loop(): a job may have set another loop, or None, for this thread.
        loop = self.loop
        self._waiting_here = not alert
        loop.add_reader(file, loop.stop)
        try:
            self._turn(loop)
        finally:
            loop.remove_reader(file)
            self._waiting_here = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The executor's event loop. Only for code that runs on the loop's thread."""
        assert self._turning is not None
        return self._turning

    @property
    def idle(self) -> bool:
        """Whether the loop has started and has nothing to run."""
        return self._loop is not None and not self._active and not self._waiting

    def interrupt(self) -> bool:
        """Stop the loop so that its thread calls ``LoopStepper`` before it continues; return whether this is that thread."""
        if threading.current_thread() is self._thread:
            self._stop_turning()
            return True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_turning)
        return False

    def _stop_turning(self) -> None:
        # While the thread waits for the store, it calls ``LoopStepper`` anyway once it has the answer.
        if not self._waiting_here and self._loop is not None:
            self._loop.stop()

    def soon(self, act: Callable[[], None]) -> None:
        """Call ``act`` on the loop's thread after the jobs that are waiting now have begun."""
        if self._loop is not None:
            self._loop.call_soon(self._loop.call_soon, act)

    def resize(self, slots: int) -> None:
        """Change the number of coroutines that run at a time. Jobs that run finish."""
        self.slots = slots
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._fill)

    def _fill(self) -> None:
        """Start one more asyncio task for waiting jobs if there is a slot, and check again on the loop's next turn."""
        if self._waiting and self._active < self.slots:
            assert self._loop is not None
            self._active += 1
            # A new context: the caller's context may belong to a job.
            self._hands.add(hand := self._loop.create_task(self._work(), context=Context()))
            hand.add_done_callback(self._hands.discard)
            self._loop.call_soon(self._fill)

    async def _work(self) -> None:
        """Run waiting jobs one after another in one asyncio task.

        A new asyncio task for each job would cost as much as many jobs do. Context variables or a cancellation that one
        job leaves must not affect the next one, so an asyncio task that finds either ends, and another takes over.
        """
        me, clean, monotonic = asyncio.current_task(), copy_context(), self._clock.monotonic
        # Local names, because every job passes here.
        clock, hooks, lease, forks = self._clock, self._hooks, self._lease, self._forks
        waiting, on_ended = self._waiting, self._on_ended
        turned_at = monotonic()
        # The number of slots may have been reduced.
        while self._active <= self.slots:
            try:
                held = waiting.popleft()
            except IndexError:  # another thread may have withdrawn the last one
                break
            began = monotonic()
            if held.phase is not OPEN or began >= lease.until:
                on_ended(held, unstarted(began) if held.phase is OPEN else None)
                self._ask_turn()
                continue
            held.handle, held.began = me, began
            ended: ExecutionEnd | None
            try:
                plain = held.plain
                if plain is None or hooks.on_execute or held.start_by is not None:
                    ended = await arun(held.declared, held.claim, held.job, held, clock, hooks, began)
                else:
                    ended = await arun_plain(plain, held, clock, hooks, began)
            except asyncio.CancelledError:
                ended = None
            except BaseException as error:  # noqa: BLE001  (an interrupt can only come from the task itself here)
                ended = _failed(held, error, clock)
            if Forks.number != forks:
                end_fork(forks)
            held.handle = None
            on_ended(held, ended)
            if not self._turn_asked:
                self._ask_turn()
            if me is None or me.cancelling() or copy_context() != clean:
                # Before Python 3.13, uncancel() keeps a cancellation pending that was not delivered yet.
                break
            if ended is not None and ended.ended - turned_at > TURN:
                await asyncio.sleep(0)
                turned_at = monotonic()
        self._active -= 1
        if self._waiting and self._loop is not None:
            self._loop.call_soon(self._fill)

    def _ask_turn(self) -> None:
        """Report the ends of jobs once per turn of the loop, after the last of them."""
        if not self._turn_asked and self._loop is not None:
            self._turn_asked = True
            self._loop.call_soon(self._turned)

    def _turned(self) -> None:
        self._turn_asked = False
        if self._steps is not None and self._steps.wants():
            self._stop_turning()
        else:
            self._on_turn()

    def withdraw(self, held: HeldJob | None = None) -> list[HeldJob]:
        """Remove jobs that have not begun: this job, or all of them."""
        return withdrawn(self._waiting, held)

    def stop(self, held: HeldJob) -> None:
        """Cancel a running coroutine. It may still refuse."""
        if self._loop is not None:
            # On the loop, where jobs begin: a job that is just beginning is cancelled, too.
            self._loop.call_soon_threadsafe(self._cancel, held)

    def _cancel(self, held: HeldJob) -> None:
        if held.handle is not None:
            held.handle.cancel()

    # Liveness ------------------------------------------------------------------------------------------------------------

    def ping(self) -> float:
        """Request a sign of life from the loop; return the seconds for which it has not answered."""
        now = self._clock.monotonic()
        if self._loop is None or not (self._active or self._waiting):
            self._pinged_at = None
            return 0.0
        asked = self._pinged_at
        if asked is None:
            asked = self._pinged_at = now
            self._loop.call_soon_threadsafe(self._pong)
        return now - asked  # the loop may have cleared the attribute already

    def _pong(self) -> None:
        self._pinged_at = None

    @property
    def crowded(self) -> bool:
        """Whether more than one job is on the loop or waits for it."""
        return self._active + len(self._waiting) > 1

    def guilty(self) -> Any:
        """The asyncio task that the loop currently executes."""
        return None if self._loop is None else asyncio.current_task(self._loop)

    def close(self) -> None:
        """End the loop. Tasks that still run on it are cancelled and get one second to end."""
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
                _log.warning("the event loop does not stop: a job is blocking it")
        self._loop = self._thread = None


class ThreadExecutor:
    """Runs up to ``slots`` functions at a time, each on its own thread."""

    def __init__(
        self, slots: int, clock: Clock, hooks: Hooks, on_ended: OnEnded, lease: LeaseTime = ENDLESS
    ) -> None:
        self.slots, self._lease = slots, lease
        self._clock, self._hooks, self._on_ended = clock, hooks, on_ended
        self._forks = Forks.number
        self._changed = threading.Condition()
        self._waiting: deque[HeldJob] = deque()
        self._threads = 0
        self._idle = 0
        self._extra = 0  # threads of abandoned jobs, which end with their job
        self._closed = False

    def submit(self, jobs: Sequence[HeldJob]) -> None:
        """Run these jobs as slots become free."""
        with self._changed:
            enqueue(self._waiting, jobs)
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
                while not self._waiting and not self._closed and not self._is_crowded:
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                if self._closed or self._is_crowded:
                    self._threads -= 1
                    return
                held = self._waiting.popleft()
            self._run(held)
            if held.handle is GIVEN_UP:
                with self._changed:
                    self._extra -= 1
                    self._threads -= 1
                return

    def _run(self, held: HeldJob) -> None:
        if not held.is_open:
            self._on_ended(held, None)
            return
        began = self._clock.monotonic()
        if began >= self._lease.until:
            self._on_ended(held, unstarted(began))
            return
        held.began = began
        ended: ExecutionEnd | None
        try:
            ended = run(held.declared, held.claim, held.job, held, self._clock, self._hooks)
        except BaseException as error:  # noqa: BLE001  (an interrupt can only come from the task itself here)
            ended = _failed(held, error, self._clock)
        end_fork(self._forks)
        with self._changed:
            held.over = True
            given_up = held.handle is GIVEN_UP
        if not given_up:  # otherwise its slot has a new thread already
            self._on_ended(held, ended)

    def withdraw(self, held: HeldJob | None = None) -> list[HeldJob]:
        """Remove jobs that have not begun: this job, or all of them."""
        with self._changed:
            return withdrawn(self._waiting, held)

    def resize(self, slots: int) -> None:
        """Change the number of functions that run at a time. Jobs that run finish."""
        with self._changed:
            self.slots = slots
            self._crew(len(self._waiting))
            self._changed.notify_all()

    @property
    def _is_crowded(self) -> bool:
        """Whether there are more threads than slots. Requires the lock."""
        return self._threads > self.slots + self._extra

    def give_up(self, held: HeldJob) -> bool:
        """Abandon a job whose thread does not return, and start another thread for its slot.

        Return False if the thread has returned.
        """
        with self._changed:
            if held.over:
                return False
            held.handle = GIVEN_UP
            self._extra += 1
            self._crew(1)
            return True

    def close(self) -> None:
        """End idle threads. Busy ones end with their job."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def enqueue(waiting: deque[HeldJob], jobs: Sequence[HeldJob]) -> None:
    """Add jobs to the waiting ones. Jobs under a rate limit go first, because they have to start soon."""
    limited = [held for held in jobs if held.start_by is not None]
    waiting.extend([held for held in jobs if held.start_by is None] if limited else jobs)
    waiting.extendleft(reversed(limited))


def withdrawn(waiting: deque[HeldJob], held: HeldJob | None) -> list[HeldJob]:
    """Remove waiting jobs and return them.

    Each job is taken by one side only: by the caller, or by the executor that starts it.
    """
    taken: list[HeldJob] = []
    try:
        if held is not None:
            waiting.remove(held)
            return [held]
        while True:
            taken.append(waiting.popleft())
    except (IndexError, ValueError):
        return taken


def unstarted(now: float) -> ExecutionEnd:
    """The end of a job that may not begin, because the worker's lease may have passed to another worker.

    A process that was halted reaches this point with jobs that others have claimed since. If the lease was not lost
    after all, the job returns to its queue.
    """
    return ExecutionEnd(
        Released("the worker could not confirm its lease before it began"), None, None, now, now
    )


def _arrives(file: int) -> bool:
    """Whether the file becomes readable within ``ALONE`` seconds."""
    if not hasattr(select, "poll"):
        return bool(select.select([file], (), (), ALONE)[0])
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(ALONE * 1000))


def _failed(held: HeldJob, error: BaseException, clock: Clock) -> ExecutionEnd:
    info = sanitize.error_info(error)
    now = clock.monotonic()
    return ExecutionEnd(Failed(info), None, info, held.began or now, now, error)


def names(jobs: Iterable[HeldJob]) -> str:
    """The jobs as text for a log line."""
    return ", ".join(f"{held.claim.task} {held.claim.id}" for held in jobs)
