"""Erasure of jobs in every tier, for good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidemill.archive.places import StorePlace
from tidemill.client.access import NAMED, note
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.retention import LIVE_TIER
from tidemill.domain.states import ENDED
from tidemill.errors import BadFilter, IllegalTransition

if TYPE_CHECKING:
    from tidemill.client.archive import Archive
    from tidemill.client.core import Client
    from tidemill.client.jobs.api import Jobs

BATCH = 500


@dataclass(slots=True)
class Erased:
    """Result of an erasure: the number of jobs, and their copies by tier. A job with two copies counts in both tiers."""

    jobs: int = 0
    tiers: dict[str, int] = field(default_factory=dict)
    dry_run: bool = False


class Erasure:
    """One erasure: finds the jobs first, refuses those that have not ended, then deletes batch by batch."""

    def __init__(
        self, client: Client, jobs: Jobs, archive: Archive, where: Mapping[str, Any], store: str | None
    ) -> None:
        self._client, self._jobs, self._archive, self._where = client, jobs, archive, dict(where)
        self._live = client.store(store)
        self._store = store
        self._tenant = jobs._tenant(where.get("tenant"))
        self._check()

    def _check(self) -> None:
        wanted = self._jobs._filter(self._where, self._store)
        for name, value in self._where.items():
            if isinstance(value, list | tuple | set | frozenset | dict | str) and not value:
                raise BadFilter(f"{name} is empty; give one, or leave it out", field=name)
        named = self._where.get("tenant") not in (None, ALL_TENANTS)
        if not wanted.narrows and not named:
            raise BadFilter("erase needs ids, a reference, metadata, a tenant or another condition")

    def run(self, *, dry_run: bool) -> Erased:
        """Find the jobs and, without ``dry_run``, erase them."""
        done = Erased(dry_run=dry_run)
        ids: dict[UUID, None] = {}
        for job in self._jobs.stream(batch=BATCH, store=self._store, **self._where):
            if job.status not in ENDED:
                raise IllegalTransition(
                    f"cannot erase job {job.id}: it is {job.status}; cancel it first", id=job.id
                )
            ids[job.id] = None
            done.tiers[LIVE_TIER] = done.tiers.get(LIVE_TIER, 0) + 1
        for copy in self._copies():
            ids[copy[0]] = None
            done.tiers[copy[1]] = done.tiers.get(copy[1], 0) + 1
        done.jobs = len(ids)
        if dry_run or not ids:
            return done
        left = iter(ids)
        while batch := list(islice(left, BATCH)):
            self._erase(batch)
        for store in self._stores():
            store.scrub()
        self._live.notify(["ended", "change"])
        return done

    def _copies(self) -> Iterator[tuple[UUID, str]]:
        """The id and the tier of every copy, place by place, so that several copies of a job are all found."""
        for place in self._client.archive_places():
            for document in self._archive._stream_of(place, self._where):
                yield document.id, document.tier

    def _erase(self, ids: list[UUID]) -> None:
        """Erase one batch. A crash in between leaves copies that the same call finds and erases again."""
        self._refuse_reopened(ids)
        with self._live.transaction():
            gone = self._live.delete(ids, tenant=self._tenant)
            archived = self._live.erase_archived(ids, tenant=self._tenant)
            after = {
                "done": len(ids),
                "live": len(gone),
                "archived": len(archived),
                "ids": [str(id) for id in ids[:NAMED]],
            }
            note(self._live, "jobs.erased", "jobs", self._tenant, after=after, now=self._client.pin)
        for place in self._client.archive_places():
            if place.store is not self._live:
                place.erase(ids, tenant=self._tenant)

    def _refuse_reopened(self, ids: Iterable[UUID]) -> None:
        for job in self._live.get(list(ids), tenant=self._tenant):
            if job.state not in ENDED:
                raise IllegalTransition(
                    f"cannot erase job {job.id}: it is {job.state} again; cancel it first", id=job.id
                )

    def _stores(self) -> list[Any]:
        stores = [self._live]
        for place in self._client.archive_places():
            if isinstance(place, StorePlace) and not any(place.store is other for other in stores):
                stores.append(place.store)  # type: ignore[arg-type]
        return stores
