"""Deployments of an app, and the order of releases.

Several versions of an app's code may run at a time. The newest live one decides which declared schedules exist.
A *release* is a name that the user gives to a version of the code; deployments without one are ordered by their start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from tidemill.domain.bounds import check_text
from tidemill.errors import BadSettings

ALIVE_FOR = timedelta(minutes=5)
"""A deployment counts as gone when none of its workers has confirmed the record for this long."""

CONFIRM = timedelta(minutes=1)
"""How often a running worker confirms the record, or checks whether it may take over."""

_HASH = re.compile(r"(?=.*[a-f])(?=.*\d)[0-9a-f]{7,40}", re.IGNORECASE)
_NUMBER = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Deployment:
    """One start of an app's code: its release, if it has one, and when it started by the store's clock."""

    deployed_at: datetime
    release: str | None = None

    def __str__(self) -> str:
        started = f"deployed at {self.deployed_at:%Y-%m-%d %H:%M:%S} UTC"
        return started if self.release is None else f"release {self.release}, {started}"


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """The deployment that last wrote an app's declared schedules. ``revision`` counts the writes; 0 was never stored.

    ``seen_at`` is the last write or confirmation. Deployments that started before ``forced_at`` do not replace it.
    """

    app: str
    deployment: Deployment
    revision: int = 0
    seen_at: datetime | None = None
    forced_at: datetime | None = None


class Deploy(NamedTuple):
    """The first start of a release of an app."""

    app: str
    release: str
    deployed_at: datetime


class ReleaseVerdict(StrEnum):
    """Whether a deployment may write the declared schedules."""

    WRITE = "write"  #: it is the newest live deployment
    OLDER = "older"  #: a newer one is alive
    FORCED = "forced"  #: an operator forced other code after this deployment started


class ReleaseDecision(NamedTuple):
    """The verdict, and whether the stored deployment is this one."""

    verdict: ReleaseVerdict
    ours: bool = False


def judge(mine: Deployment, stored: ReleaseRecord | None, now: datetime) -> ReleaseDecision:
    """Whether a deployment may replace the declared schedules of the stored one."""
    if stored is None:
        return ReleaseDecision(ReleaseVerdict.WRITE)
    theirs = stored.deployment
    if is_same(mine, theirs):
        return ReleaseDecision(ReleaseVerdict.WRITE, ours=True)
    if stored.forced_at is not None and mine.deployed_at < stored.forced_at:
        return ReleaseDecision(ReleaseVerdict.FORCED)
    if is_newer(mine, theirs):
        return ReleaseDecision(ReleaseVerdict.WRITE)
    gone = stored.seen_at is None or now - stored.seen_at >= ALIVE_FOR
    return ReleaseDecision(ReleaseVerdict.WRITE if gone else ReleaseVerdict.OLDER)


def is_same(mine: Deployment, theirs: Deployment) -> bool:
    """Whether both run the same code: the same release, or without releases the same start."""
    if mine.release is not None and theirs.release is not None:
        return order_of(mine.release) == order_of(theirs.release)
    return mine == theirs


def is_newer(mine: Deployment, theirs: Deployment) -> bool:
    """Compare releases if both have one, otherwise the start times."""
    if mine.release is not None and theirs.release is not None:
        return order_of(mine.release) > order_of(theirs.release)
    return mine.deployed_at > theirs.deployed_at


def order_of(release: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key for releases: digits compare as numbers, everything else as text.

    >>> order_of("2026.11.17-10") > order_of("2026.11.17-9")
    True
    >>> order_of("v1.10") > order_of("v1.9.3")
    True
    """
    parts = [part for part in _NUMBER.split(release) if part]
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts)


def read_release(given: object) -> str | None:
    """A release as users give it; empty means none. A name without an order, such as a commit hash, is refused."""
    if given is None or given == "":
        return None
    if not isinstance(given, str) or not 0 < len(given) <= 200 or given != given.strip():
        raise BadSettings(
            f"release is {given!r}; give a text of 1 to 200 characters without blanks at its ends"
        )
    check_text("release", given)
    if _HASH.fullmatch(given) or not any(part.isdecimal() for part in given):
        raise BadSettings(
            f"release is {given!r}, which has no order; give something that grows with every deployment,"
            " such as a date, a build number or a version"
        )
    return given
