"""``app.archive``: archiving jobs, and reading archived ones.

A run copies a batch, verifies the copy, and only then deletes the jobs from the live tables.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidemill.client._base import async_twin
from tidemill.client.access import NAMED, note
from tidemill.client.enqueue.options import id_of
from tidemill.domain.archive_totals import LEASE, MOST_POLICIES, PolicySums, lease_data, read_sums
from tidemill.domain.cluster import holder_data
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.filters import ALL_TENANTS, Page, Sort
from tidemill.domain.job import Execution, JobRow, LogEntry
from tidemill.domain.retention import ArchivedJob, ArchivePolicy, believed, read_policies
from tidemill.errors import ArchiveRunning, BadFilter, BadSettings, JobNotFound, LeaseLost, StoreError
from tidemill.ids import new_id
from tidemill.stores.base import Store

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from tidemill.client.core import Client
    from tidemill.client.jobs.api import Jobs


@lru_cache(maxsize=3)
def _reader(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # imported here so that declaring a task does not load pydantic

    return TypeAdapter(kind)


def read_archived(kept: ArchivedJob) -> JobRow:
    """Return the job as it was when it left the live tables, with ``archived_at`` set."""
    found: JobRow = _reader(JobRow).validate_python(json.loads(kept.document)["job"])
    return replace(found, archived_at=kept.archived_at)


def read_executions(kept: ArchivedJob) -> list[Execution]:
    """Return every attempt at the job."""
    found: list[Execution] = _reader(list[Execution]).validate_python(json.loads(kept.document)["executions"])
    return found


def read_logs(kept: ArchivedJob) -> list[LogEntry]:
    """Return the log lines of the job, in order."""
    found: list[LogEntry] = _reader(list[LogEntry]).validate_python(json.loads(kept.document)["logs"])
    return found


_log = logging.getLogger("tidemill.client")

TTL = timedelta(seconds=60)
"""Time to live of the lease; much longer than one batch takes."""

_TRIES = 10


@dataclass(slots=True)
class PolicyRun:
    """Result of a run for one policy. ``error`` is the code of the error that ended it early."""

    policy: str
    tier: str
    archived: int = 0
    verified: int = 0
    failed: int = 0  #: copies that differ from what was written; their jobs stay
    changed: int = 0  #: jobs that were reopened during the run; they stay
    bytes: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    more: bool = False  #: whether more jobs are due
    took: timedelta = timedelta(0)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """Result of an archive run, in total and by policy; ``more`` is true if due jobs are left."""

    at: datetime
    archived: int
    failed: int
    bytes: int
    more: bool
    took: timedelta
    policies: list[PolicyRun]


class _Again(Exception):
    """The lease changed hands between two reads."""


class ArchiveRunner:
    """One run: acquires the lease, moves the due jobs, and releases the lease."""

    def __init__(self, client: Client, target: Store) -> None:
        self._source, self._target, self._clock = client.store(None), target, client.clock
        self._pin = client.pin
        self._holder: UUID = new_id()
        self._term = 0
        self._sums: dict[str, PolicySums] = {}
        self._began = self._clock.monotonic()

    def run(self, policies: Sequence[ArchivePolicy], *, limit: int, budget: timedelta) -> ArchiveRun:
        """Move at most ``limit`` jobs, for about ``budget``; a policy that fails does not stop the others."""
        until = self._began + budget.total_seconds()
        at = self._now()
        self._take()
        runs: list[PolicyRun] = []
        errors: list[StoreError] = []
        try:
            for policy in policies:
                run = PolicyRun(policy.name, policy.tier)
                runs.append(run)
                began = self._clock.monotonic()
                try:
                    self._follow(policy, run, limit - sum(each.archived for each in runs), until)
                except StoreError as error:
                    _log.warning("archive policy %s was not finished: %s", policy.name, error)
                    errors.append(error)
                    run.error, run.more = error.code, True
                    self._of(policy).errors += 1
                run.took = timedelta(seconds=self._clock.monotonic() - began)
                if run.verified or run.failed or run.error:
                    self._of(policy).ran(run.took)
        finally:
            self._give_back()
        if errors and len(errors) == len(runs):
            raise errors[0]
        return ArchiveRun(
            at=at,
            archived=sum(run.archived for run in runs),
            failed=sum(run.failed for run in runs),
            bytes=sum(run.bytes for run in runs),
            more=any(run.more for run in runs),
            took=self._took(),
            policies=runs,
        )

    # Moving ------------------------------------------------------------------------------------------------------------

    def _follow(self, policy: ArchivePolicy, run: PolicyRun, room: int, until: float) -> None:
        while True:
            if room <= 0 or self._clock.monotonic() >= until:
                one = replace(policy, batch=1)
                run.more = bool(self._source.archivable(one, now=self._pin))
                return
            batch = replace(policy, batch=min(policy.batch, room))
            due = self._source.archivable(batch, now=self._pin)
            if not due:
                return
            # (1)
            self._target.put_archive(due, now=self._pin)
            # (2)
            copies = self._target.archived([document.id for document in due], tenant=ALL_TENANTS)
            sound, doubtful = believed(due, copies)
            # (3)
            gone = self._let_go(policy, run, sound, doubtful)
            # (4)
            room -= gone
            if not gone:  # the remaining jobs would be found again in every batch
                run.more = True
                return
            if len(due) < batch.batch:
                return

    def _let_go(
        self, policy: ArchivePolicy, run: PolicyRun, sound: list[ArchivedJob], doubtful: list[ArchivedJob]
    ) -> int:
        """Delete the originals of verified copies, and record the totals and an audit entry."""
        sums, at = self._of(policy).copy(), self._now()
        with self._source.transaction():
            ids = self._source.forget(sound)
            gone = [document for document in sound if document.id in ids]
            sums.verified += len(sound)
            sums.failed += len(doubtful)
            sums.changed += len(sound) - len(gone)
            sums.moved(gone, at)
            self._renew({**self._sums, policy.name: sums}, at)
            if gone:
                facts: dict[str, object] = {
                    "policy": policy.name,
                    "tier": policy.tier,
                    "done": len(gone),
                    "skipped": len(sound) + len(doubtful) - len(gone),
                    "ids": [str(document.id) for document in gone[:NAMED]],
                }
                note(self._source, "jobs.archived", "jobs", ALL_TENANTS, after=facts, now=self._pin)
        self._sums[policy.name] = sums
        if doubtful:
            _log.error(
                "archive policy %s: %d copies differ from what was written; their jobs were kept; the first is %s",
                policy.name,
                len(doubtful),
                doubtful[0].id,
            )
        run.verified += len(sound)
        run.failed += len(doubtful)
        run.changed += len(sound) - len(gone)
        run.archived += len(gone)
        run.bytes += sum(len(document.document) for document in gone)
        for document in gone:
            run.statuses[document.state.value] = run.statuses.get(document.state.value, 0) + 1
        return len(gone)

    def _of(self, policy: ArchivePolicy) -> PolicySums:
        found = self._sums.get(policy.name)
        if found is None:
            if len(self._sums) >= MOST_POLICIES:  # drop the least recently used policy
                del self._sums[min(self._sums, key=lambda name: self._sums[name].last_at or "")]
            found = self._sums[policy.name] = PolicySums(policy.name, policy.tier)
        found.tier = policy.tier
        return found

    # The lease ---------------------------------------------------------------------------------------------------------

    def _take(self) -> None:
        """Acquire the lease and load the totals of earlier runs from it."""
        for _ in range(_TRIES):
            with contextlib.suppress(_Again):
                self._try()
                return
        raise _running()

    def _try(self) -> None:
        """Acquire the lease once, keeping its totals.

        A new term starts with empty metadata, so the totals are read first and written back in the same transaction.
        The term shows whether another holder came in between. In that case the totals may have changed, and the
        transaction is rolled back.
        """
        with self._source.transaction():
            found = [lease for lease in self._source.leases() if lease.name == LEASE]
            known = found[0] if found else None
            if known is not None and known.expires_at is not None and known.expires_at > self._now():
                raise _running()
            lease = self._source.acquire(LEASE, self._holder, ttl=TTL, now=self._pin)
            if lease is None:
                raise _running()
            if lease.term != (0 if known is None else known.term) + 1:
                raise _Again
            sums = {} if known is None else read_sums(known.metadata)
            self._term = lease.term
            self._renew(sums, self._now())
        self._sums = sums

    def _renew(self, sums: dict[str, PolicySums], at: datetime) -> None:
        facts = lease_data(sums, at=at, took=self._took())
        facts["holder"] = holder_data(f"{socket.gethostname()}-{os.getpid()}", ())
        kept = self._source.renew(LEASE, self._holder, self._term, ttl=TTL, metadata=facts, now=self._pin)
        if not kept:
            raise LeaseLost(
                "the archive lease was released or has expired; jobs archived before that stay archived",
                name=LEASE,
            )

    def _give_back(self) -> None:
        """Release the lease. If the store is unavailable, the lease expires by itself."""
        with contextlib.suppress(StoreError, LeaseLost), self._source.transaction():
            self._renew(self._sums, self._now())
            self._source.release(LEASE, self._holder, self._term)

    def _took(self) -> timedelta:
        return timedelta(seconds=self._clock.monotonic() - self._began)

    def _now(self) -> datetime:
        return self._pin or self._source.now()


def _running() -> ArchiveRunning:
    return ArchiveRunning("another archive run is in progress; wait until it has ended", name=LEASE)


_INSIDE = (
    "definition",
    "schedule",
    "reference",
    "tag",
    "metadata",
    "text",
)  # inside the document, which stores do not search

MOST = 5_000
"""Default maximum of jobs that one run moves."""

BUDGET = timedelta(seconds=20)
"""Default time budget of one run."""


class Archive:
    """The archived jobs of an app.

    Each method uses the current tenant unless it is called with another tenant, or with ``"*"`` for all tenants.
    """

    def __init__(self, client: Client, jobs: Jobs) -> None:
        self._client = client
        self._jobs = jobs

    @property
    def policies(self) -> tuple[ArchivePolicy, ...]:
        """The archive policies of ``App(archive=[…])``; the default archives every ended job after thirty days."""
        return self._client.policies

    def run(
        self,
        policies: Sequence[ArchivePolicy] | None = None,
        *,
        older_than: Duration | None = None,
        limit: int = MOST,
        budget: Duration = BUDGET,
        store: str | None = None,
    ) -> ArchiveRun:
        """Archive the jobs of all tenants that are due: at most ``limit`` jobs, for about as long as ``budget``.

        Each copy is read back before the original is deleted. ``older_than`` overrides the age in the policies.
        ``store`` names the store of the copies; the default is the store named ``archive`` if there is one. Raises
        ``ArchiveRunning`` during another run.
        """
        chosen = self.policies if policies is None else read_policies(policies)
        if older_than is not None:
            age = read_duration("older_than", older_than)
            chosen = tuple(replace(policy, max_age=age) for policy in chosen)
        span = read_duration("budget", budget)
        if limit < 1 or span <= timedelta(0):
            raise BadSettings("give a limit of 1 or more, and a budget longer than zero")
        done = ArchiveRunner(self._client, self._store(store)).run(chosen, limit=limit, budget=span)
        if done.archived:
            with contextlib.suppress(StoreError):  # a lost notification only delays the watchers
                self._client.store(None).notify(["ended"])
        return done

    arun = async_twin(run)

    def search(
        self,
        /,
        *,
        limit: int = 100,
        cursor: str | None = None,
        sort: str = "newest",
        store: str | None = None,
        **where: Any,
    ) -> Page[ArchivedJob]:
        """Return one page of the archived jobs that match.

        The conditions are those of ``app.jobs.list``, except for fields inside the document: ``definition``,
        ``schedule``, ``reference``, ``tag``, ``metadata`` and ``text``.
        """
        inside = [name for name in _INSIDE if where.get(name)]
        if inside:
            raise BadFilter(f"archived jobs cannot be found by {inside[0]}, which is inside the document")
        try:
            order = Sort(sort)
        except ValueError:
            raise BadFilter(f"sort is {sort!r}; choose newest or oldest") from None
        return self._store(store).search_archive(
            self._jobs._filter(where), sort=order, limit=limit, after=cursor
        )

    asearch = async_twin(search)

    def get(self, id: UUID | str, *, tenant: str | None = None, store: str | None = None) -> ArchivedJob:
        """Return the archived job with that id, or raise ``JobNotFound``."""
        wanted = id_of(id)
        found = (
            [] if wanted is None else self._store(store).archived([wanted], tenant=self._jobs._tenant(tenant))
        )
        if not found:
            raise JobNotFound(f"there is no archived job {id}", id=id)
        return found[0]

    aget = async_twin(get)

    def _store(self, name: str | None) -> Store:
        """Return the named store, by default the store named ``archive`` if there is one."""
        return self._client.store(name or ("archive" if "archive" in self._client.stores else None))
