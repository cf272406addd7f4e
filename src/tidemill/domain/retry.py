"""Retry policies: number of attempts and delays between them.

``delay(attempt, jitter)`` is the delay after the given attempt (1 is the first) failed. The caller draws ``jitter`` in [0, 1),
which spreads the delay over ±``policy.jitter``. The cap applies to every policy, also after jitter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from tidemill.domain.bounds import LONGEST, check_attempts, span_words
from tidemill.domain.durations import Duration, set_durations
from tidemill.errors import BadSettings

P = TypeVar("P")

_ZERO = timedelta(0)
_DEFAULT_CAP = timedelta(seconds=300)
_LONGEST = timedelta(days=365)
"""The longest delay of a policy without a cap."""


@runtime_checkable
class RetryPolicy(Protocol):
    """An object with a maximum number of attempts and a delay after each."""

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
    """A single attempt. ``retry=None`` means this."""

    @property
    def max_attempts(self) -> int:
        return 1

    def delay(self, attempt: int, jitter: float) -> timedelta:
        return _ZERO


@dataclass(frozen=True, slots=True)
class Immediate:
    """Retry immediately; with ``jitter`` and ``cap`` the delays are drawn between zero and the cap's share."""

    max_attempts: int = 3
    jitter: float = 0.0
    cap: timedelta | None = None

    if TYPE_CHECKING:

        def __init__(
            self, max_attempts: int = 3, jitter: float = 0.0, cap: Duration | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        set_durations(self, "Immediate", cap=self.cap)
        _check("Immediate", self.max_attempts, self.jitter, self.cap)

    def delay(self, attempt: int, jitter: float) -> timedelta:
        return self.cap * (self.jitter * jitter) if self.cap is not None else _ZERO


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same delay each time."""

    max_attempts: int = 4
    wait: timedelta = timedelta(seconds=60)
    jitter: float = 0.0
    cap: timedelta | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            max_attempts: int = 4,
            wait: Duration = ...,
            jitter: float = 0.0,
            cap: Duration | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        set_durations(self, "Fixed", wait=self.wait, cap=self.cap)
        _check("Fixed", self.max_attempts, self.jitter, self.cap, self.wait)

    def delay(self, attempt: int, jitter: float) -> timedelta:
        return _spread(self.wait, self.jitter, jitter, self.cap)


def _accept_initial(policy: type[P]) -> type[P]:
    """Let a policy accept ``initial=``, the former name of ``wait``."""
    given: Callable[..., None] = policy.__init__

    @wraps(given)
    def accept(self: P, *args: Any, **options: Any) -> None:
        if "initial" in options:
            if "wait" in options:
                raise TypeError(f"{policy.__name__}: wait and initial are the same option; give wait only")
            options["wait"] = options.pop("initial")
        given(self, *args, **options)

    setattr(policy, "__init__", accept)  # noqa: B010  (a type checker refuses the assignment)
    return policy


@_accept_initial
@dataclass(frozen=True, slots=True)
class Linear:
    """Linearly growing delays: wait × attempt."""

    max_attempts: int = 4
    wait: timedelta = timedelta(seconds=5)
    jitter: float = 0.0
    cap: timedelta | None = _DEFAULT_CAP

    if TYPE_CHECKING:

        def __init__(
            self,
            max_attempts: int = 4,
            wait: Duration = ...,
            jitter: float = 0.0,
            cap: Duration | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        set_durations(self, "Linear", wait=self.wait, cap=self.cap)
        _check("Linear", self.max_attempts, self.jitter, self.cap, self.wait)

    def delay(self, attempt: int, jitter: float) -> timedelta:
        return _spread(_grown(self.wait, float(max(attempt, 1)), self.cap), self.jitter, jitter, self.cap)


@_accept_initial
@dataclass(frozen=True, slots=True)
class Exponential:
    """Exponentially growing delays: wait × factor^(attempt − 1), at most the cap.

    >>> policy = Exponential(jitter=0)
    >>> [policy.delay(attempt, 0.0).seconds for attempt in (1, 2, 3, 10)]
    [5, 10, 20, 300]
    """

    max_attempts: int = 4
    wait: timedelta = timedelta(seconds=5)
    factor: float = 2.0
    jitter: float = 0.5
    cap: timedelta | None = _DEFAULT_CAP

    if TYPE_CHECKING:

        def __init__(
            self,
            max_attempts: int = 4,
            wait: Duration = ...,
            factor: float = 2.0,
            jitter: float = 0.5,
            cap: Duration | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        set_durations(self, "Exponential", wait=self.wait, cap=self.cap)
        _check("Exponential", self.max_attempts, self.jitter, self.cap, self.wait)
        if not 1.0 <= self.factor < float("inf"):
            raise BadSettings(
                f"Exponential: factor is {self.factor}; it must be a number of 1 or more", factor=self.factor
            )

    def delay(self, attempt: int, jitter: float) -> timedelta:
        try:
            growth = self.factor ** (max(attempt, 1) - 1)
        except OverflowError:
            growth = float("inf")
        return _spread(_grown(self.wait, growth, self.cap), self.jitter, jitter, self.cap)


def _grown(initial: timedelta, growth: float, cap: timedelta | None) -> timedelta:
    """initial × growth, limited to the cap before the timedelta can overflow."""
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
    "linear_30s": Linear(wait=_30S),
    "exponential_30s": Exponential(wait=_30S, jitter=0.0),
    "exponential_30s_jitter": Exponential(wait=_30S, jitter=0.5),
}
"""Policies by name, for settings files and stored definitions."""


def preset(name: str) -> RetryPolicy:
    """The policy of this name. Raises an error that lists the known names."""
    try:
        return PRESETS[name]
    except KeyError:
        known = ", ".join(sorted(PRESETS))
        raise BadSettings(f"unknown retry preset {name!r}; expected one of {known}", name=name) from None


_KINDS: dict[str, type] = {
    "none": NoRetry,
    "immediate": Immediate,
    "fixed": Fixed,
    "linear": Linear,
    "exponential": Exponential,
}
_GROWING = ("linear", "exponential")
_TIMES = frozenset({"wait", "cap"})


def policy_to_data(policy: RetryPolicy) -> dict[str, object] | None:
    """A built-in policy as plain data, for storage with a job; None for a custom policy."""
    for kind, known in _KINDS.items():
        if type(policy) is known:
            fields: dict[str, object] = {"kind": kind}
            for name in getattr(policy, "__dataclass_fields__", ()):
                value = getattr(policy, name)
                # Stored delays are limited to LONGEST, because longer ones could not be read back.
                fields[name] = min(value, LONGEST).total_seconds() if isinstance(value, timedelta) else value
            if (
                kind in _GROWING
            ):  # the stored name is older than the option's, and workers of earlier releases read it
                fields["initial"] = fields.pop("wait")
            return fields
    return None


def policy_words(policy: RetryPolicy) -> str:
    """A short description of a policy.

    >>> policy_words(Exponential()), policy_words(Fixed(max_attempts=2)), policy_words(NoRetry())
    ('4 attempts, waits from 5 seconds, × 2 each time, at most 5 minutes, ± 50 %', '2 attempts, waits of 1 minute', '1 attempt')
    """
    match policy:
        case NoRetry():
            return "1 attempt"
        case Fixed():
            waits = f"waits of {span_words(policy.wait)}"
        case Linear():
            waits = f"waits of {span_words(policy.wait)} × the attempt"
        case Exponential():
            waits = f"waits from {span_words(policy.wait)}, × {policy.factor:g} each time"
        case _:
            return f"{policy.max_attempts} attempts, {type(policy).__name__}"
    cap = "" if policy.cap is None else f", at most {span_words(policy.cap)}"
    jitter = f", ± {policy.jitter:.0%}".replace("%", " %") if policy.jitter else ""
    return f"{policy.max_attempts} attempts, {waits}{cap}{jitter}"


def policy_from_data(data: Mapping[str, object]) -> RetryPolicy:
    """A policy from stored data.

    >>> policy_from_data(policy_to_data(Fixed(max_attempts=2)) or {}) == Fixed(max_attempts=2)
    True
    """
    fields = dict(data)
    kind = _KINDS.get(str(fields.pop("kind", "")))
    if kind is None:
        raise BadSettings(f"{data!r} is not a stored retry policy")
    if "initial" in fields:
        fields["wait"] = fields.pop("initial")
    for name in _TIMES & fields.keys():
        seconds = fields[name]
        fields[name] = None if seconds is None else timedelta(seconds=float(str(seconds)))
    policy: RetryPolicy = kind(**fields)
    return policy
