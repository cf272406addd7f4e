"""Retry policies: how often, and how long to wait. Randomness is an argument: ``jitter`` is drawn by the caller.

``delay(attempt, jitter)`` is the wait after the given attempt (1 is the first) failed; ``jitter`` lies in [0, 1) and is
spread over ±``policy.jitter`` of the wait. The cap holds for every policy, and after jitter too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, runtime_checkable

from tidemill.domain.bounds import LONGEST, check_attempts
from tidemill.errors import BadSettings

_ZERO = timedelta(0)
_DEFAULT_CAP = timedelta(seconds=300)
_LONGEST = timedelta(days=365)
"""A wait without a cap ends here: whoever waits longer has forgotten the job."""


@runtime_checkable
class RetryPolicy(Protocol):
    """Anything with a bound on attempts and a wait after each of them."""

    @property
    def max_attempts(self) -> int: ...

    def delay(self, attempt: int, jitter: float) -> timedelta: ...


def _check(name: str, max_attempts: int, jitter: float, cap: timedelta | None, *waits: timedelta) -> None:
    check_attempts(name, max_attempts)
    if not 0.0 <= jitter <= 1.0:
        raise BadSettings(f"{name}: jitter is {jitter}; give a share between 0 and 1", jitter=jitter)
    if any(wait < _ZERO for wait in waits) or (cap is not None and cap < _ZERO):
        raise BadSettings(f"{name}: a wait is negative; give durations of zero or more")


def _spread(wait: timedelta, share: float, jitter: float, cap: timedelta | None) -> timedelta:
    if share:
        wait = min(wait, _LONGEST) * (1.0 - share + 2.0 * share * jitter)
    return min(wait, cap) if cap is not None else wait


@dataclass(frozen=True, slots=True)
class NoRetry:
    """One attempt, and no more. ``retry=None`` means this."""

    @property
    def max_attempts(self) -> int:
        return 1

    def delay(self, attempt: int, jitter: float) -> timedelta:
        return _ZERO


@dataclass(frozen=True, slots=True)
class Immediate:
    """Try again at once; with a ``jitter`` and a ``cap`` the waits are drawn between zero and the cap's share."""

    max_attempts: int = 3
    jitter: float = 0.0
    cap: timedelta | None = None

    def __post_init__(self) -> None:
        _check("Immediate", self.max_attempts, self.jitter, self.cap)

    def delay(self, attempt: int, jitter: float) -> timedelta:
        return self.cap * (self.jitter * jitter) if self.cap is not None else _ZERO


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same wait each time."""

    max_attempts: int = 4
    wait: timedelta = timedelta(seconds=60)
    jitter: float = 0.0
    cap: timedelta | None = None

    def __post_init__(self) -> None:
        _check("Fixed", self.max_attempts, self.jitter, self.cap, self.wait)

    def delay(self, attempt: int, jitter: float) -> timedelta:
        return _spread(self.wait, self.jitter, jitter, self.cap)


@dataclass(frozen=True, slots=True)
class Linear:
    """Waits that grow by the same step: initial × attempt."""

    max_attempts: int = 4
    initial: timedelta = timedelta(seconds=5)
    jitter: float = 0.0
    cap: timedelta | None = _DEFAULT_CAP

    def __post_init__(self) -> None:
        _check("Linear", self.max_attempts, self.jitter, self.cap, self.initial)

    def delay(self, attempt: int, jitter: float) -> timedelta:
        return _spread(_grown(self.initial, float(max(attempt, 1)), self.cap), self.jitter, jitter, self.cap)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Waits that multiply: initial × factor^(attempt − 1), never above the cap.

    >>> policy = Exponential(jitter=0)
    >>> [policy.delay(attempt, 0.0).seconds for attempt in (1, 2, 3, 10)]
    [5, 10, 20, 300]
    """

    max_attempts: int = 4
    initial: timedelta = timedelta(seconds=5)
    factor: float = 2.0
    jitter: float = 0.5
    cap: timedelta | None = _DEFAULT_CAP

    def __post_init__(self) -> None:
        _check("Exponential", self.max_attempts, self.jitter, self.cap, self.initial)
        if not 1.0 <= self.factor < float("inf"):
            raise BadSettings(
                f"Exponential: factor is {self.factor}; it must be a number of 1 or more", factor=self.factor
            )

    def delay(self, attempt: int, jitter: float) -> timedelta:
        try:
            growth = self.factor ** (max(attempt, 1) - 1)
        except OverflowError:
            growth = float("inf")
        return _spread(_grown(self.initial, growth, self.cap), self.jitter, jitter, self.cap)


def _grown(initial: timedelta, growth: float, cap: timedelta | None) -> timedelta:
    """initial × growth, held within the cap before it can overflow what a timedelta holds."""
    ceiling = cap if cap is not None else _LONGEST
    if initial == _ZERO:
        return _ZERO
    return ceiling if growth >= ceiling / initial else initial * growth


DEFAULT_RETRY = Exponential()

_30S = timedelta(seconds=30)

PRESETS: dict[str, RetryPolicy] = {
    "none": NoRetry(),
    "immediate": Immediate(),
    "default": DEFAULT_RETRY,
    "exponential_5s": Exponential(max_attempts=3, jitter=0.0),
    "linear_5s": Linear(),
    "fixed_60s": Fixed(),
    "linear_30s": Linear(initial=_30S),
    "exponential_30s": Exponential(initial=_30S, jitter=0.0),
    "exponential_30s_jitter": Exponential(initial=_30S, jitter=0.5),
}
"""Policies by name, for settings files and stored definitions."""


def preset(name: str) -> RetryPolicy:
    """The named policy, or an error that lists the names there are."""
    try:
        return PRESETS[name]
    except KeyError:
        known = ", ".join(sorted(PRESETS))
        raise BadSettings(f"there is no retry preset {name!r}; choose one of {known}", name=name) from None


_KINDS: dict[str, type] = {
    "none": NoRetry,
    "immediate": Immediate,
    "fixed": Fixed,
    "linear": Linear,
    "exponential": Exponential,
}
_TIMES = frozenset({"wait", "initial", "cap"})


def policy_to_data(policy: RetryPolicy) -> dict[str, object] | None:
    """A policy of ours as plain data, for what is stored with a job; None for one of a kind we do not know."""
    for kind, known in _KINDS.items():
        if type(policy) is known:
            facts: dict[str, object] = {"kind": kind}
            for name in getattr(policy, "__dataclass_fields__", ()):
                value = getattr(policy, name)
                # No wait is longer when it is written, and the longest there are could not be read again.
                facts[name] = min(value, LONGEST).total_seconds() if isinstance(value, timedelta) else value
            return facts
    return None


def policy_from_data(data: Mapping[str, object]) -> RetryPolicy:
    """The policy that was stored.

    >>> policy_from_data(policy_to_data(Fixed(max_attempts=2)) or {}) == Fixed(max_attempts=2)
    True
    """
    facts = dict(data)
    kind = _KINDS.get(str(facts.pop("kind", "")))
    if kind is None:
        raise BadSettings(f"{data!r} is not a stored retry policy")
    for name in _TIMES & facts.keys():
        seconds = facts[name]
        facts[name] = None if seconds is None else timedelta(seconds=float(str(seconds)))
    policy: RetryPolicy = kind(**facts)
    return policy
