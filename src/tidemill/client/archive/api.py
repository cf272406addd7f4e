"""``app.archive``: archiving ended jobs, and reading archived ones.

Every method has an asynchronous twin with the prefix ``a``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from tidemill.client.archive.run import ArchiveRun, ArchiveRunner
from tidemill.client.core import Client
from tidemill.client.enqueue.options import id_of
from tidemill.client.jobs.api import Jobs
from tidemill.domain.filters import Page, Sort
from tidemill.domain.retention import ArchivedJob, ArchivePolicy, read_policies
from tidemill.errors import BadFilter, BadSettings, JobNotFound, StoreError
from tidemill.stores.base import Store

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

    def __init__(self, client: Client) -> None:
        self._client = client
        self._jobs = Jobs(client)

    @property
    def policies(self) -> tuple[ArchivePolicy, ...]:
        """The archive policies of ``App(archive=[…])``; the default archives every ended job after thirty days."""
        return self._client.policies

    def run(
        self,
        policies: Sequence[ArchivePolicy] | None = None,
        *,
        older_than: timedelta | None = None,
        limit: int = MOST,
        budget: timedelta = BUDGET,
        store: str | None = None,
    ) -> ArchiveRun:
        """Archive the jobs of all tenants that are due: at most ``limit`` jobs, for about as long as ``budget``.

        Each copy is read back before the original is deleted. ``older_than`` overrides the age in the policies.
        ``store`` names the store of the copies; the default is the store named ``archive`` if there is one. Raises
        ``ArchiveRunning`` during another run.
        """
        chosen = self.policies if policies is None else read_policies(policies)
        if older_than is not None:
            chosen = tuple(replace(policy, max_age=older_than) for policy in chosen)
        if limit < 1 or budget <= timedelta(0):
            raise BadSettings("give a limit of 1 or more, and a budget longer than zero")
        done = ArchiveRunner(self._client, self._store(store)).run(chosen, limit=limit, budget=budget)
        if done.archived:
            with contextlib.suppress(StoreError):  # a lost notification only delays the watchers
                self._client.store(None).notify(["ended"])
        return done

    async def arun(
        self,
        policies: Sequence[ArchivePolicy] | None = None,
        *,
        older_than: timedelta | None = None,
        limit: int = MOST,
        budget: timedelta = BUDGET,
        store: str | None = None,
    ) -> ArchiveRun:
        done: ArchiveRun = await self._client.in_thread(
            lambda: self.run(policies, older_than=older_than, limit=limit, budget=budget, store=store)
        )
        return done

    def search(
        self,
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

    async def asearch(self, **where: Any) -> Page[ArchivedJob]:
        found: Page[ArchivedJob] = await self._client.in_thread(lambda: self.search(**where))
        return found

    def get(self, id: UUID | str, *, tenant: str | None = None, store: str | None = None) -> ArchivedJob:
        """Return the archived job with that id, or raise ``JobNotFound``."""
        wanted = id_of(id)
        found = (
            [] if wanted is None else self._store(store).archived([wanted], tenant=self._jobs._tenant(tenant))
        )
        if not found:
            raise JobNotFound(f"there is no archived job {id}", id=id)
        return found[0]

    async def aget(
        self, id: UUID | str, *, tenant: str | None = None, store: str | None = None
    ) -> ArchivedJob:
        found: ArchivedJob = await self._client.in_thread(lambda: self.get(id, tenant=tenant, store=store))
        return found

    def _store(self, name: str | None) -> Store:
        """Return the named store, by default the store named ``archive`` if there is one."""
        return self._client.store(name or ("archive" if "archive" in self._client.stores else None))
