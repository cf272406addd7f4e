"""The retention settings of an app, and their changes at run time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from tidemill.domain.durations import Duration, set_durations
from tidemill.domain.retention import ARCHIVE, DEFAULT_POLICIES, ArchivePolicy, read_policies
from tidemill.errors import BadSettings

ENABLED = "retention.enabled"
INTERVAL = "retention.interval"
"""Settings of a store that take precedence over the app's own: a boolean, and a number of seconds."""

SHORTEST = timedelta(seconds=1)
PACE = 0.05
FILE_PACE = 0.02
"""Share of time in which a run works: on a server, and on a file, whose readers and writers take turns."""


@dataclass(frozen=True, slots=True)
class Retention:
    """When workers archive ended jobs: ``App(retention=Retention(interval="15m", policies=[…]))``.

    A policy with the name of a default replaces that default; ``use_defaults=False`` leaves all defaults out. ``pace`` is
    the share of time in which a worker archives while jobs are due; it pauses for the rest of the time. The default is
    0.05, and 0.02 on SQLite.
    """

    enabled: bool = True
    interval: timedelta = timedelta(hours=1)
    use_defaults: bool = True
    policies: tuple[ArchivePolicy, ...] = ()
    pace: float | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            enabled: bool = True,
            interval: Duration = timedelta(hours=1),
            use_defaults: bool = True,
            policies: Iterable[ArchivePolicy] = (),
            pace: float | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        set_durations(self, "retention", interval=self.interval)
        if self.interval < SHORTEST:
            raise BadSettings("retention: interval must be one second or more", setting="retention")
        if self.pace is not None and not 0 < self.pace <= 1:
            raise BadSettings(
                f"retention: pace is {self.pace!r}; give a share larger than 0 and at most 1",
                setting="retention",
            )
        object.__setattr__(self, "policies", read_policies(tuple(self.policies)))

    def effective(self) -> tuple[ArchivePolicy, ...]:
        """The policies in effect: the app's own, then the defaults whose names it does not use."""
        own = {policy.name for policy in self.policies}
        usual = DEFAULT_POLICIES if self.use_defaults else ()
        return (*self.policies, *(policy for policy in usual if policy.name not in own))


def read_retention(given: Retention | Sequence[ArchivePolicy] | None, stores: Iterable[str]) -> Retention:
    """The retention of an app. A list of policies is added to the defaults."""
    if given is None:
        return Retention()
    if not isinstance(given, Retention):
        if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
            raise BadSettings(
                f"retention is {given!r}; give a Retention or a list of ArchivePolicy", setting="retention"
            )
        given = Retention(policies=given)
    names = {ARCHIVE, *stores}
    for policy in given.policies:
        # A URL names a directory or a bucket.
        if policy.to is not None and policy.to not in names and "://" not in policy.to:
            raise BadSettings(
                f"archive policy {policy.name}: there is no store named {policy.to!r}; there are {', '.join(sorted(names))}",
                name=policy.name,
            )
    return given


def pace_of(retention: Retention, url: str) -> float:
    """The pace in a store with this URL.

    >>> pace_of(Retention(), "sqlite:///jobs.db"), pace_of(Retention(pace=1), "sqlite:///jobs.db")
    (0.02, 1)
    """
    if retention.pace is not None:
        return retention.pace
    return FILE_PACE if url.startswith("sqlite") else PACE


class RetentionSwitch(NamedTuple):
    """Whether retention is on, and how often it runs."""

    enabled: bool
    interval: timedelta


def in_effect(retention: Retention, settings: Mapping[str, object]) -> RetentionSwitch:
    """The app's settings, overridden by those of the store. An unusable value changes nothing.

    >>> in_effect(Retention(), {"retention.interval": 900}).interval
    datetime.timedelta(seconds=900)
    """
    enabled, seconds = settings.get(ENABLED), settings.get(INTERVAL)
    interval = retention.interval
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds >= 1:
        interval = timedelta(seconds=seconds)
    return RetentionSwitch(enabled if isinstance(enabled, bool) else retention.enabled, interval)
