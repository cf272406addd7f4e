"""``app.archive``: looking into what has left the live tables. Every verb has a twin that is awaited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.client.core import Client
from tidemill.client.jobs import Jobs
from tidemill.client.options import id_of
from tidemill.domain.filters import Page, Sort
from tidemill.domain.retention import ArchivedJob
from tidemill.errors import BadFilter, JobNotFound
from tidemill.stores.base import Store

_INSIDE = ("reference", "tag", "metadata")  # in the document, where no store looks


class Archive:
    """The archived jobs of an app. The tenant is the surrounding one unless another, or ``"*"`` for all, is given."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._jobs = Jobs(client)

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
        the document: ``reference``, ``tag`` and ``metadata``.
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


def archived_document(found: ArchivedJob) -> dict[str, object]:
    """One archived job, with all that was written about it."""
    content: Mapping[str, Any] = json.loads(found.document)
    return {
        "id": str(found.id),
        "task": found.task,
        "status": found.state.value,
        "tenant": found.tenant,
        "queue": found.queue,
        "created_at": _instant(found.created_at),
        "finished_at": _instant(found.finished_at),
        "archived_at": _instant(found.archived_at),
        "correlation_id": found.correlation_id or str(found.id),
        "parent_id": None if found.parent_id is None else str(found.parent_id),
        "tier": found.tier,
        "policy": found.policy,
        "sound": found.sound,
        "document": content,
    }


def _instant(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
