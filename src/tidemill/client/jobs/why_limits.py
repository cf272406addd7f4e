"""Reasons of limits why a job is not running, and when there is room again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from tidemill.domain.breaker import BreakerPhase, phase_at, read
from tidemill.domain.job import JobRow
from tidemill.domain.limits import LimitKind, Rule, Rules, Use, opens_at, room, rule_of
from tidemill.stores.base import Store


class LimitUsage(NamedTuple):
    """The limit rules, and the usage of the limits that apply to one job."""

    rules: Rules
    uses: Mapping[str, Use]


NO_STANDINGS = LimitUsage({}, {})


def names_against(job: JobRow, rules: Rules) -> list[str]:
    """Return the limits that apply to a job: its own, and those of its queue and its tenant."""
    around = [name for name in (f"queue/{job.queue}", f"tenant/{job.tenant}") if rule_of(name, rules)]
    return list(dict.fromkeys((*job.limits, *around)))


def standings(store: Store, job: JobRow) -> LimitUsage:
    """Read the rules and the usage of a job's limits; a store without rules is asked only for the rules."""
    rules = {rule.name: rule for rule in store.rules()}
    names = [name for name in names_against(job, rules) if rule_of(name, rules) is not None]
    return LimitUsage(rules, {use.name: use for use in store.uses(rules, names)} if names else {})


def full_limits(job: JobRow, found: LimitUsage, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield each limit that blocks the job now, as a code and a sentence."""
    for name in names_against(job, found.rules):
        rule, use = rule_of(name, found.rules), found.uses.get(name)
        if rule is None or use is None:
            continue
        at = use.now or now
        if room(rule, use, at) > 0:
            continue
        match rule.kind:
            case LimitKind.RATE:
                yield "rate_full", _rate(name, rule, use, at)
            case LimitKind.BREAKER:
                yield "breaker_open", _breaker(name, rule, use, at)
            case _:
                are = "is" if use.used == 1 else "are"
                yield "limit_full", f"Limit {name} is full: {use.used} of {rule.max} {are} running."


def _rate(name: str, rule: Rule, use: Use, now: datetime) -> str:
    assert rule.per is not None
    per = f"{rule.per.total_seconds():g} s"
    said = f"Rate {name} is used up: {rule.max} begin in {per}"
    if rule.burst is not None:
        said = f"{said}, {rule.burst} at once"
    opens = opens_at(rule, use, now)
    return (
        f"{said}." if opens is None else f"{said}; there is room in {_wait(opens, now)}, at {at_text(opens)}."
    )


def _breaker(name: str, rule: Rule, use: Use, now: datetime) -> str:
    thing = name.partition("/")[2]
    standing = read(use.breaker)
    if phase_at(use.breaker, now) is BreakerPhase.HALF_OPEN:
        probes = "1 job tries" if use.used == 1 else f"{use.used} jobs try"
        return f"The breaker {thing} is half open: {probes} whether {thing} works again; the others wait."
    since = "" if standing.opened_at is None else f" since {at_text(standing.opened_at)}"
    opens = opens_at(rule, use, now)
    then = "" if opens is None else f"; it is tried again in {_wait(opens, now)}, at {at_text(opens)}"
    return f"The breaker {thing} is open{since}: too many jobs failed{then}."


def _wait(instant: datetime, now: datetime) -> str:
    seconds = max((instant - now).total_seconds(), 0.0)
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def at_text(instant: datetime) -> str:
    """Format an instant for a sentence."""
    return instant.strftime("%Y-%m-%d %H:%M:%S UTC")
