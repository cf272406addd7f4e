"""One search over live jobs and archived ones: pages of all tiers, merged by id.

Every source lists jobs in the order of their ids, so one cursor, the last id, serves them all. Of a job that two tiers hold,
the first one counts: the live tables come first, then the archive tables, then the files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from tidemill.archive.contents import read_archived
from tidemill.archive.places import ArchivePlace
from tidemill.domain.filters import JobFilter, Page, Sort, encode_cursor
from tidemill.domain.job import JobRow
from tidemill.domain.job_match import finds, matches
from tidemill.domain.merged_pages import MergedReader, Reader
from tidemill.domain.retention import LIVE_TIER, ArchivedJob
from tidemill.errors import BadFilter
from tidemill.stores.base import Store

TABLES = "tables"
ALL = "all"

SCAN = 2_000
"""How many archived documents one page reads for a condition on their contents."""

_INSIDE: dict[str, Any] = {
    "parent_ids": frozenset(),
    "definition_id": None,
    "definition_version": None,
    "schedule_id": None,
    "fire_at": None,
    "flow_id": None,
    "reference": None,
    "tag": None,
    "metadata": {},
    "text": None,
    "id_suffix": None,
    "args": {},
    "error": None,
    "workers": frozenset(),
    "took_over": None,
}
"""Conditions on the contents of a document, each with the value that stands for no condition."""


@dataclass(frozen=True, slots=True)
class TierChoice:
    """Which tiers a search covers. ``names`` restricts the archive to some tiers; empty means all."""

    live: bool = True
    tables: bool = False
    files: bool = False
    names: frozenset[str] = frozenset()

    @property
    def archived(self) -> bool:
        """Whether it covers archived jobs."""
        return self.tables or self.files


def read_tiers(given: str | Iterable[str] | None) -> TierChoice:
    """Read a choice of tiers: ``"live"``, ``"tables"``, ``"all"``, or names of tiers.

    >>> read_tiers(["live", "warm"]).names
    frozenset({'warm'})
    """
    if given is None or given == LIVE_TIER:
        return TierChoice()
    if given == TABLES:
        return TierChoice(tables=True)
    if given == ALL:
        return TierChoice(tables=True, files=True)
    names = [given] if isinstance(given, str) else list(given)
    if ALL in names:
        return TierChoice(tables=True, files=True)
    if not names or not all(names):
        raise BadFilter(f"tiers is {given!r}; give 'live', 'tables', 'all', or names of tiers", field="tiers")
    others = frozenset(names) - {LIVE_TIER, TABLES}
    tables = TABLES in names
    if tables and others:
        raise BadFilter("tiers: give 'tables' or names of tiers, not both", field="tiers")
    return TierChoice(LIVE_TIER in names or tables, tables or bool(others), bool(others), others)


def archive_readers(
    places: Iterable[ArchivePlace], where: JobFilter, choice: TierChoice, sort: Sort
) -> list[Reader[ArchivedJob]]:
    """Return a reader for each place that may hold archived jobs of this choice."""
    wanted = replace(where, tiers=choice.names)
    return [archive_reader(place, wanted, sort) for place in places]


def archive_reader(place: ArchivePlace, where: JobFilter, sort: Sort) -> Reader[ArchivedJob]:
    """Return the reader of one place; conditions on the contents of documents are checked here."""
    inside = any(getattr(where, name) != nothing for name, nothing in _INSIDE.items())
    if not inside:
        return lambda limit, after: place.search(where, sort=sort, limit=limit, after=after)
    outer = replace(where, **_INSIDE)
    contains = finds(where) if where.scans else lambda _: True

    def read(limit: int, after: str | None) -> Page[ArchivedJob]:
        matching: list[ArchivedJob] = []
        looked = 0
        while looked < SCAN:
            page = place.search(outer, sort=sort, limit=min(SCAN - looked, 500), after=after)
            for document in page.items:
                looked += 1
                job = read_archived(document)
                if matches(where, job) and contains(job):
                    matching.append(document)
                    if len(matching) == limit:
                        return Page(matching, encode_cursor(sort, document.id))
            after = page.next
            if after is None:
                return Page(matching)
        return Page(matching, after)

    return read


def merged_jobs(
    live: Store, places: Iterable[ArchivePlace], where: JobFilter, choice: TierChoice, *, sort: Sort
) -> MergedReader[JobRow]:
    """Return the merged reader of live and archived jobs."""
    readers: list[Reader[JobRow]] = []
    if choice.live:
        readers.append(lambda limit, after: live.jobs(where, sort=sort, limit=limit, after=after))
    if choice.archived:
        readers += [_as_jobs(read) for read in archive_readers(places, where, choice, sort)]
    return MergedReader(readers, lambda job: job.id, sort)


def _as_jobs(read: Reader[ArchivedJob]) -> Reader[JobRow]:
    def jobs(limit: int, after: str | None) -> Page[JobRow]:
        page = read(limit, after)
        return Page([read_archived(document) for document in page.items], page.next)

    return jobs
