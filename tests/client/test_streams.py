"""Streams of jobs: written by a running job, read live, late and again, on every store."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from itertools import islice

import pytest

from tidemill import App, Context, Fixed, StreamItem
from tidemill.domain import streams
from tidemill.domain.streams import StreamPosition, read_position
from tidemill.errors import BadFilter, BadSettings, JobNotFound, PayloadTooLarge, UsageError
from tidemill.ids import new_id

TOKENS = 300
PATIENCE = 60.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Lets a job continue."""
    event = threading.Event()
    yield event
    event.set()


def _values(items: list[StreamItem]) -> list[object]:
    return [item.value for item in items]


def test_late_and_reconnecting_readers_get_every_token_in_order(app: App, gate: threading.Event) -> None:
    @app.task
    def talk(ctx: Context) -> None:
        tokens = ctx.stream("tokens")
        began = time.monotonic()
        for n in range(TOKENS):
            tokens.write(f"token {n}")
            # A model writes 300 tokens per second.
            if (early := began + n / TOKENS - time.monotonic()) > 0:
                threading.Event().wait(early)
            if n == TOKENS // 2:
                gate.wait(PATIENCE)

    with app.worker():
        job = talk.enqueue()
        expected: list[object] = [f"token {n}" for n in range(TOKENS)]
        first = list(islice(job.stream("tokens"), TOKENS // 2))
        # The job cannot end before the first readers have read half of it live.
        late = list(islice(app.jobs.get(job.id).stream("tokens"), 100))
        gate.set()
        rest = list(job.stream("tokens", after=first[-1].id))
        assert _values(first) + _values(rest) == expected
        assert _values(late) + _values(list(job.stream("tokens", after=late[-1].id))) == expected
        assert [item.index for item in first + rest] == list(range(1, TOKENS + 1))
        job.result(PATIENCE)
        # After the end the whole stream is still there.
        assert _values(list(job.stream("tokens"))) == expected
        assert job.streams() == {"tokens": TOKENS}


def test_a_coroutine_writes_and_reads_a_stream(app: App) -> None:
    @app.task
    async def talk(ctx: Context) -> None:
        for n in range(50):
            ctx.stream("tokens").write(n)
            await asyncio.sleep(0)

    async def read() -> list[StreamItem]:
        job = await talk.aenqueue()
        return [item async for item in job.astream("tokens")]

    with app.worker():
        assert _values(asyncio.run(read())) == list(range(50))


def test_readers_see_that_the_job_runs_again(app: App) -> None:
    @app.task(retry=Fixed(max_attempts=2, wait=0))
    def talk(ctx: Context) -> None:
        for word in ("so", "it", "goes")[: 3 if ctx.attempt == 2 else 2]:
            ctx.stream("tokens").write(word)
        if ctx.attempt == 1:
            raise ConnectionError("the model is gone")

    with app.worker():
        job = talk.enqueue()
        items = [(item.execution, item.index, item.value) for item in job.stream("tokens")]
    assert items == [(1, 1, "so"), (1, 2, "it"), (2, 1, "so"), (2, 2, "it"), (2, 3, "goes")]


def test_a_stream_stays_with_an_archived_job(app: App) -> None:
    @app.task
    def talk(ctx: Context) -> None:
        ctx.stream("tokens").write("a", {"b": [1, None]})

    job = talk.enqueue()
    app.testing().drain()
    app.archive.run(older_than=0)
    archived = app.jobs.get(job.id)
    assert archived.archived_at is not None
    assert _values(list(archived.stream("tokens"))) == ["a", {"b": [1, None]}]
    assert [item.value for item in archived.stream("tokens", after="1-1")] == [{"b": [1, None]}]
    assert archived.streams() == {"tokens": 2}
    app.archive.restore([job.id])
    assert _values(list(app.jobs.get(job.id).stream("tokens"))) == ["a", {"b": [1, None]}]


def test_a_stream_of_an_unknown_job_is_refused() -> None:
    with App("memory://") as app:

        @app.task
        def talk() -> None: ...

        job = talk.enqueue()
        assert list(job.cancel().stream("tokens")) == []
        with pytest.raises(BadFilter, match="not a position in a stream"):
            next(job.stream("tokens", after="seven"))
        with pytest.raises(BadSettings, match="a stream's name"):
            job.stream("")
        job.delete()
        with pytest.raises(JobNotFound):
            next(job.stream("tokens"))
        with pytest.raises(JobNotFound):
            app.jobs.get(new_id())


def test_items_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = streams.StreamVolume()
    with pytest.raises(PayloadTooLarge, match="65,538 bytes, and the limit is 65,536"):
        volume.encode("tokens", ["x" * streams.MOST_ITEM])
    with pytest.raises(UsageError, match="cannot take a value of type object"):
        volume.encode("tokens", [object()])
    with pytest.raises(UsageError, match="cannot take a value of type float"):
        volume.encode("tokens", [float("nan")])
    assert volume.encode("tokens", ["ä", 1]) == [(1, '"\\u00e4"'), (2, "1")]
    assert volume.encode("other", [None]) == [(1, "null")]
    monkeypatch.setattr(streams, "MOST_ITEMS", 4)
    with pytest.raises(PayloadTooLarge, match="streams of this execution are full: 3 items"):
        volume.encode("tokens", [1, 2])
    assert volume.encode("tokens", [2]) == [(3, "2")]
    monkeypatch.setattr(streams, "MOST_BYTES", 1)
    with pytest.raises(PayloadTooLarge, match="limits are 4 items and 1 bytes"):
        volume.encode("tokens", [3])


def test_a_position_is_read_as_it_is_written() -> None:
    assert read_position(StreamPosition(2, 15).text()) == StreamPosition(2, 15)
    assert StreamItem(2, 15, "x").id == "2-15"
    for wrong in ("", "1", "1-", "-1", "a-b", "1-2-3"):
        with pytest.raises(BadFilter):
            read_position(wrong)
