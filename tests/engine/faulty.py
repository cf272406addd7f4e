"""A store whose line can be bad: it hands every verb on to a real store, and fails before it, after it, or late, as told.

What fails *after* the verb was done is an answer that got lost: the store has written, and the caller does not know.
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
from tidemill.stores.ahead import StepsAhead
from tidemill.stores.base import Step, Store

LOCAL = frozenset({"close", "notify", "listen", "transaction"})
"""What does not go over the line that is cut: hints may be lost anyway, and a transaction fails at its first verb."""

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
    """The way to a real store. Rules are tried in the order they were given; each is good for ``times`` calls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self._down: BaseException | None = None
        self._calls: list[tuple[str, float]] = []

    @property
    def store(self) -> Store:
        """The store at the other end, as its user sees it."""
        return cast(Store, self)

    @property
    def real(self) -> Store:
        """The store itself, for those who must see what is true."""
        return self._store

    # What is to go wrong -------------------------------------------------------------------------------------------------

    def refuse(
        self, *verbs: str, error: BaseException | None = None, times: float = 1, when: Condition = _always
    ) -> None:
        """These verbs fail, and nothing has happened."""
        self._add(_Rule(frozenset(verbs), times, when, before=error or StoreUnavailable("the line is cut")))

    def lose_answer(self, *verbs: str, times: float = 1, when: Condition = _always) -> None:
        """These verbs are done, and whoever asked hears only that the line was cut."""
        self._add(_Rule(frozenset(verbs), times, when, after=StoreUnavailable("the answer was lost")))

    def hold_up(
        self, *verbs: str, times: float = 1, when: Condition = _always, late: bool = False
    ) -> tuple[threading.Event, threading.Event]:
        """These verbs wait, before they are done or (``late``) after; the first event is set when one waits, set the second
        to let it go on.
        """
        rule = _Rule(
            frozenset(verbs), times, when, gate=threading.Event(), reached=threading.Event(), late=late
        )
        self._add(rule)
        assert rule.reached is not None
        assert rule.gate is not None
        return rule.reached, rule.gate

    def refuse_busy(self, *verbs: str, times: float = 1) -> None:
        """These verbs find the store in use."""
        self.refuse(*verbs, error=StoreBusy("somebody else is writing"), times=times)

    def cut(self) -> None:
        """Nothing gets through any more."""
        self._down = StoreUnavailable("the line is cut")

    def mend(self) -> None:
        """All is well again."""
        self._down = None
        with self._lock:
            rules, self._rules = self._rules, []
        for rule in rules:
            if rule.gate is not None:
                rule.gate.set()

    def _add(self, rule: _Rule) -> None:
        with self._lock:
            self._rules.append(rule)

    # What was asked ------------------------------------------------------------------------------------------------------

    def calls_of(self, *verbs: str) -> int:
        """How often these verbs were called."""
        with self._lock:
            return sum(verb in verbs for verb, _ in self._calls)

    def moments_of(self, verb: str) -> list[float]:
        """When a verb was called, by the monotonic clock."""
        with self._lock:
            return [at for name, at in self._calls if name == verb]

    def asked(self) -> Counter[str]:
        """All calls by verb."""
        with self._lock:
            return Counter(verb for verb, _ in self._calls)

    def count_anew(self) -> None:
        """Count from zero."""
        with self._lock:
            self._calls.clear()

    # The line ------------------------------------------------------------------------------------------------------------

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

    def steps_ahead(self) -> StepsAhead | None:
        """Steps that are sent ahead go over the same line."""
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
        """The last call did not take place."""
        with self._lock:
            self._calls.pop()
            if rule is not None:
                rule.times += 1


ABCMeta.register(
    Store, Faulty
)  # so that an app takes it for a store; ``Store.register`` is a verb of its own


class _Ahead:
    """Steps sent ahead over a bad line. One that is refused is told of when its answer is asked for, as a broken wire is."""

    def __init__(self, line: Faulty, real: StepsAhead) -> None:
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

    def receive(self) -> Step:
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
