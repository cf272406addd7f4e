"""The first example of the documentation on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tidemill import App, Context, Exponential, JobState


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_the_first_example_runs_on_every_store(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    match kind:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/jobs.db"
        case _:
            url = request.getfixturevalue("fresh_postgres_url")
    app = App(url, migrate=True)
    copied: list[tuple[str, str]] = []

    def media() -> Iterator[str]:
        yield from ("a.png", "b.png", "c.png")

    async def copy(item: str, destination: str) -> None:
        copied.append((item, destination))

    @app.task(queue="media", retry=Exponential(max_attempts=5), timeout=timedelta(minutes=10))
    async def backup(destination: str, ctx: Context) -> int:
        done = 0
        for item in ctx.track(media(), message="exporting"):
            with ctx.stage("copy"):
                await copy(item, destination)
            done += 1
        ctx.log("backed up", items=done)
        return done

    job = backup.enqueue(destination="/backup")  # type: ignore[call-arg]
    app.testing().drain(raise_errors=True)
    assert job.result(timeout=600) == 3
    assert copied == [("a.png", "/backup"), ("b.png", "/backup"), ("c.png", "/backup")]
    assert job.status is JobState.COMPLETED
    assert job.max_attempts == 5
    assert "backed up" in [entry.message for entry in job.logs()]
    app.close()


def test_async_iterables_can_be_tracked() -> None:
    app = App("memory://")

    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    @app.task
    async def add(ctx: Context) -> int:
        return sum([number async for number in ctx.track(numbers(), total=3)])

    job = add.enqueue()
    app.testing().drain(raise_errors=True)
    assert job.result() == 3
    app.close()
