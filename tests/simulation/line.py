"""One party's way to the store: every call takes its time, and in bad weather some are refused, lost, late or done twice.

What was done is told to the history where it is done, whatever the caller hears of it.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from tests.simulation.history import History
from tests.simulation.stage import Stage

from tidemill.errors import StoreBusy, StoreUnavailable, TidemillError
from tidemill.stores.base import Store

FENCED = frozenset({"finish", "start"})
"""What may arrive twice: nobody could tell a network from doing that."""

LATE = FENCED | {"claim", "step", "enqueue", "beat", "move", "promote", "request_cancel", "retire"}
"""What may be done after its caller has given up waiting."""

WRITES = LATE | {"register", "acquire", "renew", "release", "advance", "sweep", "log"}


@dataclass(slots=True)
class Weather:
    """How bad it is: the share of calls that go wrong, by the way they do."""

    refused: float = 0.0
    busy: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    slow: float = 0.0

    @classmethod
    def storm(cls) -> Weather:
        """Bad weather."""
        return cls(refused=0.02, busy=0.02, lost=0.04, late=0.02, twice=0.03, slow=0.03)


class Network:
    """Holds what is still under way, and does it when its time has come, whoever sent it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def deliver(self, what: str, act: Callable[[], None]) -> None:
        """Do this later."""
        seconds = self._stage.dice.uniform(0.01, 20.0)

        def arrive() -> None:
            self._stage.sleep(seconds)
            self._stage.say(f"{what} arrives late")
            try:
                act()
            except TidemillError as error:
                self._stage.say(f"  {type(error).__name__}")

        self._stage.enter("network", arrive)


class Line:
    """The store as one party sees it."""

    def __init__(
        self,
        stage: Stage,
        store: Store,
        history: History,
        network: Network,
        weather: Callable[[], Weather],
        disturbed: Callable[[], None] = lambda: None,
    ) -> None:
        self._stage, self._store, self._history, self._network = stage, store, history, network
        self._weather, self._disturbed = weather, disturbed
        self._inside: list[tuple[str, tuple[Any, ...], Mapping[str, Any], Any]] | None = None
        self.cut_until = 0.0

    @property
    def store(self) -> Store:
        """The store at the other end, as its user sees it."""
        return cast(Store, self)

    def now(self) -> datetime:
        """The store's own time, as stores that many machines share tell it."""
        return self._stage.clock.now()

    def notify(self, topics: Iterable[str]) -> None:
        """Wake-ups are hints; here they are all lost."""

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
        """All of it arrives at once, and so it is done, or not at all."""
        self._wait()
        roll, weather = self._stage.dice.random(), self._weather()
        self._refuse(roll < weather.refused, "transaction")
        self._inside = []
        try:
            with self._store.transaction():
                yield
            done = self._inside
        finally:
            self._inside = None
        for verb, given, named, answer in done:
            self._history.saw(verb, given, named, answer)
        if weather.refused <= roll < weather.refused + weather.lost:
            self._lose("transaction")

    # On the way ----------------------------------------------------------------------------------------------------------

    def _send(
        self, verb: str, given: tuple[Any, ...], named: Mapping[str, Any], ask: Callable[[], Any]
    ) -> Any:
        self._wait()
        weather, roll = self._weather(), self._stage.dice.random()
        self._refuse(roll < weather.refused, verb)
        roll -= weather.refused
        if 0 <= roll < weather.busy:
            raise StoreBusy("somebody else is writing")
        roll -= weather.busy
        if verb not in WRITES:
            return ask()

        def act() -> Any:
            answer = ask()
            self._history.saw(verb, given, named, answer)
            return answer

        if 0 <= roll < weather.late and verb in LATE:
            self._network.deliver(verb, act)
            self._lose(verb)
        roll -= weather.late
        answer = act()
        if 0 <= roll < weather.lost:
            self._lose(verb)
        roll -= weather.lost
        if 0 <= roll < weather.twice and verb in FENCED:
            self._network.deliver(f"{verb} again", act)
        if self._stage.dice.random() < 0.1:
            self._wait()  # the answer has its way, too
        return answer

    def _wait(self) -> None:
        dice = self._stage.dice
        if dice.random() < self._weather().slow:
            seconds = dice.uniform(0.5, 15.0)
            self._disturbed()
        else:
            seconds = dice.uniform(0.0005, 0.02)
        self._stage.sleep(seconds)

    def _refuse(self, refused: bool, verb: str) -> None:
        if refused or self._stage.seconds < self.cut_until:
            self._stage.sleep(self._stage.dice.uniform(0.01, 1.0))
            self._stage.say(f"{verb} is refused")
            raise StoreUnavailable("the line is cut")

    def _lose(self, verb: str) -> None:
        self._stage.say(f"the answer to {verb} is lost")
        raise StoreUnavailable("the answer was lost")


ABCMeta.register(Store, Line)  # ``Store.register`` is a verb of its own
