"""Archived jobs in files of a local directory or a bucket.

A file and its manifest are written once and never changed. The manifest is written last and commits the file; a file without
one was left by a crash and is deleted after a day. The catalogue in the jobs' store follows the manifests.
"""

from __future__ import annotations

import heapq
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.archive.file_format import SUFFIXES, decode_frame, encode_file, sha256
from tidemill.archive.objects import Objects, parse_location
from tidemill.archive.places import Receipt
from tidemill.domain.archive_files import ArchiveEntry, ArchiveFile, Manifest, dump_manifest, load_manifest
from tidemill.domain.filters import (
    ALL_TENANTS,
    JobFilter,
    Page,
    Sort,
    decode_cursor,
    encode_cursor,
    page_size,
)
from tidemill.domain.job_match import matches_archived
from tidemill.domain.retention import ArchivedJob, Position, Selection
from tidemill.errors import StoreCorrupt
from tidemill.ids import made_at, new_id
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.archive")

FRAMES_PER_PAGE = 20
"""Number of frames after which a page of a search ends, whether it is full or not."""

ABANDONED = timedelta(hours=24)
"""Age after which a file without a manifest is deleted."""

_SKEW_MS = 3_600_000


class FilePlace:
    """A directory or a bucket that holds archived jobs, with its catalogue in a store."""

    def __init__(self, url: str, catalogue: Store) -> None:
        location = parse_location(url)
        self.url = location.url
        self._format = location.format
        self._objects = Objects(location)
        self._catalogue = catalogue
        self._recovered = False
        self._swept = False
        self._written: set[UUID] = set()

    @property
    def store(self) -> Store | None:
        """None: objects join no transaction."""
        return None

    # Writing ---------------------------------------------------------------------------------------------------------

    def put(self, documents: Sequence[ArchivedJob], *, now: datetime | None = None) -> Receipt:
        """Write documents into new files, one for each tier, except those that are here already."""
        if not self._recovered:
            self.recover()
        # An error below may leave a committed file that the catalogue does not know.
        self._recovered = False
        archived_at = now or self._catalogue.now()
        entries = self._catalogue.archive_entries(self.url, [document.id for document in documents])
        stored = self._stored(entries)
        files: list[UUID] = []
        missing: dict[str, list[ArchivedJob]] = defaultdict(list)
        stale: list[ArchivedJob] = []
        for document in documents:
            copies = [copy for copy in stored.get(document.id, ()) if copy[1].tier == document.tier]
            same = [file for file, copy in copies if copy.sound and copy.fingerprint == document.fingerprint]
            if same:
                files.append(same[0])
            else:
                missing[document.tier].append(replace(document, archived_at=archived_at))
                stale += [copy for _, copy in copies]
        for tier, part in sorted(missing.items()):
            manifest = self._write(part, tier, archived_at)
            self._written.add(manifest.file.id)
            files.append(manifest.file.id)
        if stale:
            self._rewrite(_by_file(entries), {(copy.id, copy.tier, copy.fingerprint) for copy in stale})
        self._recovered = True
        ids = tuple(document.id for document in documents)
        return Receipt(ids, ",".join(dict.fromkeys(str(file) for file in files)))

    def _write(
        self, documents: Iterable[ArchivedJob], tier: str, at: datetime, replaces: tuple[UUID, ...] = ()
    ) -> Manifest:
        """Write one file: its content, its manifest, then the catalogue."""
        rows = sorted(documents, key=lambda document: document.id)
        content, frames = encode_file(rows, self._format)
        id = new_id()
        ends = [document.finished_at for document in rows]
        file = ArchiveFile(
            id=id,
            place=self.url,
            path=f"{self._root}/{tier}/{_month(id)}/{id}{SUFFIXES[self._format]}",
            tier=tier,
            format=self._format,
            rows=len(rows),
            bytes=len(content),
            sha256=sha256(content),
            first_id=rows[0].id,
            last_id=rows[-1].id,
            first_ended_at=min(ends),
            last_ended_at=max(ends),
            tenants=frozenset(document.tenant for document in rows),
            tasks=frozenset(document.task for document in rows),
            states=frozenset(document.state.value for document in rows),
            frames=tuple(frame for frame, _ in frames),
            archived_at=at,
        )
        manifest = Manifest(file, tuple(ids for _, ids in frames), replaces)
        self._objects.create(file.path, content)
        # (put)
        self._objects.create(self._manifest_path(id), dump_manifest(manifest))
        # (manifest)
        self._catalogue.add_archive_file(manifest)
        # (catalogue)
        return manifest

    def read(self, receipt: Receipt) -> list[ArchivedJob]:
        """Read the whole files of a write back, and delete those of them that are wrong."""
        wanted = set(receipt.ids)
        files = [UUID(text) for text in receipt.location.split(",") if text]
        rows_found: list[ArchivedJob] = []
        for file in self._catalogue.archive_files(self.url, files=files):
            content = self._objects.read(file.path)
            if content is None or sha256(content) != file.sha256:
                _log.error(
                    "archive file %s in %s is missing or differs from its manifest", file.path, self.url
                )
                if file.id in self._written:
                    self._discard([file])
                continue
            for frame in file.frames:
                part = content[frame.offset : frame.offset + frame.length]
                rows_found += [
                    document for document in decode_frame(part, file.format) if document.id in wanted
                ]
        self._written.difference_update(files)
        return rows_found

    def remove(self, documents: Sequence[ArchivedJob]) -> frozenset[UUID]:
        """Delete these documents, each only if its tier and fingerprint are unchanged; their files are rewritten."""
        entries = self._catalogue.archive_entries(self.url, [document.id for document in documents])
        unwanted = {(document.id, document.tier, document.fingerprint) for document in documents}
        return self._rewrite(_by_file(entries), unwanted)

    def erase(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        """Delete every copy of these jobs; their files are rewritten."""
        self.recover()
        by_file = _by_file(self._catalogue.archive_entries(self.url, ids))
        wanted = set(ids)
        gone: set[UUID] = set()
        for file in self._catalogue.archive_files(self.url, files=by_file):
            rows = list(self._rows(file))
            erased = {row.id for row in rows if row.id in wanted and tenant in (ALL_TENANTS, row.tenant)}
            if erased:
                self._replace(file, [row for row in rows if row.id not in erased])
                gone |= erased
        return frozenset(gone)

    def _rewrite(
        self, by_file: dict[UUID, set[UUID]], unwanted: set[tuple[UUID, str, str]]
    ) -> frozenset[UUID]:
        gone: set[UUID] = set()
        for file in self._catalogue.archive_files(self.url, files=by_file):
            rows = list(self._rows(file))
            remaining = [row for row in rows if (row.id, row.tier, row.fingerprint) not in unwanted]
            if len(remaining) < len(rows):
                self._replace(file, remaining)
                gone |= {row.id for row in rows} - {row.id for row in remaining}
        return frozenset(gone)

    def _replace(self, file: ArchiveFile, remaining: Sequence[ArchivedJob]) -> None:
        """Put a file with the remaining documents into the place of another one.

        The manifest of the new file names the old one, so a crash in between cannot bring its documents back.
        """
        if remaining:
            manifest = self._write(remaining, file.tier, file.archived_at, replaces=(file.id,))
            content = self._objects.read(manifest.file.path)
            if content is None or sha256(content) != manifest.file.sha256:
                self._objects.delete([self._manifest_path(manifest.file.id), manifest.file.path])
                self._catalogue.remove_archive_files([manifest.file.id])
                self._restore_entry(file)
                raise StoreCorrupt(
                    f"{self.url} did not keep {manifest.file.path}; nothing was removed", url=self.url
                )
        self._discard([file])

    def _restore_entry(self, file: ArchiveFile) -> None:
        manifest = self._read_manifest(self._manifest_path(file.id))
        if manifest is not None:
            self._catalogue.add_archive_file(manifest)

    def _discard(self, files: Iterable[ArchiveFile]) -> None:
        """Delete files: first the commit record, so that a crash leaves at most a file without one."""
        for file in files:
            self._objects.delete([self._manifest_path(file.id), file.path])
            self._catalogue.remove_archive_files([file.id])

    # Recovery --------------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Add committed files to the catalogue that a crashed run wrote. Each run calls it before its first batch."""
        catalogued = self._catalogue.archive_files(self.url, after=_floor(new_id(), months=1))
        newest = max((file.id for file in catalogued), default=None)
        floor = UUID(int=0) if newest is None else _earlier(newest)
        ids = {file.id for file in catalogued}
        for path in self._manifests(floor):
            if _file_of(path) not in ids:
                self._adopt(path)
        if not self._swept:
            self.sweep()
            self._swept = True
        self._recovered = True

    def _adopt(self, path: str) -> bool:
        manifest = self._read_manifest(path)
        if manifest is None:
            return False
        for old in manifest.replaces:
            self._discard_replaced(old)
        self._catalogue.add_archive_file(manifest)
        return True

    def _discard_replaced(self, id: UUID) -> None:
        manifest = self._read_manifest(self._manifest_path(id))
        if manifest is not None:
            self._discard([manifest.file])

    def rebuild(self) -> int:
        """Rebuild the catalogue from all manifests. Returns the number of files."""
        manifests = [
            manifest for path in self._manifests(None) if (manifest := self._read_manifest(path)) is not None
        ]
        replaced = {id for manifest in manifests for id in manifest.replaces}
        for manifest in manifests:
            if manifest.file.id in replaced:
                self._discard([manifest.file])
        current = [manifest for manifest in manifests if manifest.file.id not in replaced]
        catalogued = {file.id for file in self._catalogue.archive_files(self.url)}
        self._catalogue.remove_archive_files(catalogued - {manifest.file.id for manifest in current})
        for manifest in current:
            self._catalogue.add_archive_file(manifest)
        self.sweep(everything=True)
        return len(current)

    def sweep(self, *, everything: bool = False) -> int:
        """Delete files without a manifest that are older than a day. Returns their number."""
        catalogued = {file.path for file in self._catalogue.archive_files(self.url)} if everything else set()
        limit = self._catalogue.now() - ABANDONED
        months = None if everything else {_month(new_id()), _month(_floor(new_id(), months=1))}
        abandoned = []
        for item in self._objects.list(self._root):
            parts = item.path.split("/")
            id = _file_of(item.path)
            if "manifest" in parts or id is None or item.modified_at > limit or item.path in catalogued:
                continue
            if months is None or parts[-2] in months:
                abandoned.append((item.path, id))
        gone = [path for path, id in abandoned if self._objects.read(self._manifest_path(id)) is None]
        self._objects.delete(gone)
        return len(gone)

    def _manifests(self, after: UUID | None) -> Iterator[str]:
        """The paths of manifests: all, or those of this and the last month after a file."""
        if after is None:
            yield from (item.path for item in self._objects.list(f"{self._root}/manifest"))
            return
        for month in sorted({_month(_floor(new_id(), months=1)), _month(new_id())}):
            folder = f"{self._root}/manifest/{month}"
            yield from (item.path for item in self._objects.list(folder, f"{folder}/{after}"))

    def _read_manifest(self, path: str) -> Manifest | None:
        content = self._objects.read(path)
        if content is None:
            return None
        try:
            return load_manifest(content, self.url)
        except ValueError as error:
            _log.error("%s in %s is no manifest: %s", path, self.url, error)
            return None

    # Reading ---------------------------------------------------------------------------------------------------------

    def get(self, ids: Collection[UUID], *, tenant: str) -> list[ArchivedJob]:
        """Return the documents with these ids, by id: one look-up, and one ranged read for each frame."""
        newest_entries: dict[UUID, ArchiveEntry] = {}
        for entry in self._catalogue.archive_entries(self.url, ids):
            newest_entries.setdefault(entry.id, entry)
        stored = self._stored(list(newest_entries.values()), strict=True)
        newest = [copies[0][1] for _, copies in sorted(stored.items())]
        return [document for document in newest if tenant in (ALL_TENANTS, document.tenant)]

    def search(
        self, where: JobFilter, *, sort: Sort = Sort.NEWEST, limit: int = 100, after: str | None = None
    ) -> Page[ArchivedJob]:
        """Return one page of the documents that match; it may hold fewer than ``limit`` and have a next one."""
        if where.ids:
            return self._search_ids(where, sort, limit, after)
        task = next(iter(where.tasks)) if len(where.tasks) == 1 else None
        tier = next(iter(where.tiers)) if len(where.tiers) == 1 else None
        reader = _FrameReader(self)
        rows_found: list[ArchivedJob] = []
        seen: UUID | None = None
        while True:
            page = self._catalogue.search_archive_entries(
                self.url, tenant=where.tenant, task=task, tier=tier, sort=sort, limit=limit, after=after
            )
            for entry in page.items:
                # Of several copies of a job, the first one counts: it is in the newest file.
                document = None if entry.id == seen else reader.document(entry)
                if document is not None and matches_archived(where, document):
                    rows_found.append(document)
                after, seen = encode_cursor(sort, entry.id), entry.id
                if len(rows_found) == limit or reader.frames >= FRAMES_PER_PAGE:
                    last = entry is page.items[-1] and page.next is None
                    return Page(rows_found, None if last else after)
            if page.next is None:
                return Page(rows_found)

    def _search_ids(self, where: JobFilter, sort: Sort, limit: int, after: str | None) -> Page[ArchivedJob]:
        """Look the ids up instead of reading all files; the page holds what is left after the cursor."""
        last = None if after is None else decode_cursor(sort, after)
        ids = sorted(where.ids, reverse=sort is Sort.NEWEST)
        if last is not None:
            ids = [id for id in ids if (id > last if sort is Sort.OLDEST else id < last)]
        part = ids[: page_size(limit)]
        copies = {row.id: row for row in self.get(part, tenant=where.tenant)}
        rows = [copies[id] for id in part if id in copies and matches_archived(where, copies[id])]
        return Page(rows, encode_cursor(sort, part[-1]) if len(ids) > len(part) else None)

    def due(self, selection: Selection) -> list[ArchivedJob]:
        """Return the documents of a selection of one tier, the longest ended first."""
        rows_found: list[tuple[Position, ArchivedJob]] = []
        for file in self._selected(selection):
            if (
                len(rows_found) >= selection.limit
                and file.first_ended_at > rows_found[selection.limit - 1][0].ended_at
            ):
                break
            rows_found += [(row.position, row) for row in self._rows(file) if _chosen(selection, row)]
            rows_found.sort(key=lambda pair: pair[0])
        return [document for _, document in rows_found[: selection.limit]]

    def beyond(self, selection: Selection, newest: int) -> Position | None:
        """Return the last ended job of a selection without its ``newest`` ones; None if there are no others."""
        remaining: list[Position] = []
        for file in sorted(self._selected(selection), key=lambda file: file.last_ended_at, reverse=True):
            if len(remaining) > newest and file.last_ended_at < remaining[0].ended_at:
                break
            for row in self._rows(file):
                if _chosen(selection, row):
                    heapq.heappush(remaining, row.position)
                    if len(remaining) > newest + 1:
                        heapq.heappop(remaining)
        return remaining[0] if len(remaining) > newest else None

    def _selected(self, selection: Selection) -> list[ArchiveFile]:
        """The files that may hold documents of a selection."""
        until, after, rule = selection.until, selection.after, selection.rule
        files = self._catalogue.archive_files(
            self.url, tier=selection.tier, ended_by=None if until is None else until.ended_at
        )
        return [
            file
            for file in files
            if (after is None or file.last_ended_at >= after.ended_at)
            and not file.states.isdisjoint(rule.states)
            and (not rule.tenants or not file.tenants.isdisjoint(rule.tenants))
        ]

    def _rows(self, file: ArchiveFile) -> Iterator[ArchivedJob]:
        for number in range(len(file.frames)):
            yield from self.frame(file, number)

    def frame(self, file: ArchiveFile, number: int, ids: Collection[UUID] | None = None) -> list[ArchivedJob]:
        """The documents of one frame, all or those with these ids; the frame is checked against its checksum."""
        frame = file.frames[number]
        content = self._objects.read(file.path, frame.offset, frame.length)
        if content is None or sha256(content) != frame.sha256:
            raise StoreCorrupt(
                f"archive file {file.path} in {self.url} is missing or differs from its manifest; "
                "restore it from a backup, then run: tidemill archive rebuild",
                url=self.url,
            )
        return decode_frame(content, file.format, ids)

    def _stored(
        self, entries: Sequence[ArchiveEntry], *, strict: bool = False
    ) -> dict[UUID, list[tuple[UUID, ArchivedJob]]]:
        """The copies of each job with their files, the newest first. An unreadable frame is an error if ``strict``."""
        files = {
            file.id: file
            for file in self._catalogue.archive_files(self.url, files={entry.file for entry in entries})
        }
        wanted: dict[tuple[UUID, int], set[UUID]] = defaultdict(set)
        for entry in entries:
            wanted[entry.file, entry.frame].add(entry.id)
        stored: dict[UUID, list[tuple[UUID, ArchivedJob]]] = defaultdict(list)
        for (id, number), ids in sorted(wanted.items(), key=lambda item: item[0][0], reverse=True):
            if id not in files:
                continue
            try:
                rows = self.frame(files[id], number, ids)
            except StoreCorrupt:
                if strict:
                    raise
                continue
            for row in rows:
                stored[row.id].append((id, row))
        return stored

    @property
    def catalogue(self) -> Store:
        """The store of the catalogue."""
        return self._catalogue

    @property
    def _root(self) -> str:
        installation: Callable[[], str] | None = getattr(self._catalogue, "installation", None)
        return f"v1/{'memory' if installation is None else installation()}"

    def _manifest_path(self, id: UUID) -> str:
        return f"{self._root}/manifest/{_month(id)}/{id}.json"


class _FrameReader:
    """Frames of one search; each is read once."""

    def __init__(self, place: FilePlace) -> None:
        self._place = place
        self._rows: dict[tuple[UUID, int], dict[UUID, ArchivedJob]] = {}
        self._files: dict[UUID, ArchiveFile] = {}

    @property
    def frames(self) -> int:
        """How many frames were read."""
        return len(self._rows)

    def document(self, entry: ArchiveEntry) -> ArchivedJob | None:
        """The document of an entry; None if its file was removed since the look-up."""
        key = (entry.file, entry.frame)
        if key not in self._rows:
            if entry.file not in self._files:
                rows_found = self._place.catalogue.archive_files(self._place.url, files=[entry.file])
                if not rows_found:
                    return None
                self._files[entry.file] = rows_found[0]
            self._rows[key] = {row.id: row for row in self._place.frame(self._files[entry.file], entry.frame)}
        return self._rows[key].get(entry.id)


def _by_file(entries: Iterable[ArchiveEntry]) -> dict[UUID, set[UUID]]:
    rows_found: dict[UUID, set[UUID]] = defaultdict(set)
    for entry in entries:
        rows_found[entry.file].add(entry.id)
    return rows_found


def _chosen(selection: Selection, row: ArchivedJob) -> bool:
    return selection.contains(row.state, row.task, row.tenant, row.position)


def _month(id: UUID) -> str:
    return f"{made_at(id):%Y-%m}"


def _file_of(path: str) -> UUID | None:
    try:
        return UUID(path.rpartition("/")[2].partition(".")[0])
    except ValueError:
        return None


def _earlier(id: UUID) -> UUID:
    """An id one hour before another one, as the clocks of two machines may differ."""
    return UUID(int=max((id.int >> 80) - _SKEW_MS, 0) << 80)


def _floor(id: UUID, *, months: int) -> UUID:
    """The smallest id of a month before that of this id."""
    at = made_at(id).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for _ in range(months):
        at = (at - timedelta(days=1)).replace(day=1)
    return UUID(int=int(at.timestamp() * 1000) << 80)
