"""``app.archive``: archiving jobs, and reading archived ones.

A run copies a batch, verifies the copy, and only then deletes the jobs from the live tables.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import UUID

from tidemill.archive.duty import RetentionDuty
from tidemill.archive.erasure import Erased, Erasure
from tidemill.archive.export import check_export, write_export
from tidemill.archive.places import ArchivePlace, FileCatalogue
from tidemill.archive.restoration import Restored, restore
from tidemill.archive.run import ArchivedBatch, ArchiveRun, ArchiveRunner
from tidemill.archive.status import RetentionStatus, retention_choice, retention_status, retention_switch
from tidemill.archive.tiers import ALL, TierChoice, archive_reader, archive_readers, read_tiers
from tidemill.client._base import async_twin
from tidemill.client.access import who
from tidemill.client.enqueue.options import id_of
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.filters import ALL_TENANTS, Page, Sort
from tidemill.domain.merged_pages import MergedReader
from tidemill.domain.retention import LIVE_TIER, ArchivedJob, ArchivePolicy, read_policies
from tidemill.domain.retention_choice import RetentionChoice
from tidemill.errors import BadFilter, BadSettings, JobNotFound, StoreError
from tidemill.tasks.events import Event

if TYPE_CHECKING:
    from tidemill.client.core import Client
    from tidemill.client.jobs.api import Jobs


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
        """The policies in effect: those of ``App(retention=…)``, then the defaults, which archive after thirty days.

        Settings of the store may change them.
        """
        return retention_switch(self._client).policies

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
        return RetentionDuty(client.store(None), client.place, client.clock, client.retention, self._publish)

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

    # Reading ---------------------------------------------------------------------------------------------------------

    def search(
        self,
        /,
        *,
        limit: int = 100,
        cursor: str | None = None,
        sort: str = "newest",
        tiers: str | Collection[str] = ALL,
        store: str | None = None,
        **where: Any,
    ) -> Page[ArchivedJob]:
        """Return one page of the archived jobs that match, with the conditions of ``app.jobs.list``.

        Tables and files are merged by id. ``store`` names one of them, by its name or its URL, and ``tiers`` some tiers.
        Definition, schedule, reference, tag, metadata and text are inside the documents: for them a page reads up to
        2,000 documents that match the other conditions, so it may hold fewer jobs than ``limit`` and have a next page.
        """
        try:
            order = Sort(sort)
        except ValueError:
            raise BadFilter(f"sort is {sort!r}; choose newest or oldest") from None
        choice, wanted = read_tiers(tiers), self._jobs._filter(where)
        if store is None:
            readers = archive_readers(self._client.archive_places(choice), wanted, choice, order)
        else:
            narrowed = replace(wanted, tiers=choice.names)
            readers = [archive_reader(self._client.place(store), narrowed, order)]
        return MergedReader(readers, lambda document: document.id, order).page(limit, cursor)

    asearch = async_twin(search)

    def stream(self, *, batch: int = 100, sort: str = "oldest", **where: Any) -> Iterator[ArchivedJob]:
        """Yield every archived job that matches, reading in batches; the arguments are those of ``search``."""
        cursor: str | None = None
        while True:
            page = self.search(limit=batch, cursor=cursor, sort=sort, **where)
            yield from page.items
            if page.next is None:
                return
            cursor = page.next

    def _stream_of(self, place: ArchivePlace, where: Mapping[str, Any]) -> Iterator[ArchivedJob]:
        """Yield the jobs of one place that match."""
        read, cursor = archive_reader(place, self._jobs._filter(where), Sort.OLDEST), None
        while True:
            page = read(500, cursor)
            yield from page.items
            if page.next is None:
                return
            cursor = page.next

    def get(self, id: UUID | str, *, tenant: str | None = None, store: str | None = None) -> ArchivedJob:
        """Return the archived job with that id, or raise ``JobNotFound``."""
        wanted, owner = id_of(id), self._jobs._tenant(tenant)
        copy: ArchivedJob | None = None
        if wanted is not None and store is not None:
            copy = next(iter(self._client.place(store).get([wanted], tenant=owner)), None)
        elif wanted is not None:
            copy = self._client.archived(wanted, tenant=owner, store=None)
        if copy is None:
            raise JobNotFound(f"there is no archived job {id}", id=id)
        return copy

    aget = async_twin(get)

    def export(self, target: str | Path | IO[bytes], /, *, format: str = "jsonl", **where: Any) -> int:
        """Write the archived jobs that match to a file, in batches of 500, the oldest first. Returns their number.

        ``format`` is ``jsonl`` (one JSON object per line, with the whole document) or ``parquet``.
        """
        check_export(format)
        jobs = self.stream(batch=500, **where)
        if isinstance(target, str | Path):
            with Path(target).open("wb") as file:
                return write_export(jobs, file, format)
        return write_export(jobs, target, format)

    aexport = async_twin(export)

    # Changes ---------------------------------------------------------------------------------------------------------

    def restore(
        self,
        ids: Iterable[UUID | str],
        *,
        retry: bool = False,
        tenant: str | None = None,
        store: str | None = None,
    ) -> Restored:
        """Put archived jobs with their executions and logs back into the live tables, unless they are there.

        The archive keeps its copies. The next archive run moves the jobs again unless ``retry`` gives them another chain
        of attempts. Restored jobs do not take their unique keys again until they are retried.
        """
        wanted = [found for id in ids if (found := id_of(id)) is not None]
        client = self._client if store is None else self._client.at(store)
        return restore(client, wanted, tenant=self._jobs._tenant(tenant), store=store, retry=retry, by=who())

    arestore = async_twin(restore)

    def erase(self, /, *, dry_run: bool = False, store: str | None = None, **where: Any) -> Erased:
        """Erase jobs in every tier, by ``ids``, ``reference``, ``metadata``, ``tenant`` or other conditions.

        Rows, executions, logs and documents are deleted, and files with such documents are rewritten. The audit log keeps
        the ids and the counts. Raises ``IllegalTransition`` and erases nothing while one of the jobs has not ended:
        cancel it first. ``dry_run`` only counts.
        """
        wanted = self._jobs._filter(where, store)
        for name, value in where.items():
            # Most likely an unset variable, which must not match every job.
            if isinstance(value, list | tuple | set | frozenset | dict | str) and not value:
                raise BadFilter(f"{name} is empty; give one, or leave it out", field=name)
        if not wanted.narrows and where.get("tenant") in (None, ALL_TENANTS):
            raise BadFilter("erase needs ids, a reference, metadata, a tenant or another condition")
        client = self._client if store is None else self._client.at(store)
        erasure = Erasure(client, client.store(None), tenant=wanted.tenant, by=who())
        erasure.add_live(job.row for job in self._jobs.stream(batch=500, store=store, **where))
        for place in client.archive_places():
            erasure.add_archived(self._stream_of(place, where))
        return erasure.run(dry_run=dry_run, flows=not wanted.narrows)

    aerase = async_twin(erase)

    def rebuild(self, store: str | None = None) -> dict[str, int]:
        """Rebuild the catalogue of archive files from their manifests; return the number of files of each place.

        Also deletes files that a crashed run left without a manifest more than a day ago. ``store`` names one place.
        """
        places = (
            [self._client.place(store)]
            if store is not None
            else self._client.archive_places(TierChoice(files=True))
        )
        files = [place for place in places if isinstance(place, FileCatalogue)]
        if store is not None and not files:
            raise BadSettings(f"store {store!r} is a database; only archive files have a catalogue")
        return {place.url: place.rebuild() for place in files}

    arebuild = async_twin(rebuild)

    def _publish(self, batch: ArchivedBatch) -> None:
        """Notify watchers, and publish one event for each job that left its tier."""
        client, policy = self._client, batch.policy
        with contextlib.suppress(StoreError):  # a lost notification only delays the watchers
            client.store(None).notify(["ended"])
        store = client.store(None)
        if not client.events.wanted and not store.subscriptions:
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
            event = Event(name, batch.at, job.id, job.task, job.tenant, job.state, data)
            client.events.publish(event)
            client.record_event(event)
