"""A participant's connection to the store, with delays and faults.

Calls may be refused, lost, late or executed twice. The history records each call when the store executes it, whatever the caller
learns about it.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from tests.simulation.history import History
from tests.simulation.simulator import Simulator

from tidemill.errors import StoreBusy, StoreUnavailable, TidemillError
from tidemill.stores.base import Store

FENCED = frozenset({"finish", "start"})
"""Verbs that may be executed twice, as a network may repeat a request."""

LATE = FENCED | {"claim", "step", "enqueue", "beat", "move", "promote", "request_cancel", "retire"}
"""Verbs that may be executed after their caller has given up."""

FLOW = frozenset({"claim", "step", "finish", "start"})
"""Verbs of the pump, which has a separate connection."""

WRITES = LATE | {"register", "acquire", "renew", "release", "advance", "sweep", "log"}


@dataclass(slots=True)
class FaultRates:
    """The share of calls that fail, by kind of fault."""

    refused: float = 0.0
    busy: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    slow: float = 0.0

    @classmethod
    def faulty(cls) -> FaultRates:
        """Return the rates of the faulty phase."""
        return cls(refused=0.02, busy=0.02, lost=0.04, late=0.02, twice=0.03, slow=0.03)


class Network:
    """Holds requests in flight, and executes them after a delay."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def deliver(self, what: str, act: Callable[[], None]) -> None:
        """Execute a request later."""
        seconds = self._simulator.rng.uniform(0.01, 20.0)

        def arrive() -> None:
            self._simulator.sleep(seconds)
            self._simulator.say(f"{what} arrives late")
            try:
                act()
            except TidemillError as error:
                self._simulator.say(f"  {type(error).__name__}")

        self._simulator.enter("network", arrive)


class Connection:
    """The store as one participant sees it."""

    def __init__(
        self,
        simulator: Simulator,
        store: Store,
        history: History,
        network: Network,
        rates: Callable[[], FaultRates],
        disturbed: Callable[[], None] = lambda: None,
    ) -> None:
        self._simulator, self._store, self._history, self._network = simulator, store, history, network
        self._rates, self._disturbed = rates, disturbed
        self._inside: list[tuple[str, tuple[Any, ...], Mapping[str, Any], Any]] | None = None
        self.cut_until = 0.0
        #: The connection that claims and finishes is dead; its next call fails.
        self.is_broken = False

    @property
    def store(self) -> Store:
        """Return the store at the other end."""
        return cast(Store, self)

    def now(self) -> datetime:
        """Return the store's own time, as shared stores report it."""
        return self._history.clock.now()

    def notify(self, topics: Iterable[str]) -> None:
        """Drop the wake-up: wake-ups are hints, and the simulation loses all of them."""

    def __getattr__(self, verb: str) -> Any:
        target = getattr(self._store, verb)
        if not callable(target):
            return target

        def call(*given: Any, **named: Any) -> Any:
            if self._inside is not None:
                answer = target(*given, **named)
                self._inside.append((verb, given, named, answer))
                return answer
            return self._send(verb, given, named, lambda: target(*given, **named))

        return call

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Execute the block in one transaction, which is committed completely or not at all."""
        self._wait()
        roll, rates = self._simulator.rng.random(), self._rates()
        self._refuse(roll < rates.refused, "transaction")
        self._inside = []
        try:
            with self._store.transaction():
                yield
            done = self._inside
        finally:
            self._inside = None
        for verb, given, named, answer in done:
            self._history.record(verb, given, named, answer)
        if rates.refused <= roll < rates.refused + rates.lost:
            self._lose("transaction")

    # Faults --------------------------------------------------------------------------------------------------------------

    def _send(
        self, verb: str, given: tuple[Any, ...], named: Mapping[str, Any], ask: Callable[[], Any]
    ) -> Any:
        self._wait()
        if self.is_broken and verb in FLOW:
            self.is_broken = False
            self._refuse(True, verb)
        rates, roll = self._rates(), self._simulator.rng.random()
        self._refuse(roll < rates.refused, verb)
        roll -= rates.refused
        if 0 <= roll < rates.busy:
            raise StoreBusy("another process is writing")
        roll -= rates.busy
        if verb not in WRITES:
            return ask()

        def act() -> Any:
            answer = ask()
            self._history.record(verb, given, named, answer)
            return answer

        if 0 <= roll < rates.late and verb in LATE:
            self._network.deliver(verb, act)
            self._lose(verb)
        roll -= rates.late
        answer = act()
        if 0 <= roll < rates.lost:
            self._lose(verb)
        roll -= rates.lost
        if 0 <= roll < rates.twice and verb in FENCED:
            self._network.deliver(f"{verb} again", act)
        if self._simulator.rng.random() < 0.1:
            self._wait()  # the response takes time, too
        return answer

    def _wait(self) -> None:
        rng = self._simulator.rng
        if rng.random() < self._rates().slow:
            seconds = rng.uniform(0.5, 15.0)
            self._disturbed()
        else:
            seconds = rng.uniform(0.0005, 0.02)
        self._simulator.sleep(seconds)

    def _refuse(self, refused: bool, verb: str) -> None:
        if refused or self._simulator.seconds < self.cut_until:
            self._simulator.sleep(self._simulator.rng.uniform(0.01, 1.0))
            self._simulator.say(f"{verb} is refused")
            raise StoreUnavailable("the connection is lost")

    def _lose(self, verb: str) -> None:
        self._simulator.say(f"the response to {verb} is lost")
        raise StoreUnavailable("the response was lost")


# ``Store.register`` is one of the store's verbs.
ABCMeta.register(Store, Connection)
