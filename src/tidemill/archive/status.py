"""The state of retention in a store, and the choice of policy for one job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from tidemill.archive.lease import found_lease
from tidemill.archive.places import ArchivePlace
from tidemill.archive.sources import LiveSource, TierSource
from tidemill.domain.archive_totals import PolicySums, RunRecord, read_runs, read_sums
from tidemill.domain.retention import (
    DEFAULT_POLICIES,
    LAST_ID,
    ArchivedJob,
    ArchivePolicy,
    Position,
    Selection,
    Selector,
)
from tidemill.domain.retention_choice import (
    RetentionChoice,
    explain,
    governed_by,
    governing,
    source_store,
)
from tidemill.domain.retention_settings import Retention, RetentionSwitch, in_effect
from tidemill.domain.states import JobState
from tidemill.errors import JobNotFound
from tidemill.stores.base import Store

OVERDUE_RUNS = 2
"""A job is overdue when it has been due for longer than this number of intervals."""


class RetentionClient(Protocol):
    """The parts of a client that the state of retention needs."""

    retention: Retention

    @property
    def pin(self) -> datetime | None:
        """The time to pass to a store; None for the store's own clock."""

    def store(self, name: str | None) -> Store:
        """Return the store with this name."""

    def place(self, name: str) -> ArchivePlace:
        """Return the place of archived jobs with this name."""

    def archived(self, id: UUID, *, tenant: str, store: str | None) -> ArchivedJob | None:
        """Return the archived copy of a job, if any."""


@dataclass(frozen=True, slots=True)
class PolicyStatus:
    """One policy in effect, with its totals. ``overdue_since`` is when its first overdue job became due."""

    name: str
    default: bool
    states: list[str]
    tasks: list[str]
    tenants: list[str]
    from_tier: str | None
    to: str | None
    tier: str | None
    max_age: timedelta | None
    max_count: int | None
    delete_from_source: bool
    batch: int
    comment: str
    archived: int
    failed: int
    bytes: int
    last_at: datetime | None
    mismatch_at: datetime | None
    overdue_since: datetime | None


@dataclass(frozen=True, slots=True)
class RetentionStatus:
    """Whether retention is on, when it ran and runs next, and what its policies have done."""

    enabled: bool
    interval: timedelta
    running: bool
    last: RunRecord | None
    next_at: datetime | None
    oldest_ended_at: datetime | None  #: when the oldest job in the live tables ended
    overdue: bool
    runs: list[RunRecord]
    policies: list[PolicyStatus]


def retention_switch(client: RetentionClient) -> RetentionSwitch:
    """The settings of retention in effect, and the policies."""
    settings = client.store(None).settings()
    return in_effect(client.retention, {setting.key: setting.value for setting in settings})


def retention_status(client: RetentionClient) -> RetentionStatus:
    """Read the state of retention in the jobs' store."""
    store = client.store(None)
    now = client.pin or store.now()
    switch = retention_switch(client)
    lease = found_lease(store)
    runs = [] if lease is None else read_runs(lease.metadata)
    sums = {} if lease is None else read_sums(lease.metadata)
    late = switch.interval * OVERDUE_RUNS
    policies = [
        _policy_status(policy, sums.get(policy.name), _overdue(client, policy, switch.policies, now, late))
        for policy in switch.policies
    ]
    oldest = store.archivable(Selection(Selector(), limit=1, members=True), policy="", tier="")
    last = runs[0] if runs else None
    return RetentionStatus(
        enabled=switch.enabled,
        interval=switch.interval,
        running=lease is not None and lease.held(now),
        last=last,
        next_at=None if not switch.enabled else now if last is None else last.at + switch.interval,
        oldest_ended_at=oldest[0].finished_at if oldest else None,
        overdue=any(policy.overdue_since is not None for policy in policies),
        runs=runs,
        policies=policies,
    )


def _policy_status(
    policy: ArchivePolicy, sums: PolicySums | None, overdue_since: datetime | None
) -> PolicyStatus:
    sums = sums or PolicySums(policy.name, policy.tier)
    return PolicyStatus(
        name=policy.name,
        default=policy in DEFAULT_POLICIES,
        states=sorted(policy.states),
        tasks=sorted(policy.tasks),
        tenants=sorted(policy.tenants),
        from_tier=policy.from_tier,
        to=policy.to,
        tier=None if policy.to is None else policy.tier,
        max_age=policy.max_age,
        max_count=policy.max_count,
        delete_from_source=policy.delete_from_source,
        batch=policy.batch,
        comment=policy.comment,
        archived=sums.archived,
        failed=sums.failed,
        bytes=sums.bytes,
        last_at=_instant(sums.last_at),
        mismatch_at=_instant(sums.mismatch_at),
        overdue_since=overdue_since,
    )


def _overdue(
    client: RetentionClient,
    policy: ArchivePolicy,
    policies: tuple[ArchivePolicy, ...],
    now: datetime,
    late: timedelta,
) -> datetime | None:
    """When the first job of a policy became due that should have left before; a policy without an age has none."""
    if policy.max_age is None or not policy.delete_from_source:
        return None
    last = Position(now - policy.max_age - late, LAST_ID)
    selection = replace(governed_by(policy, policies), until=last, limit=1)
    due = _source(client, policy, policies).due(selection, policy=policy.name, tier=policy.tier)
    ends = [job.finished_at for job in due]
    if policy.from_tier is None:
        flows = client.store(None).due_flows(selection)
        ends += [flow.ended_at for flow in flows if flow.ended_at is not None]
    return min(ends) + policy.max_age if ends else None


def _source(
    client: RetentionClient, policy: ArchivePolicy, policies: tuple[ArchivePolicy, ...]
) -> LiveSource | TierSource:
    if policy.from_tier is None:
        return LiveSource(client.store(None))
    place: ArchivePlace = client.place(source_store(policy, policies))
    return TierSource(place, policy.from_tier, stays=False)


def retention_choice(client: RetentionClient, id: UUID, *, tenant: str) -> RetentionChoice:
    """Explain which policy governs a job, live or archived."""
    tier: str | None = None
    live = client.store(None).get([id], tenant=tenant)
    if live:
        state, task, owner, ended_at = live[0].state, live[0].task, live[0].tenant, live[0].finished_at
        if live[0].details.flow_id is not None:
            # It leaves with its flow, which policies match by the flow's own name, state and end.
            for flow in client.store(None).flow([live[0].details.flow_id], tenant=tenant):
                task, ended_at = flow.name, flow.ended_at
                state = JobState.RUNNING if flow.ended_at is None else JobState(flow.state.value)
    else:
        copy = client.archived(id, tenant=tenant, store=None)
        if copy is None:
            raise JobNotFound(f"there is no job {id}", id=id)
        tier, state, task, owner, ended_at = copy.tier, copy.state, copy.task, copy.tenant, copy.finished_at
    policies = retention_switch(client).policies
    return explain(
        policies,
        id=id,
        tier=tier,
        state=state,
        task=task,
        tenant=owner,
        ended_at=ended_at,
        beyond=_beyond(client, policies, tier, state, task, owner),
    )


def _beyond(
    client: RetentionClient,
    policies: tuple[ArchivePolicy, ...],
    tier: str | None,
    state: JobState,
    task: str,
    tenant: str,
) -> Position | None:
    policy = governing(policies, tier=tier, state=state, task=task, tenant=tenant)
    if policy is None or policy.max_count is None:
        return None
    return _source(client, policy, policies).beyond(governed_by(policy, policies), policy.max_count)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
