"""The choice of the retention policy for a job."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.domain.retention import ANY, ARCHIVE, ArchivePolicy, Selection
from tidemill.domain.states import ENDED


def precedence(policy: ArchivePolicy) -> tuple[bool, int, bool]:
    """How specific a policy is; the greater value wins.

    Tenants count more than tasks, names of tasks more than patterns, tasks more than states.
    """
    tasks = 0 if not policy.tasks else 1 if any(ANY in task for task in policy.tasks) else 2
    return bool(policy.tenants), tasks, policy.states < ENDED


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
        policy.selector, policy.from_tier, tuple(other.selector for other in rivals), limit=policy.batch
    )


def source_store(policy: ArchivePolicy, policies: Sequence[ArchivePolicy]) -> str:
    """The name of the store that holds the policy's source tier: that of the first policy that fills the tier."""
    filling = (other.to for other in policies if other.to is not None and other.tier == policy.from_tier)
    return next(filling, ARCHIVE)
