"""Transfers of jobs, definitions and counted starts between stores, in the SQL store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.job import JobRow
from tidemill.domain.limits import Rules, gate_of, names_of, rule_of, window_of
from tidemill.domain.states import JobState
from tidemill.domain.transfers import LimitStart, TransferJob, bucket_after, rate_starts
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.job_rows import at_most, dump_details
from tidemill.stores.transfers import TransferStore

_CARRIED = (JobState.PENDING, JobState.SCHEDULED)


class SqlTransfers(SqlPart, TransferStore):
    """outgoing, receive, withdraw, forget_definitions, outgoing_starts, receive_starts."""

    def outgoing(self, tenant: str, *, limit: int) -> list[TransferJob]:
        with self._db.transaction():
            rows = self._db.run("outgoing", {"tenant": tenant, "limit": at_most(limit)})
            if not rows:
                return []
            takes = {"ids": [row[0] for row in rows], "tenant": tenant}
            jobs = {job.id: job for job in self._jobs(self._db.run("get", takes))}
        return [
            TransferJob(jobs[id], until_claimed, window_ends_at)
            for id, until_claimed, window_ends_at in rows
            if id in jobs and jobs[id].state in _CARRIED and jobs[id].token == 0
        ]

    def receive(
        self, jobs: Sequence[TransferJob], *, reason: str, now: datetime | None = None
    ) -> frozenset[UUID]:
        if not jobs:
            return frozenset()
        columns: dict[str, list[Any]] = {
            "id": [item.job.id for item in jobs],
            "tenant": [item.job.tenant for item in jobs],
            "queue": [item.job.queue for item in jobs],
            "task": [item.job.task for item in jobs],
            "priority": [item.job.priority for item in jobs],
            "max_attempts": [item.job.max_attempts for item in jobs],
            "timeout": [item.job.timeout for item in jobs],
            "run_at": [item.job.run_at for item in jobs],
            "created_at": [item.job.created_at for item in jobs],
            "expires_at": [item.job.expires_at for item in jobs],
            "unique_key": [item.job.unique_key for item in jobs],
            "until_claimed": [item.until_claimed for item in jobs],
            "window_ends_at": [item.window_ends_at for item in jobs],
            "limits": [gate_of(item.job.limits) or None for item in jobs],
            "details": [dump_details(item.job.details) for item in jobs],
            "args": [item.job.args for item in jobs],
        }
        rows = self._db.run("receive", {"now": now, "reason": reason}, columns)
        return frozenset(row[0] for row in rows)

    def withdraw(self, jobs: Sequence[JobRow], *, tenant: str, reason: str | None = None) -> frozenset[UUID]:
        if not jobs:
            return frozenset()
        columns: dict[str, list[Any]] = {
            "id": [job.id for job in jobs],
            "queue": [job.queue for job in jobs],
            "priority": [job.priority for job in jobs],
            "run_at": [job.run_at for job in jobs],
            "limits": [gate_of(job.limits) or None for job in jobs],
        }
        rows = self._db.run("withdraw", {"tenant": tenant, "reason": reason}, columns)
        return frozenset(row[0] for row in rows)

    def forget_definitions(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        if not ids:
            return frozenset()
        rows = self._db.run("forget_definitions", {"tenant": tenant, "ids": list(ids)})
        return frozenset(row[0] for row in rows)

    def outgoing_starts(self, tenant: str, *, since: datetime) -> list[LimitStart]:
        rows = self._db.run("outgoing_starts", {"tenant": tenant, "since": since})
        counted = Counter[tuple[str, datetime]]()
        for limits, begun_at, jobs in rows:
            for name in set(names_of(limits)):
                counted[name, begun_at] += jobs
        return sorted(LimitStart(name, at, jobs) for (name, at), jobs in counted.items())

    def receive_starts(
        self, starts: Sequence[LimitStart], rules: Rules, *, now: datetime | None = None
    ) -> frozenset[str]:
        if not starts:
            return frozenset()
        with self._db.transaction():
            wanted = rate_starts(starts, rules, self._time(now))
            names = sorted(wanted)
            if not names:
                return frozenset()
            self._db.run("open_uses", {"now": now, "names": names})
            rows = self._db.run("lock_uses", {"now": now, "names": names})
            until = {name: full_until_at for name, _, full_until_at, *_ in rows}
            begun = [
                start
                for name in names
                if window_of(rule_of(name, rules)) is not None
                for start in wanted[name]
            ]
            columns: dict[str, list[Any]] = {
                "name": [start.name for start in begun],
                "begun_at": [start.begun_at for start in begun],
                "jobs": [start.jobs for start in begun],
            }
            self._db.run("receive_starts", None, columns)
            buckets: dict[str, list[Any]] = {
                "name": names,
                "jobs": [0] * len(names),
                "full_until_at": [
                    max(
                        filter(None, (until[name], bucket_after(rule_of(name, rules), wanted[name]))),
                        default=None,
                    )
                    for name in names
                ],
            }
            self._db.run("count_uses", {"now": now}, buckets)
            return frozenset(names)
