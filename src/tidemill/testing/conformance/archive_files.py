"""Laws of the catalogue of archive files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import pytest

from tidemill.domain.archive_files import ArchiveEntry, ArchiveFile, ArchiveFrame, Manifest
from tidemill.domain.filters import ALL_TENANTS, Sort
from tidemill.errors import BadFilter
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import HOUR, T0, at

PLACE = "file:///srv/archive"


def a_manifest(
    *frames: Sequence[UUID],
    place: str = PLACE,
    tier: str = "cold",
    tenants: Sequence[str] = ("default",),
    tasks: Sequence[str] = ("work",),
    ended: datetime = T0,
    replaces: tuple[UUID, ...] = (),
) -> Manifest:
    """Return the manifest of a file with these ids in its frames."""
    ids = [id for frame in frames for id in frame]
    file = ArchiveFile(
        id=new_id(),
        place=place,
        path="v1/x/cold/file.jsonl.zst",
        tier=tier,
        format="jsonl",
        rows=len(ids),
        bytes=100,
        sha256="ab" * 32,
        first_id=min(ids),
        last_id=max(ids),
        first_ended_at=ended,
        last_ended_at=ended + HOUR,
        tenants=frozenset(tenants),
        tasks=frozenset(tasks),
        states=frozenset({"completed"}),
        frames=tuple(ArchiveFrame(n * 50, 50, len(frame), "cd" * 32) for n, frame in enumerate(frames)),
        archived_at=T0 + HOUR,
    )
    return Manifest(file, tuple(tuple(frame) for frame in frames), replaces)


def _ids(count: int) -> list[UUID]:
    return [new_id() for _ in range(count)]


class ArchiveFileLaws:
    """The catalogue says which file and which frame hold a job."""

    def test_a_file_is_catalogued_as_its_manifest_describes_it(self, store: Store) -> None:
        ids = _ids(3)
        manifest = a_manifest(ids[:2], ids[2:], tenants=("a", 'b"c'))
        store.add_archive_file(manifest)
        store.add_archive_file(manifest)
        assert store.archive_files(PLACE) == [manifest.file]
        entries = [
            ArchiveEntry(id, manifest.file.id, frame) for id, frame in zip(ids, (0, 0, 1), strict=True)
        ]
        assert store.archive_entries(PLACE, [*ids, new_id()]) == entries
        assert store.archive_entries("file:///other", ids) == []
        assert (store.archive_files("file:///other"), store.archive_places()) == ([], [PLACE])

    def test_a_file_leaves_the_catalogue_with_its_entries(self, store: Store) -> None:
        ids = _ids(4)
        gone, kept = a_manifest([ids[0], ids[2]]), a_manifest([ids[1], ids[3]])
        for manifest in (gone, kept):
            store.add_archive_file(manifest)
        store.remove_archive_files([gone.file.id, new_id()])
        assert store.archive_files(PLACE) == [kept.file]
        assert [entry.id for entry in store.archive_entries(PLACE, ids)] == [ids[1], ids[3]]

    def test_a_file_removes_those_that_it_replaces(self, store: Store) -> None:
        ids = _ids(2)
        old = a_manifest(ids)
        store.add_archive_file(old)
        new = a_manifest(ids[:1], replaces=(old.file.id,))
        store.add_archive_file(new)
        assert store.archive_files(PLACE) == [new.file]
        assert store.archive_entries(PLACE, ids) == [ArchiveEntry(ids[0], new.file.id, 0)]

    def test_the_newest_of_two_copies_comes_first(self, store: Store) -> None:
        (id,) = _ids(1)
        files = [a_manifest([id]) for _ in range(2)]
        for manifest in files:
            store.add_archive_file(manifest)
        newest_first = [manifest.file.id for manifest in reversed(files)]
        assert [entry.file for entry in store.archive_entries(PLACE, [id])] == newest_first
        for sort in Sort:
            page = store.search_archive_entries(PLACE, tenant="default", sort=sort)
            assert [entry.file for entry in page.items] == newest_first

    def test_files_are_listed_by_the_end_of_their_first_job(self, store: Store) -> None:
        first, second = a_manifest(_ids(1), ended=at(2)), a_manifest(_ids(1), ended=at(1), tier="warm")
        for manifest in (first, second):
            store.add_archive_file(manifest)
        assert store.archive_files(PLACE) == [second.file, first.file]
        assert store.archive_files(PLACE, files=[first.file.id]) == [first.file]
        assert store.archive_files(PLACE, files=[]) == []
        assert store.archive_files(PLACE, after=first.file.id) == [second.file]
        assert store.archive_files(PLACE, tier="cold") == [first.file]
        assert store.archive_files(PLACE, ended_by=at(1)) == [second.file]

    @pytest.mark.parametrize("sort", list(Sort))
    def test_entries_are_paged_by_id_and_narrowed_by_their_files(self, store: Store, sort: Sort) -> None:
        ids = _ids(6)
        ours = a_manifest([ids[0], ids[2], ids[4]], tasks=("mail", "a_b"))
        theirs = a_manifest([ids[1], ids[3], ids[5]], tenants=("other",), tier="warm")
        for manifest in (ours, theirs):
            store.add_archive_file(manifest)
        seen: list[UUID] = []
        after: str | None = None
        while True:
            page = store.search_archive_entries(PLACE, tenant=ALL_TENANTS, sort=sort, limit=2, after=after)
            seen += [entry.id for entry in page.items]
            after = page.next
            if after is None:
                break
        assert seen == (ids if sort is Sort.OLDEST else ids[::-1])

        def ids_found(tenant: str, task: str | None = None, tier: str | None = None) -> set[UUID]:
            page = store.search_archive_entries(PLACE, tenant=tenant, task=task, tier=tier)
            return {entry.id for entry in page.items}

        assert ids_found("default") == set(ids[::2])
        assert ids_found("def") == set()
        assert ids_found("default", "mail") == set(ids[::2])
        assert ids_found("default", "work") == ids_found("default", "aXb") == set()
        assert ids_found(ALL_TENANTS, tier="warm") == set(ids[1::2])

    def test_an_invalid_page_of_entries_is_refused(self, store: Store) -> None:
        with pytest.raises(BadFilter):
            store.search_archive_entries(PLACE, tenant="default", after="nonsense")
        with pytest.raises(BadFilter):
            store.search_archive_entries(PLACE, tenant="default", limit=0)
