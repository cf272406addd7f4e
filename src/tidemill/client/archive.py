"""``app.archive``: archiving jobs, and reading archived ones.

A run copies a batch, verifies the copy, and only then deletes the jobs from the live tables.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidemill.archive.duty import RetentionDuty
from tidemill.archive.run import ArchivedBatch, ArchiveRun, ArchiveRunner
from tidemill.client._base import async_twin
from tidemill.client.access import who
from tidemill.client.enqueue.options import id_of
from tidemill.client.retention import RetentionStatus, retention_choice, retention_status
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.filters import Page, Sort
from tidemill.domain.job import Execution, JobRow, LogEntry
from tidemill.domain.retention import LIVE_TIER, ArchivedJob, ArchivePolicy, read_policies
from tidemill.domain.retention_choice import RetentionChoice
from tidemill.errors import BadFilter, BadSettings, JobNotFound, StoreError
from tidemill.stores.base import Store
from tidemill.tasks.events import Event

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
        """The policies in effect: those of ``App(retention=…)``, then the defaults, which archive after thirty days."""
        return self._client.policies

    def status(self) -> RetentionStatus:
        """Return whether retention is on, its latest and next run, and the policies with their totals."""
        return retention_status(self._client)

    astatus = async_twin(status)

    def explain(self, id: UUID | str, *, tenant: str | None = None) -> RetentionChoice:
        """Explain which policy governs a job: which were considered, when the job is due, and where it goes."""
        wanted = id_of(id)
        if wanted is None:
            raise JobNotFound(f"there is no job {id}", id=id)
        return retention_choice(self._client, wanted, tenant=self._jobs._tenant(tenant))

    aexplain = async_twin(explain)

    def duty(self) -> RetentionDuty:
        """Return the retention duty of this app, which its workers perform."""
        client = self._client
        return RetentionDuty(
            client.store(None), client.place, client.clock, client.retention, client.policies, self._publish
        )

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

        Each copy is read back before the original is deleted. ``older_than`` overrides the age in the policies of
        the live tables.
        ``store`` names the store of the copies; the default is the store named ``archive`` if there is one. Raises
        ``ArchiveRunning`` during another run.
        """
        chosen = self.policies if policies is None else read_policies(policies)
        if older_than is not None:
            age = read_duration("older_than", older_than)
            chosen = tuple(
                replace(policy, max_age=age) if policy.from_tier is None else policy for policy in chosen
            )
        span = read_duration("budget", budget)
        if limit < 1 or span <= timedelta(0):
            raise BadSettings("give a limit of 1 or more, and a budget longer than zero")
        if store is not None:
            chosen = tuple(policy if policy.to is None else replace(policy, to=store) for policy in chosen)
        client = self._client
        runner = ArchiveRunner(
            client.store(None), client.place, client.clock, by=who(), pin=client.pin, done=self._publish
        )
        return runner.run(chosen, limit=limit, budget=span)

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

    def _publish(self, batch: ArchivedBatch) -> None:
        """Notify watchers, and publish one event for each job that left its tier."""
        client, policy = self._client, batch.policy
        with contextlib.suppress(StoreError):  # a lost notification only delays the watchers
            client.store(None).notify(["ended"])
        if not client.events.wanted:
            return
        common: dict[str, object] = {
            "policy": policy.name,
            "from_tier": policy.from_tier or LIVE_TIER,
            "to": policy.to,
            "tier": None if policy.to is None else policy.tier,
            "archived_at": batch.at,
        }
        name = "job.purged" if policy.to is None else "job.archived"
        for job in batch.documents:
            data = common | {"age": batch.at - job.finished_at}
            client.events.publish(Event(name, batch.at, job.id, job.task, job.tenant, job.state, data))

    def _store(self, name: str | None) -> Store:
        """Return the named store, by default the store named ``archive`` if there is one."""
        return self._client.store(name or ("archive" if "archive" in self._client.stores else None))
