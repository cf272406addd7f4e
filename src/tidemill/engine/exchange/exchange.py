"""The exchange of one worker with its store: it writes results and claims jobs, both in one step.

::

    runner ──results──▶ Exchange ──▶ ThreadDriver or LoopDriver ──▶ StepRunner ──▶ store
       ▲                             (which may step: the machine)       │
       └──────────────────────────── claims ─────────────────────────────┘

``Recovery`` takes over after a store failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from tidemill.clock import Clock
from tidemill.engine.exchange.finisher import Settled
from tidemill.engine.exchange.loop import LoopDriver
from tidemill.engine.exchange.planner import Planner
from tidemill.engine.exchange.recovery import Recovery
from tidemill.engine.exchange.shared_state import SharedState
from tidemill.engine.exchange.sources import Claimer
from tidemill.engine.exchange.step_runner import ExchangeOwner, StepRunner
from tidemill.engine.exchange.threads import ThreadDriver
from tidemill.stores.base import Store


class Exchange:
    """Writes results and claims jobs for one worker."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        worker: UUID,
        planner: Planner,
        claimer: Claimer,
        owner: ExchangeOwner,
        *,
        threads: int,
        batch: int,
        poll: Callable[[], float],
        may_claim: Callable[[], bool] = lambda: True,
        shared: SharedState | None = None,
    ) -> None:
        self._clock = clock
        self._shared = shared = shared or SharedState(planner)
        self._machine = shared.machine
        self._steps = StepRunner(shared, store, clock, claimer, owner, may_claim)
        recovery = Recovery(shared, self._steps, store, clock, worker, owner, batch)
        self.threads = ThreadDriver(
            shared, self._steps, recovery, clock, threads=threads, batch=batch, poll=poll
        )
        self.loop = LoopDriver(shared, self._steps, recovery, store, clock, claimer, batch)
        self.changed = shared.changed  #: guards the shared state; notified when there is work
        self.outbox = (
            shared.outbox.reached
        )  #: finished handlers; any thread may append, and then calls ``knock``
        self.knock = self.threads.knock
        self.reconnected = recovery.reconnected
        self.rest = shared.rest

    def start(self, *, claims: bool = True) -> None:
        """Start the threads, and claiming unless the worker is paused."""
        with self.changed:
            if claims:
                self._machine.start()
        self.threads.start()

    def ring(self) -> None:
        """Wake a thread because there may be something to claim."""
        with self.changed:
            asks_loop = self._machine.ring(self._clock.monotonic(), loop_idle=self.loop.is_idle())
            if asks_loop and self.loop.interrupt():
                # This is the loop's own thread, so it will certainly run the step.
                return
            # A thread is the fallback in case the loop is blocked.
            self.changed.notify()

    @property
    def linked(self) -> set[int]:
        """The held jobs of flows, whose ends may release other jobs."""
        return self._shared.planner.linked

    def settle(self, settled: Sequence[Settled]) -> None:
        """Queue these results, except for jobs that already have one.

        Later results of their handlers are ignored.
        """
        with self.changed:
            self._shared.outbox.decide(settled)
            self.changed.notify()

    def pause(self) -> None:
        """Stop claiming."""
        with self.changed:
            self._machine.pause()

    def resume(self) -> None:
        """Claim again after a pause."""
        with self.changed:
            self._machine.resume()
            self.changed.notify()

    def flushed(self, timeout: float) -> bool:
        """Wait until all results are written. Returns False on timeout or if the exchange is closed."""
        shared = self._shared
        with self.changed:
            shared.calm.wait_for(lambda: shared.is_calm() or shared.is_closed(), timeout)
            return shared.is_calm()

    def close(self, timeout: float = 5.0) -> None:
        """End the threads. Jobs whose results are unwritten are recovered when the lease expires."""
        self._shared.close()
        self.threads.join(timeout)

    # Reports -------------------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """The number of completed exchanges with the store."""
        return self._steps.completed

    @property
    def store_ok(self) -> bool:
        """Whether the last exchange with the store succeeded."""
        return self._machine.store_ok

    @property
    def claiming(self) -> bool:
        """Whether new jobs are claimed."""
        return self._machine.claiming

    @property
    def closed(self) -> bool:
        """Whether the exchange is closed."""
        return self._shared.is_closed()

    @property
    def owes_a_step(self) -> bool:
        """Whether there is something to write or to claim, or a step is under way."""
        with self.changed:
            return not self._shared.is_calm() or self._machine.wants_claim

    @property
    def quiet(self) -> bool:
        """Whether the outbox is empty, no step is under way, and the last claim found nothing."""
        with self.changed:
            return self._shared.is_calm() and not self._machine.may_claim_more
