"""Transfers of jobs, definitions and counted starts between stores, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.job import JobRow, UniqueHold
from tidemill.domain.limits import Rules, rule_of, window_of
from tidemill.domain.states import ENDED, JobState
from tidemill.domain.transfers import LimitStart, TransferJob, bucket_after, rate_starts
from tidemill.stores.memory import unique_keys
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.state import LimitCount, State, UniqueKeyHold
from tidemill.stores.transfers import TransferStore


class MemoryTransfers(MemoryPart, TransferStore):
    """outgoing, receive, withdraw, forget_definitions, outgoing_starts, receive_starts."""

    def outgoing(self, tenant: str, *, limit: int) -> list[TransferJob]:
        with self._open() as state:
            jobs = [job for job in state.jobs.values() if job.tenant == tenant and _leaves(state, job)]
            jobs.sort(
                key=lambda job: (
                    job.state is JobState.SCHEDULED,
                    state.seqs.get(job.id, 0),
                    job.run_at,
                    job.id,
                )
            )
            return [_transfer(state, job) for job in jobs[: max(limit, 0)]]

    def receive(
        self, jobs: Sequence[TransferJob], *, reason: str, now: datetime | None = None
    ) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            new = set()
            for item in jobs:
                if item.job.id in state.jobs:
                    continue
                job = replace(item.job, state=JobState.WAITING, reason=reason)
                key = job.unique_key
                if key is not None and unique_keys.holder(state, job.tenant, key, moment) is not None:
                    key = None
                    job = replace(job, unique_key=None)
                state.place(job)
                if key is not None:
                    ends = item.window_ends_at
                    window = None if ends is None else max(ends - job.created_at, timedelta(0))
                    state.rules[job.id] = UniqueHold(key, item.until_claimed, window)
                    state.holds[job.tenant, key] = UniqueKeyHold(job.id, live=True, window_ends_at=ends)
                new.add(job.id)
            return frozenset(new)

    def withdraw(self, jobs: Sequence[JobRow], *, tenant: str, reason: str | None = None) -> frozenset[UUID]:
        with self._open() as state:
            gone = set()
            for job in jobs:
                stored = state.find(job.id, tenant)
                if stored is None or not (_leaves(state, stored) or _waits(stored, reason)):
                    continue
                if _place(stored) != _place(job):
                    continue
                state.remove(job.id)
                unique_keys.drop(state, job.id)
                gone.add(job.id)
            return frozenset(gone)

    def forget_definitions(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        with self._open() as state:
            used = {row.definition_id for row in state.schedules.values()}
            gone = frozenset(
                id
                for id in ids
                if (row := state.definitions.get(id)) is not None and row.tenant == tenant and id not in used
            )
            for id in gone:
                del state.definitions[id]
                state.versions.pop(id, None)
            return gone

    def outgoing_starts(self, tenant: str, *, since: datetime) -> list[LimitStart]:
        with self._open() as state:
            counted = Counter[tuple[str, datetime]]()
            for job in state.jobs.values():
                if job.tenant != tenant or job.state not in ENDED:
                    continue
                for execution in state.executions.get(job.id, ()):
                    if execution.claimed_at is not None and execution.claimed_at > since:
                        counted.update((name, execution.claimed_at) for name in set(job.limits))
            return sorted(LimitStart(name, at, jobs) for (name, at), jobs in counted.items())

    def receive_starts(
        self, starts: Sequence[LimitStart], rules: Rules, *, now: datetime | None = None
    ) -> frozenset[str]:
        with self._open() as state:
            moment = self._at(now)
            wanted = rate_starts(starts, rules, moment)
            for name, begun in wanted.items():
                rule, stored = rule_of(name, rules), state.counted.get(name) or LimitCount()
                if window_of(rule) is not None:
                    at_hand = {at for at, _ in stored.begun}
                    new = [(start.begun_at, start.jobs) for start in begun if start.begun_at not in at_hand]
                    stored = replace(stored, begun=tuple(sorted([*stored.begun, *new])))
                full = max(filter(None, (stored.full_until_at, bucket_after(rule, begun))), default=None)
                state.counted[name] = replace(stored, full_until_at=full, changed_at=moment)
            return frozenset(wanted)


def _leaves(state: State, job: JobRow) -> bool:
    """Whether a job can be carried to another store."""
    return (
        job.state in (JobState.PENDING, JobState.SCHEDULED)
        and job.token == 0
        and job.id not in state.tied
        and not state.blobs.get(job.id)
        and not state.signals.get(job.id)
    )


def _waits(job: JobRow, reason: str | None) -> bool:
    """Whether a job is a copy that waits for this reason."""
    return reason is not None and job.state is JobState.WAITING and job.token == 0 and job.reason == reason


def _place(job: JobRow) -> tuple[object, ...]:
    """What must be unchanged when the job leaves."""
    return job.queue, job.priority, job.run_at, tuple(job.limits)


def _transfer(state: State, job: JobRow) -> TransferJob:
    rule = state.rules.get(job.id)
    hold = None if rule is None else state.holds.get((job.tenant, rule.key))
    if rule is None or hold is None or hold.job_id != job.id:
        return TransferJob(job)
    return TransferJob(job, rule.until_claimed, hold.window_ends_at)
