"""Texts that describe limits; each display passes its own formats. Pure functions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from tidemill.domain.limits import LimitKind, Rule

NO_LIMIT = "no limit"


def allows(
    rule: Rule, span: Callable[[timedelta | None], str], percent: Callable[[float | None], str]
) -> str:
    """Return a short text about what a rule allows; ``span`` and ``percent`` format a duration and a share.

    >>> def allowed(rule): return allows(rule, str, "{:.0%}".format)
    >>> allowed(Rule("x", LimitKind.RATE, 20, timedelta(minutes=1))), allowed(Rule("x", max=2)), allowed(Rule("x"))
    ('20 in 0:01:00', '2 at a time', 'no limit')
    """
    if rule.kind is LimitKind.BREAKER:
        breaker = rule.breaker
        if breaker is None:
            return "everything"
        return f"opens at {percent(breaker.failures)} failures of {breaker.least} in {span(breaker.window)}"
    if rule.max <= 0:
        return NO_LIMIT
    match rule.kind:
        case LimitKind.RATE:
            bucket = "" if rule.burst is None else f", {rule.burst:,} at once"
            return f"{rule.max:,} in {span(rule.per)}{bucket}"
        case LimitKind.DEPTH:
            return f"{rule.max:,} waiting"
        case _:
            return f"{rule.max:,} at a time"
