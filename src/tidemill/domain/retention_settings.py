"""The retention settings of an app, and their changes at run time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from tidemill.domain.durations import Duration, set_durations
from tidemill.domain.retention import ARCHIVE, DEFAULT_POLICIES, ArchivePolicy, read_policies
from tidemill.errors import BadSettings

ENABLED = "retention.enabled"
INTERVAL = "retention.interval"
USE_DEFAULTS = "retention.use_defaults"
OVERRIDES = "retention.policies"
"""Settings of a store that take precedence over the app's own: a boolean, a number of seconds, a boolean, and changed
fields of policies by name, such as ``{"completed": {"max_age": "90d"}}``.
"""

CHANGEABLE = ("max_age", "max_count", "batch", "comment")
"""Fields of a policy that can be changed at run time."""

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
    """Whether retention is on, how often it runs, and its policies."""

    enabled: bool
    interval: timedelta
    policies: tuple[ArchivePolicy, ...]


def check_overrides(retention: Retention, changes: object) -> None:
    """Refuse changes of policies that do not exist, and of fields that cannot be changed or have an unusable value."""
    if not isinstance(changes, Mapping):
        raise BadSettings(
            f'{OVERRIDES} is {changes!r}; give an object such as {{"completed": {{"max_age": "90d"}}}}',
            setting=OVERRIDES,
        )
    policies = {policy.name: policy for policy in replace(retention, use_defaults=True).effective()}
    for name, fields in changes.items():
        if name not in policies:
            known = ", ".join(policies)
            raise BadSettings(
                f"{OVERRIDES}: there is no policy {name!r}; there are {known}", setting=OVERRIDES
            )
        _changed(policies[name], fields)


def _changed(policy: ArchivePolicy, fields: object) -> ArchivePolicy:
    if not isinstance(fields, Mapping) or (unknown := sorted(set(fields) - set(CHANGEABLE), key=str)):
        what = f"{unknown[0]!r}" if isinstance(fields, Mapping) else f"{fields!r}"
        raise BadSettings(
            f"{OVERRIDES}: {policy.name}: cannot change {what}; give an object with some of {', '.join(CHANGEABLE)}",
            setting=OVERRIDES,
        )
    try:
        return replace(policy, **fields)
    except TypeError as error:
        raise BadSettings(f"{OVERRIDES}: {policy.name}: {error}", setting=OVERRIDES) from None


def _overridden(policy: ArchivePolicy, changes: object) -> ArchivePolicy:
    """The policy with its changes; an app of another version may have stored unusable ones."""
    if not isinstance(changes, Mapping) or policy.name not in changes:
        return policy
    try:
        return _changed(policy, changes[policy.name])
    except BadSettings:
        return policy


def in_effect(retention: Retention, settings: Mapping[str, object]) -> RetentionSwitch:
    """The app's settings, overridden by those of the store. An unusable value changes nothing.

    >>> in_effect(Retention(), {"retention.interval": 900}).interval
    datetime.timedelta(seconds=900)
    >>> changes = {"retention.policies": {"completed": {"max_age": "90d"}}}
    >>> in_effect(Retention(), changes).policies[0].max_age
    datetime.timedelta(days=90)
    """
    enabled, seconds = settings.get(ENABLED), settings.get(INTERVAL)
    interval = retention.interval
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds >= 1:
        interval = timedelta(seconds=seconds)
    defaults, changes = settings.get(USE_DEFAULTS), settings.get(OVERRIDES)
    if isinstance(defaults, bool):
        retention = replace(retention, use_defaults=defaults)
    policies = tuple(_overridden(policy, changes) for policy in retention.effective())
    return RetentionSwitch(enabled if isinstance(enabled, bool) else retention.enabled, interval, policies)
