"""The state that all threads of an exchange share, and the ways in which they wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from tidemill.engine.exchange.finisher import Settled
from tidemill.engine.exchange.machine import ExchangeMachine
from tidemill.engine.exchange.outbox import Outbox
from tidemill.engine.exchange.planner import Planner


class SharedState:
    """The machine and the outbox of an exchange, guarded by one lock."""

    def __init__(self, planner: Planner) -> None:
        lock = threading.RLock()
        self.changed = threading.Condition(lock)  #: threads wait here for work
        # A second condition for threads that wait for other threads. With a shared one, ``notify`` might wake the wrong
        # thread.
        self.calm = threading.Condition(lock)
        self.planner = planner
        self.machine = ExchangeMachine(planner)
        self.outbox = Outbox(planner.kinds)
        self._closed = threading.Event()

    def is_closed(self) -> bool:
        """Whether the exchange is closed."""
        return self._closed.is_set()

    def close(self) -> None:
        """End all waits. No further step begins."""
        with self.changed:
            self.machine.close()
            self._closed.set()
            self.changed.notify_all()
            self.calm.notify_all()

    def rest(self, seconds: float) -> None:
        """Wait this many seconds, or until the exchange is closed."""
        self._closed.wait(seconds)

    def run_apart(self, act: Callable[[], None], name: str) -> None:
        """Run a function on a thread of its own."""
        threading.Thread(target=act, name=f"tidemill-{name}", daemon=True).start()

    def is_calm(self) -> bool:
        """Whether all results are written and no step is under way. Requires the lock."""
        return not self.outbox and not self.machine.steps

    def begin_step(self) -> None:
        """Count a step."""
        with self.changed:
            self.machine.step_begins()

    def end_step(self) -> None:
        """Count a step as ended."""
        with self.changed:
            self.machine.step_ended()
            self.calm.notify_all()

    def keep(self, settled: Sequence[Settled]) -> None:
        """Put results that could not be written back to the front of the outbox."""
        with self.changed:
            self.outbox.keep(settled)
