"""Jobs on their way from one store to another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from tidemill.domain.job import JobRow
from tidemill.domain.limits import Rule, Rules, Use, is_rate, rule_of, spent, window_of


@dataclass(frozen=True, slots=True)
class TransferJob:
    """A job that has not begun, with the rule of its unique key."""

    job: JobRow
    until_claimed: bool = False  #: its key is released when a worker claims it
    window_ends_at: datetime | None = None  #: its key is held at least until then


class LimitStart(NamedTuple):
    """Jobs that started at one instant and counted against the limit of this name."""

    name: str
    begun_at: datetime
    jobs: int


def rate_starts(starts: Iterable[LimitStart], rules: Rules, now: datetime) -> dict[str, list[LimitStart]]:
    """The starts that a rate still counts at this time, by name and in the order of their instants."""
    counted: dict[str, list[LimitStart]] = {}
    for start in sorted(starts):
        rule = rule_of(start.name, rules)
        window = window_of(rule)
        if is_rate(rule) and start.jobs > 0 and (window is None or start.begun_at > now - window):
            counted.setdefault(start.name, []).append(start)
    return counted


def bucket_after(rule: Rule | None, starts: Sequence[LimitStart]) -> datetime | None:
    """Until when a token bucket that was empty is full after these starts; None if the rule has no bucket."""
    use = Use("")
    for start in starts:
        use = use._replace(full_until_at=spent(rule, use, start.jobs, start.begun_at))
    return use.full_until_at
