"""Tests of large arguments and results: stored outside the row, and read as if they were in it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.grounds import url_of
from tests.servers.buckets import running_bucket

from tidemill import Context, Unique
from tidemill.app import App
from tidemill.client.core import client_of
from tidemill.client.documents import job_document
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.large_values import BlobKey, read_reference
from tidemill.domain.retention import ArchivePolicy
from tidemill.errors import BadSettings, BlobDamaged, PayloadTooLarge, ResultNotKept, StoreUnavailable
from tidemill.stores import blob_files, large_values

LARGE = 300_000
HUGE = 50 * 1024 * 1024
PLACES = ["memory", "sqlite", "postgres", "directory", "bucket"]


@pytest.fixture(params=PLACES)
def large_app(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[App]:
    """An app on each store, and apps whose large values are files of a directory or of a bucket."""
    with ExitStack() as opened:
        blobs = None
        if request.param == "directory":
            blobs = f"file://{tmp_path}/blobs"
        elif request.param == "bucket":
            blobs = opened.enter_context(running_bucket(monkeypatch))
        url = url_of(request.param if blobs is None else "sqlite", tmp_path, request)
        app = opened.enter_context(App(url, migrate=True, blobs=blobs))

        @app.task
        def repeat(text: str, times: int) -> str:
            return text * times

        @app.task
        async def measure(text: str) -> int:
            return len(text)

        yield app


def files_of(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "blobs").rglob("*") if path.is_file())


def test_a_large_result_round_trips(large_app: App) -> None:
    job = large_app.bound_task("repeat").enqueue(text="Zoë ", times=LARGE)
    large_app.testing().drain()
    assert job.result() == "Zoë " * LARGE
    reference = read_reference(job.row.result)
    assert reference is not None
    expected = json.dumps("Zoë " * LARGE, ensure_ascii=False).encode()
    assert (reference.size, reference.sha256) == (len(expected), hashlib.sha256(expected).hexdigest())
    assert len(job.row.result or "") < 400


@pytest.mark.long
def test_a_result_of_50_mib_round_trips(large_app: App) -> None:
    job = large_app.bound_task("repeat").enqueue(text="0123456789abcdef", times=HUGE // 16)
    large_app.testing().drain()
    result = job.result()
    assert len(result) == HUGE
    assert result == "0123456789abcdef" * (HUGE // 16)
    assert len(job.row.result or "") < 400


def test_large_arguments_round_trip(large_app: App) -> None:
    job = large_app.bound_task("measure").enqueue(text="ö" * LARGE)
    assert len(job.row.args) < 400
    assert job.args == {"text": "ö" * LARGE}
    large_app.testing().drain()
    assert job.result() == LARGE
    found = large_app.jobs.get(job.id)
    assert found.args == {"text": "ö" * LARGE}


def test_large_values_round_trip_on_an_event_loop(large_app: App) -> None:
    async def main() -> str:
        job = await large_app.bound_task("repeat").aenqueue(text="x" * LARGE, times=2)
        await large_app.testing().adrain()
        result: str = await job
        return result

    assert asyncio.run(main()) == "x" * LARGE * 2


def test_a_batch_may_mix_small_and_large_arguments(large_app: App) -> None:
    sizes = [10] * 401 + [LARGE] + [20] * 10
    jobs = large_app.bound_task("measure").enqueue_many([{"text": "x" * size} for size in sizes])
    large_app.testing().drain()
    assert [job.result() for job in jobs] == sizes


def test_a_worker_stores_and_reads_large_values(large_app: App) -> None:
    with large_app.worker(threads=2):
        assert large_app.bound_task("repeat").enqueue(text="y" * LARGE, times=2).result(30) == "y" * LARGE * 2
        assert large_app.bound_task("measure").enqueue(text="y" * LARGE).result(30) == LARGE


def test_a_value_at_the_limit_stays_in_the_row(large_app: App) -> None:
    measure = large_app.bound_task("measure")
    overhead = len('{"text":""}')
    assert measure.enqueue(text="x" * (256 * 1024 - overhead)).row.args.startswith("{")
    assert measure.enqueue(text="x" * (256 * 1024 - overhead + 1)).row.args.startswith("blob:")


def test_data_that_looks_like_a_reference_is_data(app: App) -> None:
    @app.task
    def echo(value: str) -> str:
        return value

    fake = 'blob:{"size":1}'
    job = echo.enqueue(value=fake)
    app.testing().drain()
    assert job.result() == fake


def test_a_result_beyond_the_maximum_is_noted_and_the_job_completes(app: App) -> None:
    @app.task(max_result=400_000)
    def huge() -> str:
        return "x" * 500_000

    job = huge.enqueue()
    app.testing().drain()
    assert job.refresh().status == "completed"
    note = "its result of 500,002 bytes was not kept: the limit is 400,000 bytes (max_result)"
    assert job.reason == f"completed, but {note}"
    with pytest.raises(ResultNotKept, match="500,002 bytes and was not kept"):
        job.result()
    document = job_document(job.row, app.clock.now())
    assert document["value"] is None
    assert document["value_blob"] == {
        "size": 500_002, "sha256": None, "note": "the limit is 400,000 bytes (max_result)"
    }  # fmt: skip


def test_large_results_may_be_refused_by_the_app_or_a_task(tmp_path: Path) -> None:
    with App("memory://", large_results="refuse", result_limit=100) as app:

        @app.task
        def refused() -> str:
            return "x" * 200

        @app.task(large_results="spill", max_result=1000)
        def spilled() -> str:
            return "x" * 200

        one, two = refused.enqueue(), spilled.enqueue()
        app.testing().drain()
        assert "large_results is 'refuse'" in (one.refresh().reason or "")
        assert two.result() == "x" * 200


def test_arguments_beyond_the_maximum_are_refused(tmp_path: Path) -> None:
    with App("memory://", max_args=400_000) as app:

        @app.task
        def measure(text: str) -> int:
            return len(text)

        with pytest.raises(PayloadTooLarge, match=r"raise App\(max_args=…\)"):
            measure.enqueue(text="x" * 400_000)


@pytest.mark.parametrize("wrong", [{"max_result": 0}, {"large_results": "drop"}, {"blobs": "ftp://x"}])
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadSettings):
        App("memory://", **wrong)  # type: ignore[arg-type]


def test_a_place_without_a_bucket_or_with_credentials_is_refused() -> None:
    for url in ("s3:///prefix", "file://relative", "s3://key:secret@bucket", "s3://bucket?color=red"):
        with pytest.raises(BadSettings, match="blobs"):
            blob_files.check_place(url)


def test_a_changed_value_is_detected(large_app: App) -> None:
    job = large_app.bound_task("measure").enqueue(text="x" * LARGE)
    key, store = BlobKey(job.id, 0), large_app.store
    if store.blob_url is None:
        store.put_blob(key, ['{"text":"y"}'])
    else:
        blob_files.write_object(store.blob_url, key, ['{"text":"y"}'])
    with pytest.raises(BlobDamaged, match="does not match its checksum"):
        _ = job.args
    large_app.testing().drain(raise_errors=False)
    assert job.refresh().status == "failed"
    assert job.error is not None
    assert job.error.type == "tidemill.errors.BlobDamaged"


def test_a_missing_value_is_detected(large_app: App) -> None:
    job = large_app.bound_task("repeat").enqueue(text="x" * LARGE, times=1)
    large_app.testing().drain()
    key, store = BlobKey(job.id, 1), large_app.store
    if store.blob_url is None:
        store.delete_blobs([key])
    else:
        blob_files.delete_object(store.blob_url, key)
    with pytest.raises(BlobDamaged, match=r"the result of job .* is missing"):
        job.result()


def test_a_deleted_job_takes_its_values_along(large_app: App, tmp_path: Path) -> None:
    job = large_app.bound_task("repeat").enqueue(text="x" * LARGE, times=2)
    large_app.testing().drain()
    job.refresh().delete()
    now = large_app.store.now() + timedelta(days=2)
    swept = large_values.sweep_blobs(large_app.store, 10, now=now)
    assert swept == (2 if large_app.store.blob_url else 0)
    assert large_values.sweep_blobs(large_app.store, 10, now=now) == 0
    assert files_of(tmp_path) == []
    assert large_app.store.blob_parts(BlobKey(job.id, 0)) == []


def test_the_sweep_leaves_values_that_jobs_need(large_app: App) -> None:
    job = large_app.bound_task("repeat").enqueue(text="x" * LARGE, times=2)
    large_app.testing().drain()
    assert large_values.sweep_blobs(large_app.store, 10, now=large_app.store.now() + timedelta(days=9)) == 0
    assert job.result() == "x" * LARGE * 2


def test_a_job_that_keeps_nothing_keeps_no_value(large_app: App, tmp_path: Path) -> None:
    job = large_app.bound_task("repeat").using(record="none").enqueue(text="x" * LARGE, times=2)
    large_app.testing().drain()
    large_values.sweep_blobs(large_app.store, 10, now=large_app.store.now() + timedelta(days=2))
    assert large_app.store.blob_parts(BlobKey(job.id, 0)) == []
    assert large_app.store.blob_parts(BlobKey(job.id, 1)) == []
    assert files_of(tmp_path) == []


def test_an_archived_job_keeps_its_values_until_it_is_purged(large_app: App, tmp_path: Path) -> None:
    job = large_app.bound_task("repeat").enqueue(text="x" * LARGE, times=2)
    large_app.testing().drain()
    assert large_app.archive.run(older_than=timedelta(0)).archived == 1
    store, later = large_app.store, large_app.store.now() + timedelta(days=9)
    assert large_values.sweep_blobs(store, 10, now=later) == 0
    found = large_app.jobs.get(job.id)
    assert found.archived_at is not None
    assert found.result() == "x" * LARGE * 2
    assert found.args["text"] == "x" * LARGE
    purge = ArchivePolicy("gone", from_tier="archive", to=None, max_age=timedelta(0))
    assert large_app.archive.run([purge]).archived == 1
    assert large_values.sweep_blobs(store, 10, now=later) == 2
    assert files_of(tmp_path) == []


def test_a_rejected_duplicate_stores_no_value(large_app: App) -> None:
    measure = large_app.bound_task("measure").using(unique=Unique())
    first = measure.enqueue(text="x" * LARGE)
    assert measure.enqueue(text="x" * LARGE).id == first.id
    later = large_app.store.now() + timedelta(days=2)
    # A file is written before its row, so that of the duplicate waits for the sweep.
    assert len(large_app.store.orphan_blobs(timedelta(0), 10, now=later)) == (
        1 if large_app.store.blob_url else 0
    )


def test_large_arguments_of_follow_up_jobs_are_stored(large_app: App) -> None:
    measure = large_app.bound_task("measure")

    @large_app.task
    def first(ctx: Context) -> None:
        ctx.then(measure, text="z" * LARGE)

    first.enqueue()
    large_app.testing().drain()
    (after,) = [job for job in large_app.jobs.list().items if job.task == "measure"]
    assert after.result() == LARGE


def test_a_large_output_waits_for_its_reviewer(large_app: App) -> None:
    from tidemill import Review

    @large_app.task
    def draft() -> str:
        raise Review("look", output="d" * LARGE)

    job = draft.enqueue()
    large_app.testing().drain()
    assert job.refresh().status == "review_needed"
    assert (job.row.result or "").startswith("blob:")
    assert job.approve().result() == "d" * LARGE


def test_a_place_that_fails_does_not_fail_the_job(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def huge() -> str:
        return "x" * LARGE

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the bucket is away")

    monkeypatch.setattr("tidemill.engine.runner.large_values.WAITS", (0.0, 0.0))
    job = huge.enqueue()
    with monkeypatch.context() as broken:
        broken.setattr(type(app.store), "put_blob", away)
        app.testing().drain()
    assert job.refresh().status == "completed"
    assert "it could not be stored: the bucket is away" in (job.reason or "")


def test_arguments_that_cannot_be_read_now_postpone_the_job(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def measure(text: str) -> int:
        return len(text)

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("the bucket is away")

    job = measure.enqueue(text="x" * LARGE)
    with monkeypatch.context() as broken:
        broken.setattr(type(app.store), "blob_parts", away)
        app.testing().drain()
    assert (job.refresh().status, job.attempt) == ("scheduled", 0)
    assert "its arguments cannot be read now: the bucket is away" in (job.reason or "")


def test_a_handle_does_not_keep_large_arguments_in_memory(large_app: App) -> None:
    job = large_app.bound_task("measure").enqueue(text="x" * LARGE)
    assert type(job.row.args) is str
    assert type(job._seen.args) is str


def test_the_document_of_a_job_shows_the_size_of_large_values(large_app: App) -> None:
    job = large_app.bound_task("repeat").enqueue(text="x" * LARGE, times=2)
    large_app.testing().drain()
    document = job_document(job.refresh().row, large_app.clock.now())
    assert document["args"] is None
    assert document["value"] is None
    assert document["args_blob"] is not None
    assert document["value_blob"] is not None
    assert document["value_blob"]["size"] == 2 * LARGE + 2  # type: ignore[index]
    inspected = client_of(large_app).get(job.id, tenant=ALL_TENANTS, store=None)
    assert inspected == replace(job.row)


def test_results_are_cached_for_a_window(app: App) -> None:
    runs: list[str] = []

    @app.task(unique=Unique(by=("city",), within="10m", failed="retry"), retry=None)
    def weather(city: str) -> int:
        runs.append(city)
        if len(runs) == 1:
            raise ValueError("no answer")
        return len(runs)

    first = weather.enqueue(city="Oslo")
    app.testing().drain()
    assert first.refresh().status == "failed"
    again = weather.enqueue(city="Oslo")
    assert (again.id, again.status) == (first.id, "pending")
    app.testing().drain()
    cached = weather.enqueue(city="Oslo")
    assert (cached.id, cached.result()) == (first.id, 2)
    assert runs == ["Oslo", "Oslo"]


def test_a_cached_failure_is_returned_by_default(app: App) -> None:
    @app.task(unique=Unique(within="10m"), retry=None)
    def weather(city: str) -> int:
        raise ValueError("no answer")

    first = weather.enqueue(city="Oslo")
    app.testing().drain()
    assert weather.enqueue(city="Oslo").status == "failed"
    assert weather.enqueue(city="Oslo").id == first.id


@pytest.mark.parametrize("wrong", [{"failed": "run"}, {"failed": "retry", "on_conflict": "raise"}])
def test_a_wrong_rule_for_failed_holders_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(BadSettings, match="failed"):
        Unique(**wrong)  # type: ignore[arg-type]


def test_an_erased_job_leaves_no_value(large_app: App, tmp_path: Path) -> None:
    archived = large_app.bound_task("repeat").enqueue(text="x" * LARGE, times=2)
    large_app.testing().drain()
    assert large_app.archive.run(older_than=timedelta(0)).archived == 1
    live = large_app.bound_task("repeat").enqueue(text="y" * LARGE, times=2)
    large_app.testing().drain()
    assert large_app.archive.erase(ids=[archived.id, live.id]).jobs == 2
    large_values.sweep_blobs(large_app.store, 10, now=large_app.store.now() + timedelta(days=2))
    for job in (archived, live):
        assert large_app.store.blob_parts(BlobKey(job.id, 0)) == []
        assert large_app.store.blob_parts(BlobKey(job.id, 1)) == []
    assert files_of(tmp_path) == []


def test_a_restored_job_keeps_its_values_although_its_document_is_purged(large_app: App) -> None:
    job = large_app.bound_task("repeat").enqueue(text="x" * LARGE, times=2)
    large_app.testing().drain()
    assert large_app.archive.run(older_than=timedelta(0)).archived == 1
    assert large_app.archive.restore([job.id]).restored == [job.id]
    purge = ArchivePolicy("gone", from_tier="archive", to=None, max_age=timedelta(0))
    assert large_app.archive.run([purge]).archived == 1
    store = large_app.store
    assert large_values.sweep_blobs(store, 10, now=store.now() + timedelta(days=9)) == 0
    assert large_app.jobs.get(job.id).result() == "x" * LARGE * 2
