"""Calls that type checkers accept, with the types they find. Never run."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from tidemill import App, Context, Exponential, Job, Task, Unique

app = App("memory://")


@app.task
def plain(number: int, word: str = "x") -> float:
    return number / len(word)


@app.task(
    queue="media",
    retry=Exponential(max_attempts=5),
    timeout=timedelta(minutes=10),
    unique=Unique(by=("destination",)),
)
async def backup(ctx: Context, destination: str) -> int:
    ctx.log("backed up", to=destination)
    return 1


class Resize(Task[str, int]):
    def run(self, picture: str, ctx: Context) -> int:
        return len(picture)


resize = app.task(Resize)  # mypy does not look at what a decorator makes of a class


def sync_calls() -> None:
    assert_type(plain.enqueue(1), Job[float])
    assert_type(plain.enqueue(number=1, word="y").result(), float)
    assert_type(backup.enqueue(destination="/backup").result(timeout=600), int)
    assert_type(
        plain.using(priority=5, delay=timedelta(seconds=1), tags=["a"]).enqueue(2).value, float | None
    )
    assert_type(plain.enqueue_many([{"number": 1}]), list[Job[float]])
    assert_type(resize.enqueue("a.png").result(), int)
    nightly = app.recipe(queue="night")
    assert_type(nightly(plain).enqueue(3).result(), float)


async def async_calls() -> None:
    job = await backup.aenqueue(destination="/backup")
    assert_type(job, Job[int])
    assert_type(await job, int)
    assert_type(await job.aresult(timeout=5), int)
    async for seen in job.awatch():
        assert_type(seen, Job[int])
