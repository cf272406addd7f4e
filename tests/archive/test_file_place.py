"""Tests of archive files in a directory and in a bucket."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from tests.archive.archive_kit import documents, ended_jobs

from tidemill import App, ArchivePolicy
from tidemill.archive import file_format
from tidemill.archive.files import FilePlace
from tidemill.archive.objects import Objects
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.retention import ArchivedJob, Selection, Selector, believed
from tidemill.errors import BadSettings, StoreCorrupt, StoreUnavailable
from tidemill.stores.memory import MemoryStore

COLD = Selection(Selector(), tier="cold")


@pytest.fixture(params=["jsonl", "parquet"])
def place(request: pytest.FixtureRequest, app: App, tmp_path: Path) -> FilePlace:
    return FilePlace(f"file://{tmp_path}/files?format={request.param}", app.store)


def paths(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(path for path in folder.rglob(pattern) if path.is_file())


def put_all(place: FilePlace, rows: list[ArchivedJob]) -> None:
    receipt = place.put(rows)
    assert believed(rows, place.read(receipt)) == (rows, [])


def test_new_directories_of_files_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        place, blobs = tmp_path / "srv" / "archive", tmp_path / "blobs"
        FilePlace(f"file://{place}", MemoryStore()).put([])
        with App("memory://", blobs=f"file://{blobs}", result_limit=10) as app:

            @app.task(max_result=1_000_000)
            def large() -> str:
                return "x" * 1_000

            job = large.enqueue()
            app.testing().drain()
            assert job.result() == "x" * 1_000
    finally:
        os.umask(before)
    assert [folder.stat().st_mode & 0o777 for folder in (place, blobs)] == [0o700, 0o700]


def test_documents_return_as_they_were_written(app: App, place: FilePlace) -> None:
    ended_jobs(app, 3, tags=["a"], metadata={"name": "“x” 🦊"}, reference=("user", "7"))
    rows = documents(app)
    put_all(place, rows)
    found = place.get([row.id for row in rows], tenant="default")
    assert [replace(row, archived_at=None) for row in found] == sorted(rows, key=lambda row: row.id)
    assert all(row.sound and row.archived_at is not None for row in found)
    assert place.get([rows[0].id], tenant="other") == []


def test_writing_the_same_documents_again_changes_nothing(app: App, place: FilePlace, tmp_path: Path) -> None:
    ended_jobs(app, 3)
    rows = documents(app)
    put_all(place, rows)
    before = paths(tmp_path / "files")
    put_all(place, rows)
    assert paths(tmp_path / "files") == before
    assert len(before) == 2


def test_a_newer_document_replaces_an_older_one(app: App, place: FilePlace) -> None:
    ended_jobs(app, 2)
    rows = documents(app)
    put_all(place, rows)
    changed = replace(rows[0], document="{}", fingerprint=file_format.sha256(b"{}"))
    put_all(place, [changed])
    assert {row.document for row in place.get([rows[0].id], tenant="*")} == {"{}"}
    assert len(app.store.archive_entries(place.url, [row.id for row in rows])) == 2


def test_a_file_is_plain_json_lines_for_other_tools(app: App, tmp_path: Path) -> None:
    ended_jobs(app, 2)
    put_all(FilePlace(f"file://{tmp_path}/files", app.store), documents(app))
    (file,) = paths(tmp_path / "files", "*.jsonl.zst")
    lines = [json.loads(line) for line in zstd.decompress(file.read_bytes()).decode().splitlines()]
    assert [line["document"]["job"]["args"] for line in lines] == ['{"text":"text 0"}', '{"text":"text 1"}']
    (manifest,) = paths(tmp_path / "files" / "v1", "*.json")
    body = json.loads(manifest.read_bytes())
    assert (body["rows"], body["bytes"], body["tenants"]) == (2, file.stat().st_size, ["default"])


def test_large_files_are_read_frame_by_frame(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_format, "FRAME", 4)
    ended_jobs(app, 10)
    place = FilePlace(f"file://{tmp_path}/files", app.store)
    rows = sorted(documents(app), key=lambda row: row.id)
    put_all(place, rows)
    (file,) = app.store.archive_files(place.url)
    assert [frame.rows for frame in file.frames] == [4, 4, 2]
    read: list[tuple[Any, ...]] = []
    original = Objects.read

    def recorded(self: Objects, *args: Any) -> Any:
        read.append(args)
        return original(self, *args)

    monkeypatch.setattr(Objects, "read", recorded)
    assert place.get([rows[9].id], tenant="*")[0].id == rows[9].id
    assert read == [(file.path, file.frames[2].offset, file.frames[2].length)]


@pytest.mark.parametrize("sort", list(Sort))
def test_a_search_pages_by_id_and_filters(app: App, place: FilePlace, sort: Sort) -> None:
    ended_jobs(app, 5)
    ended_jobs(app, 2, tenant="other")
    rows = sorted(documents(app), key=lambda row: row.id, reverse=sort is Sort.NEWEST)
    put_all(place, rows[::2])
    put_all(place, rows[1::2])
    seen: list[ArchivedJob] = []
    after: str | None = None
    while True:
        page = place.search(JobFilter("default"), sort=sort, limit=2, after=after)
        seen += page.items
        after = page.next
        if after is None:
            break
    assert [row.id for row in seen] == [row.id for row in rows if row.tenant == "default"]
    assert place.search(JobFilter(ALL_TENANTS, tasks=frozenset({"none"}))).items == []
    assert place.search(JobFilter(ALL_TENANTS, tiers=frozenset({"warm"}))).items == []
    assert len(place.search(JobFilter(ALL_TENANTS, tiers=frozenset({"cold", "warm"}))).items) == 7


def test_due_documents_come_in_the_order_of_their_ends(app: App, place: FilePlace) -> None:
    for _ in range(3):
        ended_jobs(app, 2)
    rows = documents(app)
    put_all(place, [rows[0], rows[3], rows[4]])
    put_all(place, [rows[1], rows[2], rows[5]])
    order = [row.id for row in rows]
    assert [row.id for row in place.due(COLD)] == order
    first = place.due(replace(COLD, limit=4))
    assert [row.id for row in first] == order[:4]
    assert [row.id for row in place.due(replace(COLD, after=first[-1].position))] == order[4:]
    assert [row.id for row in place.due(replace(COLD, until=rows[2].position))] == order[:3]
    assert place.due(replace(COLD, tier="warm")) == []
    assert place.beyond(COLD, 2) == rows[3].position
    assert place.beyond(COLD, 6) is None


def test_removing_documents_rewrites_their_file(app: App, place: FilePlace, tmp_path: Path) -> None:
    ended_jobs(app, 4)
    rows = documents(app)
    put_all(place, rows)
    wrong = [replace(rows[2], tier="warm"), replace(rows[3], fingerprint="x")]
    assert place.remove([rows[0], *wrong]) == {rows[0].id}
    assert {row.id for row in place.due(COLD)} == {row.id for row in rows[1:]}
    assert len(paths(tmp_path / "files")) == 2
    assert place.remove(rows[1:]) == {row.id for row in rows[1:]}
    assert paths(tmp_path / "files") == []
    assert app.store.archive_files(place.url) == []


@pytest.mark.parametrize("damage", ["truncated", "missing", "old"])
def test_a_wrong_object_is_refused_and_removed(
    app: App, place: FilePlace, tmp_path: Path, damage: str
) -> None:
    ended_jobs(app, 3)
    rows = documents(app)
    put_all(place, rows[:1])
    (old,) = [path for path in paths(tmp_path / "files") if path.suffix != ".json"]
    receipt = place.put(rows[1:])
    (new,) = [path for path in paths(tmp_path / "files") if path.suffix != ".json" and path != old]
    match damage:
        case "truncated":
            new.write_bytes(new.read_bytes()[:-7])
        case "missing":
            new.unlink()
        case _:
            new.write_bytes(old.read_bytes())
    assert believed(rows[1:], place.read(receipt)) == ([], rows[1:])
    assert [file.rows for file in app.store.archive_files(place.url)] == [1]
    put_all(place, rows)


def test_a_damaged_frame_is_an_error_for_readers(app: App, place: FilePlace, tmp_path: Path) -> None:
    ended_jobs(app, 1)
    rows = documents(app)
    put_all(place, rows)
    (file,) = [path for path in paths(tmp_path / "files") if path.suffix != ".json"]
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(StoreCorrupt, match="differs from its manifest"):
        place.get([rows[0].id], tenant="*")
    put_all(place, rows)  # the next run writes a sound copy
    assert place.get([rows[0].id], tenant="*")[0].sound


def test_the_catalogue_can_be_rebuilt_from_the_manifests(app: App, tmp_path: Path) -> None:
    ended_jobs(app, 4)
    rows = documents(app)
    place = FilePlace(f"file://{tmp_path}/files", app.store)
    for part in (rows[:2], rows[2:]):
        put_all(place, part)
    files = app.store.archive_files(place.url)
    app.store.remove_archive_files([file.id for file in files])
    assert place.get([rows[0].id], tenant="*") == []
    assert FilePlace(f"file://{tmp_path}/files", app.store).rebuild() == 2
    assert app.store.archive_files(place.url) == files
    assert len(place.get([row.id for row in rows], tenant="*")) == 4


def test_a_file_without_a_manifest_is_deleted_after_a_day(app: App, tmp_path: Path) -> None:
    ended_jobs(app, 2)
    rows = documents(app)
    place = FilePlace(f"file://{tmp_path}/files", app.store)
    put_all(place, rows[:1])
    (kept,) = paths(tmp_path / "files", "*.zst")
    names = [str(file.id) for file in app.store.archive_files(place.url)]
    left = [
        kept.with_name(name.replace(names[0][-4:], end) + ".jsonl.zst")
        for name, end in zip(names * 2, ("aaaa", "bbbb"), strict=True)
    ]
    for path in left:
        path.write_bytes(b"half")
    day = time.time() - 25 * 3600
    for path in (left[0], kept):
        os.utime(path, (day, day))
    assert FilePlace(place.url, app.store).sweep(everything=True) == 1
    assert [path.exists() for path in (*left, kept)] == [False, True, True]


def test_tiers_of_one_place_are_moved_by_a_policy(app: App, tmp_path: Path) -> None:
    ended_jobs(app, 3)
    rows = documents(app, "warm")
    place = FilePlace(f"file://{tmp_path}/files", app.store)
    put_all(place, rows)
    moved = [replace(row, tier="cold") for row in place.due(Selection(Selector(), tier="warm"))]
    put_all(place, moved)
    assert place.remove([replace(row, tier="warm") for row in moved]) == {row.id for row in rows}
    assert {row.tier for row in place.get([row.id for row in rows], tenant="*")} == {"cold"}
    assert place.due(Selection(Selector(), tier="warm")) == []


def test_a_bucket_is_a_place(app: App, bucket: str) -> None:
    ended_jobs(app, 3)
    rows = documents(app)
    place = FilePlace(bucket, app.store)
    put_all(place, rows)
    put_all(place, rows)
    assert [row.id for row in place.due(COLD)] == [row.id for row in rows]
    assert place.remove(rows[:1]) == {rows[0].id}
    assert {row.id for row in place.search(JobFilter("default")).items} == {row.id for row in rows[1:]}
    app.store.remove_archive_files([file.id for file in app.store.archive_files(place.url)])
    assert FilePlace(bucket, app.store).rebuild() == 1
    assert place.erase([rows[1].id], tenant="default") == {rows[1].id}
    assert [row.id for row in place.get([row.id for row in rows], tenant="*")] == [rows[2].id]


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_a_wrong_object_in_a_bucket_keeps_the_jobs(jobs_url: str, bucket: str, damage: str) -> None:
    with App(stores={"default": jobs_url, "archive": bucket}, migrate=True) as app:
        ended_jobs(app, 3)
        create = Objects.create

        def lossy(self: Objects, path: str, content: bytes) -> bool:
            if path.endswith(".zst"):
                return damage == "missing" or create(self, path, content[:-9])
            return create(self, path, content)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Objects, "create", lossy)
            done = app.archive.run(older_than=0)
        assert (done.archived, done.failed, done.more) == (0, 3, True)
        assert app.jobs.count() == 3
        assert app.store.archive_places() == []
        assert app.archive.run(older_than=0).archived == 3
        assert app.jobs.count() == 0


def test_an_unreachable_bucket_stops_only_its_policy(jobs_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{key}", "x")
    place = FilePlace("s3://nowhere/x?endpoint=http://127.0.0.1:1&region=us-east-1", MemoryStore())
    with pytest.raises(StoreUnavailable, match="s3://nowhere/x"):
        place.put(documents_of_one())


def documents_of_one() -> list[ArchivedJob]:
    with App("memory://") as app:
        ended_jobs(app, 1)
        return documents(app)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file://host/x", "contains no directory"),
        ("file:///", "contains no directory"),
        ("s3:///x", "contains no bucket"),
        ("s3://key:secret@bucket/x", "give credentials in the environment"),
        ("file:///x?format=csv", "unknown archive format 'csv'"),
        ("file:///x?colour=red", "unknown option 'colour'"),
    ],
)
def test_a_wrong_url_is_refused(url: str, words: str) -> None:
    with pytest.raises(BadSettings, match=words):
        FilePlace(url, MemoryStore())


@pytest.mark.parametrize(
    "stores",
    [
        {"default": "file:///tmp/x"},
        {"jobs": "s3://bucket/x", "default": "memory://"},
        {"archive": "file:///tmp/x"},
    ],
)
def test_archive_files_cannot_hold_live_jobs(stores: dict[str, str]) -> None:
    with pytest.raises(BadSettings, match="holds archive files only"):
        App(stores=stores)
    with pytest.raises(BadSettings, match="holds archive files only"):
        App("file:///tmp/x")


def test_a_job_cannot_be_sent_to_archive_files(app: App) -> None:
    ended_jobs(app, 1)
    with pytest.raises(BadSettings, match="'archive' holds archive files only"):
        app.bound_task("note").using(store="archive").enqueue(text="x")


def test_a_policy_names_files_by_store_or_by_url(jobs_url: str, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/direct"
    policies = [
        ArchivePolicy("named", ["completed"], max_age=0, to="cold", tier="a"),
        ArchivePolicy("direct", ["cancelled"], max_age=0, to=url, tier="b"),
    ]
    stores = {"default": jobs_url, "cold": f"file://{tmp_path}/named"}
    with App(stores=stores, retention=policies, migrate=True) as app:
        (completed,) = ended_jobs(app, 1)
        cancelled = app.bound_task("note").using(delay="1h").enqueue(text="never").cancel()
        assert app.archive.run().archived == 2
        assert (app.jobs.get(completed.id).tier, app.jobs.get(cancelled.id).tier) == ("a", "b")
        assert app.store.archive_places() == [url, f"file://{tmp_path}/named"]
