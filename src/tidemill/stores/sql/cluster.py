"""Workers and leases in the SQL store."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.cluster import CancelRequest, Heartbeat, Lease, Pulse, Worker, WorkerState
from tidemill.domain.job import Claim
from tidemill.domain.worker_reports import Scale, ScaleRequest, SlotCounts, WorkerReport
from tidemill.stores.base import LeaseStore, Lock, RecoveryStore, WorkerStore
from tidemill.stores.requests import NO_REPORTS, RequestStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import Row
from tidemill.stores.sql.job_rows import dump, load_claim, load_worker

COUNTS_ENDS = 13
"""The schema version from which on workers count ends; older ones leave theirs at 0."""


class SqlWorkers(SqlPart, WorkerStore, RequestStore, RecoveryStore):
    """register, beat, heartbeats, declare_gone, retire, drain, workers, requests to workers, orphans, overdue, sweep."""

    def register(self, worker: Worker, *, lease: timedelta, now: datetime | None = None) -> Worker:
        takes = {
            "now": now,
            "id": worker.id,
            "name": worker.name,
            "host": worker.host,
            "pid": worker.pid,
            "node": worker.node,
            "version": worker.version,
            "queues": dump(worker.queues),
            "tasks": dump(worker.tasks),
            "concurrency": worker.concurrency,
            "state": worker.state,
            "lease": lease,
            "schema_version": COUNTS_ENDS,
            "supervisor": worker.supervisor,
            "place": worker.place,
            "report": None if worker.report is None else worker.report.to_text(),
        }
        started_at, expires_at = self._db.run("register", takes)[0]
        return replace(
            worker, started_at=started_at, beat_at=started_at, expires_at=expires_at, beats=0, paused=False
        )

    def beat(
        self,
        ids: Collection[UUID],
        *,
        lease: timedelta,
        reports: Mapping[UUID, WorkerReport] = NO_REPORTS,
        now: datetime | None = None,
    ) -> Pulse:
        if not ids:
            return Pulse(frozenset(), frozenset(), [])
        takes: dict[str, object] = {"now": now, "ids": list(ids), "lease": lease}
        if reports:
            takes["reporters"] = list(reports)
            takes["slots"] = [report.slots.total for report in reports.values()]
            takes["reports"] = [report.to_text() for report in reports.values()]
        rows = self._db.run("beat", takes)
        cancels = [
            CancelRequest(UUID(id), token, row[0], reason)
            for row in rows
            if row[2] is not None
            for id, token, reason in json.loads(row[2])
        ]
        return Pulse(
            frozenset(row[0] for row in rows),
            frozenset(row[0] for row in rows if row[1] == WorkerState.DRAINING),
            sorted(cancels),
            frozenset(row[0] for row in rows if row[3]),
            {row[0]: _request(row[4]) for row in rows if row[4] is not None},
        )

    def heartbeats(self, *, now: datetime | None = None) -> list[Heartbeat]:
        return [Heartbeat(*row) for row in self._db.run("heartbeats", {"now": now})]

    def declare_gone(
        self, seen: Collection[tuple[UUID, int]], *, now: datetime | None = None
    ) -> frozenset[UUID]:
        if not seen:
            return frozenset()
        takes = {"now": now, "ids": [id for id, _ in seen], "beats": [beats for _, beats in seen]}
        return frozenset(row[0] for row in self._db.run("declare_gone", takes))

    def retire(self, ids: Collection[UUID], *, crashed: bool = False, now: datetime | None = None) -> None:
        if ids:
            self._db.run("retire", {"now": now, "ids": list(ids)}, flags=() if crashed else ("left",))

    def drain(self, ids: Collection[UUID]) -> frozenset[UUID]:
        return frozenset(row[0] for row in self._db.run("drain", {"ids": list(ids)})) if ids else frozenset()

    def workers(self) -> list[Worker]:
        return [load_worker(row) for row in self._db.run("workers")]

    def pause_workers(self, ids: Collection[UUID]) -> frozenset[UUID]:
        rows = self._db.run("pause_workers", {"ids": list(ids)}) if ids else []
        return frozenset(row[0] for row in rows)

    def resume_workers(self, ids: Collection[UUID]) -> frozenset[UUID]:
        rows = self._db.run("resume_workers", {"ids": list(ids)}) if ids else []
        return frozenset(row[0] for row in rows)

    def scale(self, supervisor: UUID, scale: Scale) -> bool:
        takes = {"supervisor": supervisor, "processes": scale.processes, **scale.slots._asdict()}
        return bool(self._db.run("scale", takes))

    def orphans(self, limit: int) -> list[Claim]:
        return [load_claim(row) for row in self._db.run("orphans", {"limit": limit})]

    def overdue(self, limit: int, *, now: datetime | None = None) -> list[Claim]:
        return [load_claim(row) for row in self._db.run("overdue", {"now": now, "limit": limit})]

    def sweep(self, older_than: timedelta, *, now: datetime | None = None) -> int:
        return len(self._db.run("sweep", {"now": now, "older_than": older_than}))


class SqlLeases(SqlPart, LeaseStore):
    """acquire, renew, release, leases, hold."""

    def acquire(
        self,
        name: str,
        holder: UUID,
        *,
        ttl: timedelta,
        stale: tuple[int, datetime] | None = None,
        now: datetime | None = None,
    ) -> Lease | None:
        term, beat_at = stale or (None, None)
        takes = {"now": now, "name": name, "holder": holder, "ttl": ttl, "term": term, "beat_at": beat_at}
        rows = self._db.run("acquire", takes)
        return _lease(rows[0]) if rows else None

    def renew(
        self,
        name: str,
        holder: UUID,
        term: int,
        *,
        ttl: timedelta,
        metadata: Mapping[str, object] | None = None,
        now: datetime | None = None,
    ) -> bool:
        text = None if metadata is None else dump(dict(metadata))
        takes = {"now": now, "name": name, "holder": holder, "term": term, "ttl": ttl, "metadata": text}
        return bool(self._db.run("renew", takes))

    def release(self, name: str, holder: UUID, term: int) -> bool:
        return bool(self._db.run("release", {"name": name, "holder": holder, "term": term}))

    def leases(self) -> list[Lease]:
        return [_lease(row) for row in self._db.run("leases")]

    def hold(self, name: str) -> Lock | None:
        return self._db.hold(name)


def _request(text: str) -> ScaleRequest:
    number, processes, *slots = json.loads(text)
    return ScaleRequest(number, Scale(processes, SlotCounts(*slots)))


def _lease(row: Row) -> Lease:
    name, holder, term, acquired_at, beat_at, expires_at, metadata = row
    return Lease(name, holder, term, acquired_at, beat_at, expires_at, json.loads(metadata))
