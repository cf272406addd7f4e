"""The choice of the retention policy for a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.bounds import span_words
from tidemill.domain.retention import (
    ANY,
    ARCHIVE,
    DEFAULT_POLICIES,
    LIVE_TIER,
    ArchivePolicy,
    Position,
    Selection,
    Selector,
)
from tidemill.domain.states import ENDED, JobState


def precedence(policy: ArchivePolicy) -> tuple[bool, bool, int, bool]:
    """How specific a policy is; the greater value wins.

    Tenants count more than tasks, names of tasks more than patterns, tasks more than states. A default counts least, so
    that a policy for all ended jobs replaces the defaults.
    """
    tasks = 0 if not policy.tasks else 1 if any(ANY in task for task in policy.tasks) else 2
    return policy not in DEFAULT_POLICIES, bool(policy.tenants), tasks, policy.states < ENDED


def ranked(policies: Sequence[ArchivePolicy]) -> list[ArchivePolicy]:
    """The policies, most specific first; equally specific ones in their given order."""
    return sorted(policies, key=precedence, reverse=True)


def governed_by(policy: ArchivePolicy, policies: Sequence[ArchivePolicy]) -> Selection:
    """The jobs in the policy's tier that it governs: those that no more specific policy of that tier matches.

    A policy that leaves the original does not compete: it applies to every job that it matches.
    """
    rivals: list[ArchivePolicy] = []
    if policy.delete_from_source:
        for other in ranked(policies):
            if other is policy or other.name == policy.name:
                break
            if (
                other.delete_from_source
                and other.from_tier == policy.from_tier
                and other.states & policy.states
            ):
                rivals.append(other)
    return Selection(
        policy.selector,
        policy.from_tier,
        tuple(other.selector for other in rivals),
        limit=policy.batch,
        members=not policy.delete_from_source,
    )


def source_store(policy: ArchivePolicy, policies: Sequence[ArchivePolicy]) -> str:
    """The name of the store that holds the policy's source tier: that of the first policy that fills the tier."""
    filling = (other.to for other in policies if other.to is not None and other.tier == policy.from_tier)
    return next(filling, ARCHIVE)


class Considered(NamedTuple):
    """A policy that was considered for a job: whether it applies, and why."""

    policy: str
    applies: bool
    reason: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class RetentionChoice:
    """Which policy governs a job, when the job is due, and where it goes.

    ``due_at`` is the time by age; ``over_count`` says that enough newer jobs have ended for the job to be due already.
    """

    id: UUID
    task: str
    tenant: str
    state: JobState
    tier: str
    ended_at: datetime | None
    considered: tuple[Considered, ...]
    policy: str | None = None
    due_at: datetime | None = None
    max_count: int | None = None
    over_count: bool = False
    to: str | None = None  #: name of the target store; None if the job is deleted or stays
    to_tier: str | None = None

    def lines(self, now: datetime) -> list[str]:
        """The choice as text for people."""
        ended = "has not ended" if self.ended_at is None else f"ended {_instant(self.ended_at)}"
        head = f"{self.task} job {self.id} of tenant {self.tenant} is {self.state} in tier {self.tier}; it {ended}"
        width = max((len(item.policy) for item in self.considered), default=0)
        rows = [
            f"  {'*' if item.applies else '-'} {item.policy:<{width}}  {item.reason}"
            + (f" ({item.comment})" if item.comment else "")
            for item in self.considered
        ]
        return [head, *rows, self._fate(now)]

    def _fate(self, now: datetime) -> str:
        if self.ended_at is None:
            return "it stays: retention begins when the job has ended"
        if self.policy is None:
            return f"it stays in tier {self.tier}: no policy moves it"
        goes = "it is deleted" if self.to is None else f"it moves to tier {self.to_tier} of store {self.to}"
        if self.due_at is not None and self.due_at <= now:
            return f"{goes} with the next run; it is due since {_instant(self.due_at)}"
        if self.over_count:
            return f"{goes} with the next run, because {self.max_count} newer jobs of this policy have ended"
        count = (
            "" if self.max_count is None else f"once {self.max_count} newer jobs of this policy have ended"
        )
        if self.due_at is None:
            return f"{goes} {count}"
        age = f"on {_instant(self.due_at)}, in {span_words(_rounded(self.due_at - now))}"
        return f"{goes} {age}" + (f", or earlier {count}" if count else "")


def governing(
    policies: Sequence[ArchivePolicy], *, tier: str | None, state: JobState, task: str, tenant: str
) -> ArchivePolicy | None:
    """The policy that moves a job out of its tier; None if none does."""
    for policy in ranked(policies):
        if (
            policy.from_tier == tier
            and policy.delete_from_source
            and policy.selector.matches(state, task, tenant)
        ):
            return policy
    return None


def explain(
    policies: Sequence[ArchivePolicy],
    *,
    id: UUID,
    tier: str | None,
    state: JobState,
    task: str,
    tenant: str,
    ended_at: datetime | None,
    beyond: Position | None = None,
) -> RetentionChoice:
    """Which policies were considered for a job, why each applies or not, and what follows.

    ``beyond`` is the last position that is due by the count of the governing policy.
    """
    chosen = (
        None if ended_at is None else governing(policies, tier=tier, state=state, task=task, tenant=tenant)
    )
    considered = [
        _considered(policy, chosen, state, task, tenant, tier, ended=ended_at is not None)
        for policy in ranked(policies)
    ]
    choice = RetentionChoice(id, task, tenant, state, tier or LIVE_TIER, ended_at, tuple(considered))
    if chosen is None or ended_at is None:
        return choice
    return replace(
        choice,
        policy=chosen.name,
        due_at=None if chosen.max_age is None else ended_at + chosen.max_age,
        max_count=chosen.max_count,
        over_count=beyond is not None and Position(ended_at, id) <= beyond,
        to=chosen.to,
        to_tier=None if chosen.to is None else chosen.tier,
    )


def _considered(
    policy: ArchivePolicy,
    chosen: ArchivePolicy | None,
    state: JobState,
    task: str,
    tenant: str,
    tier: str | None,
    *,
    ended: bool,
) -> Considered:
    comment = policy.comment
    if policy.from_tier != tier:
        return Considered(policy.name, False, f"reads from tier {policy.from_tier or LIVE_TIER}", comment)
    mismatch = _mismatch(policy.selector, state, task, tenant)
    if not ended:
        return Considered(policy.name, False, "the job has not ended", comment)
    if mismatch is not None:
        return Considered(policy.name, False, mismatch, comment)
    if policy is chosen:
        return Considered(policy.name, True, f"applies: {_narrowness(policy)}", comment)
    if not policy.delete_from_source:
        return Considered(policy.name, True, "applies too: it copies the job and leaves it", comment)
    assert chosen is not None  # this one matches
    if precedence(chosen) == precedence(policy):
        why = f"{chosen.name} is as specific and comes first"
    else:
        why = f"{chosen.name} is more specific: it {_narrowness(chosen)}, this one {_narrowness(policy)}"
    return Considered(policy.name, False, why, comment)


def _mismatch(rule: Selector, state: JobState, task: str, tenant: str) -> str | None:
    if state not in rule.states:
        return f"is for state {', '.join(sorted(rule.states))}, not {state}"
    if rule.tenants and tenant not in rule.tenants:
        return "is for other tenants"  # their names are not for everyone who may see this job
    if not rule.matches(state, task, tenant):
        return f"is for task {', '.join(sorted(rule.tasks))}, not {task}"
    return None


def _narrowness(policy: ArchivePolicy) -> str:
    own, tenants, tasks, states = precedence(policy)
    if not own:
        return "is the default for its states"
    parts = (
        ["names tenants"] * tenants
        + ["", "matches a task pattern", "names tasks"][tasks : tasks + 1]
        + ["names states"] * states
    )
    return " and ".join(part for part in parts if part) or "is for all ended jobs"


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _rounded(span: timedelta) -> timedelta:
    """The span in whole days, hours or minutes, for reading."""
    for unit in (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)):
        if span >= 2 * unit:
            return span // unit * unit
    return max(timedelta(seconds=round(span.total_seconds())), timedelta(seconds=1))
