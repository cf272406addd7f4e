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

from tidemill.archive.run import ArchiveRun, ArchiveRunner
from tidemill.client._base import async_twin
from tidemill.client.access import who
from tidemill.client.enqueue.options import id_of
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.filters import Page, Sort
from tidemill.domain.job import Execution, JobRow, LogEntry
from tidemill.domain.retention import ArchivedJob, ArchivePolicy, read_policies
from tidemill.errors import BadFilter, BadSettings, JobNotFound, StoreError
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
        if store is not None:
            chosen = tuple(policy if policy.to is None else replace(policy, to=store) for policy in chosen)
        client = self._client
        done = ArchiveRunner(client.store(None), client.place, client.clock, by=who(), pin=client.pin).run(
            chosen, limit=limit, budget=span
        )
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
