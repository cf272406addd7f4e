"""A store proxy that fails before or after a call, or delays it.

A failure *after* the call is a lost answer: the store has written, and the caller does not know.
"""

from __future__ import annotations

import threading
from abc import ABCMeta
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tidemill.clock import SystemClock
from tidemill.domain.job import Finish
from tidemill.domain.lanes import ClaimRequest
from tidemill.errors import StoreBusy, StoreUnavailable
from tidemill.stores.base import StepResult, Store
from tidemill.stores.step_pipeline import StepPipeline

LOCAL = frozenset({"close", "notify", "listen", "transaction"})
"""Methods that a cut connection does not affect.

Notifications may be lost anyway, and a transaction fails at its first call.
"""

Condition = Callable[[tuple[Any, ...]], bool]


@dataclass(slots=True)
class _Rule:
    verbs: frozenset[str]
    times: float
    when: Condition
    before: BaseException | None = None
    after: BaseException | None = None
    gate: threading.Event | None = None
    reached: threading.Event | None = None
    late: bool = False


def _always(given: tuple[Any, ...]) -> bool:
    return True


class Faulty:
    """A proxy of a real store. Rules are tried in the order they were added, and each applies to ``times`` calls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self._down: BaseException | None = None
        self._calls: list[tuple[str, float]] = []

    @property
    def store(self) -> Store:
        """The proxy, typed as a store."""
        return cast(Store, self)

    @property
    def real(self) -> Store:
        """The real store, for checks of the true state."""
        return self._store

    # Faults --------------------------------------------------------------------------------------------------------------

    def refuse(
        self, *verbs: str, error: BaseException | None = None, times: float = 1, when: Condition = _always
    ) -> None:
        """Make these methods fail before they change anything."""
        self._add(_Rule(frozenset(verbs), times, when, before=error or StoreUnavailable("the line is cut")))

    def lose_answer(self, *verbs: str, times: float = 1, when: Condition = _always) -> None:
        """Let these methods run, and raise StoreUnavailable instead of returning the answer."""
        self._add(_Rule(frozenset(verbs), times, when, after=StoreUnavailable("the answer was lost")))

    def hold_up(
        self, *verbs: str, times: float = 1, when: Condition = _always, late: bool = False
    ) -> tuple[threading.Event, threading.Event]:
        """Block these methods before they run, or after they run if ``late``.

        Returns two events: the first is set when a call blocks, and setting the second releases it.
        """
        rule = _Rule(
            frozenset(verbs), times, when, gate=threading.Event(), reached=threading.Event(), late=late
        )
        self._add(rule)
        assert rule.reached is not None
        assert rule.gate is not None
        return rule.reached, rule.gate

    def refuse_busy(self, *verbs: str, times: float = 1) -> None:
        """Make these methods fail with StoreBusy."""
        self.refuse(*verbs, error=StoreBusy("somebody else is writing"), times=times)

    def cut(self) -> None:
        """Make every call fail."""
        self._down = StoreUnavailable("the line is cut")

    def mend(self) -> None:
        """Remove all faults."""
        self._down = None
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            if rule.gate is not None:
                rule.gate.set()

    def _add(self, rule: _Rule) -> None:
        with self._lock:
            self._rules.append(rule)

    # Recorded calls ------------------------------------------------------------------------------------------------------

    def calls_of(self, *verbs: str) -> int:
        """The number of calls of these methods."""
        with self._lock:
            return sum(verb in verbs for verb, _ in self._calls)

    def moments_of(self, verb: str) -> list[float]:
        """The times at which a method was called, on the monotonic clock."""
        with self._lock:
            return [at for name, at in self._calls if name == verb]

    def asked(self) -> Counter[str]:
        """The number of calls per method."""
        with self._lock:
            return Counter(verb for verb, _ in self._calls)

    def reset_counts(self) -> None:
        """Reset the counters."""
        with self._lock:
            self._calls.clear()

    # The proxy -----------------------------------------------------------------------------------------------------------

    def __getattr__(self, verb: str) -> Any:
        target = getattr(self._store, verb)
        if not callable(target):
            return target

        def call(*given: Any, **named: Any) -> Any:
            rule = self._rule(verb, given)
            if verb not in LOCAL and self._down is not None:
                raise self._down
            if rule is None:
                return target(*given, **named)
            if rule.before is not None:
                raise rule.before
            if not rule.late:
                _wait(rule)
            answer = target(*given, **named)
            if rule.late:
                _wait(rule)
            if rule.after is not None:
                raise rule.after
            return answer

        return call

    def steps_ahead(self) -> StepPipeline | None:
        """Pipelined steps pass through the same proxy."""
        real = self._store.steps_ahead()
        return None if real is None else _Ahead(self, real)

    def _rule(self, verb: str, given: tuple[Any, ...]) -> _Rule | None:
        with self._lock:
            self._calls.append((verb, self._clock.monotonic()))
            for rule in self._rules:
                if verb in rule.verbs and rule.times > 0 and rule.when(given):
                    rule.times -= 1
                    return rule
            return None

    def _unsaid(self, rule: _Rule | None) -> None:
        """Undo the bookkeeping of the last call, which did not take place."""
        with self._lock:
            self._calls.pop()
            if rule is not None:
                rule.times += 1


# Lets an app accept it as a store. ``Store.register`` is not ABCMeta's: it registers workers.
ABCMeta.register(Store, Faulty)


class _Ahead:
    """Pipelined steps through the proxy. A refused step raises at ``receive``, as with a broken connection."""

    def __init__(self, line: Faulty, real: StepPipeline) -> None:
        self._line, self._real = line, real
        self._fates: deque[_Rule | BaseException | None] = deque()

    def send(self, finishes: Sequence[Finish], request: ClaimRequest) -> bool:
        rule = self._line._rule("step", (finishes, request))
        refused = self._line._down or (None if rule is None else rule.before)
        if refused is not None:
            self._fates.append(refused)
            return True
        if rule is not None and not rule.late:
            _wait(rule)
        if self._real.send(finishes, request):
            self._fates.append(rule)
            return True
        self._line._unsaid(rule)
        return False

    @property
    def file(self) -> int:
        return self._real.file

    def answered(self) -> bool:
        return isinstance(self._fates[0], BaseException) or self._real.answered()

    def receive(self) -> StepResult:
        fate = self._fates.popleft()
        if isinstance(fate, BaseException):
            raise fate
        answer = self._real.receive()
        if fate is not None and fate.late:
            _wait(fate)
        if fate is not None and fate.after is not None:
            raise fate.after
        return answer


def _wait(rule: _Rule) -> None:
    if rule.gate is not None and rule.reached is not None:
        rule.reached.set()
        rule.gate.wait(30)
