"""``app.archive``: what leaves the live tables, and looking into what has left. Every verb has a twin that is awaited."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from tidemill.client.archiving import ArchiveRun, Archiving
from tidemill.client.core import Client
from tidemill.client.jobs import Jobs
from tidemill.client.options import id_of
from tidemill.domain.filters import Page, Sort
from tidemill.domain.retention import ArchivedJob, ArchivePolicy, read_policies
from tidemill.errors import BadFilter, BadSettings, JobNotFound, StoreError
from tidemill.stores.base import Store

_INSIDE = ("reference", "tag", "metadata", "text")  # in the document, where no store looks

MOST = 5_000
"""Jobs that one run moves unless told otherwise."""

BUDGET = timedelta(seconds=20)
"""How long one run goes on unless told otherwise."""


class Archive:
    """The archived jobs of an app. The tenant is the surrounding one unless another, or ``"*"`` for all, is given."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._jobs = Jobs(client)

    @property
    def policies(self) -> tuple[ArchivePolicy, ...]:
        """What is archived, and when: those given as ``App(archive=[…])``, else every end after thirty days."""
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
        """Archive what is due now, of all tenants: at most ``limit`` jobs, for about as long as ``budget``.

        Each copy is read back before its original goes. ``older_than`` stands for the age that the policies say, ``store`` for
        where the copies go: the one named ``archive`` where there is one. Raises ``ArchiveRunning`` while another run is under way.
        """
        chosen = self.policies if policies is None else read_policies(policies)
        if older_than is not None:
            chosen = tuple(replace(policy, max_age=older_than) for policy in chosen)
        if limit < 1 or budget <= timedelta(0):
            raise BadSettings("give a limit of 1 or more, and a budget longer than nothing")
        done = Archiving(self._client, self._store(store)).run(chosen, limit=limit, budget=budget)
        if done.archived:
            with contextlib.suppress(StoreError):  # a hint that fails has done no harm
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
        """One page of the archived jobs that match; the conditions are those of ``app.jobs.list`` but for what is kept inside
        the document: ``reference``, ``tag``, ``metadata`` and ``text``.
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
        """The archived job of that id, or ``JobNotFound``."""
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
        """Archived jobs are in the store named ``archive`` where there is one."""
        return self._client.store(name or ("archive" if "archive" in self._client.stores else None))
