"""Calls that type checkers accept, with the inferred types; never executed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any, assert_type

from tidemill import (
    PROVIDED,
    App,
    ArchivePolicy,
    Breaker,
    Context,
    Cron,
    Duration,
    Every,
    Execution,
    Exponential,
    Fixed,
    Job,
    Provide,
    Rate,
    Retry,
    Snooze,
    Task,
    TaskGroup,
    Unique,
    current,
    open_store,
    task,
)

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


mail = TaskGroup("mail", queue="mail")


@mail.task
def send(to: str) -> bool:
    return bool(to)


@task(queue="media")
async def shrink(ctx: Context, width: int) -> int:
    return width


@mail.scheduled(Cron("0 2 * * *"))
def sweep(days: int = 30) -> int:
    return days


def late_tasks() -> None:
    app.include(mail, shrink, "shop.tasks")
    app.configure("memory://", migrate=True, tenant="acme")
    assert_type(send.enqueue(to="ada"), Job[bool])
    assert_type(send("ada"), bool)
    assert_type(shrink.enqueue(width=1).result(), int)
    assert_type(sweep.enqueue(days=3), Job[int])


class Resize(Task[str, int]):
    def run(self, picture: str, ctx: Context) -> int:
        return len(picture)


resize = app.task(Resize)  # mypy ignores the return type of a class decorator


@app.scheduled(Cron("0 2 * * *"), key="nightly", timezone="Europe/Berlin")
def clean(days: int = 30) -> int:
    return days


@app.scheduled("0 3 * * *", misfire="skip", args={"destination": "/backup"})
async def archive(destination: str) -> str:
    return destination


later = app.scheduled(Cron("0 4 * * *"), key="plain")(plain)

App("memory://", migrate=True, name="shop", args_limit=1000)


def direct_calls(ctx: Context) -> None:
    assert_type(plain(1), float)
    assert_type(clean(), int)
    assert_type(later(2), float)
    assert_type(plain.using(priority=5)(1), float)


async def direct_awaits(ctx: Context) -> None:
    assert_type(await backup(ctx, "/backup"), int)
    assert_type(await archive("/backup"), str)


def scheduled_tasks_keep_their_types() -> None:
    assert_type(clean.enqueue(days=3).result(), int)
    assert_type(archive.enqueue("/backup").result(), str)
    assert_type(later.enqueue(1).result(), float)
    assert_type(app.enqueue("mail.send", to="ada"), Job[Any])


def next_jobs(ctx: Context) -> None:
    assert_type(ctx.then(plain, 1, word="y"), Job[float])
    assert_type(ctx.then(backup.using(priority=5), destination="/backup"), Job[int])


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


def durations(span: Duration) -> None:
    app.task(timeout="10m", limits=[Rate(5, per="1s")], breaker=Breaker("api", window=60, rest="30s"))
    app.task(timeout=600, retry=Exponential(wait="5s", cap=300), unique=Unique(within="1h"))
    assert_type(Fixed(wait=span).wait, timedelta)
    assert_type(Every("6h").interval, timedelta)
    plain.using(delay="10m", timeout=5, expires="1h", run_after=0.5)
    app.schedule(clean, Every(300), jitter="30s", timeout="1h")
    plain.enqueue(1).result(timeout="90s")
    plain.enqueue(1).reschedule("1h")
    App("memory://", retention=[ArchivePolicy("old", states=["failed"], max_age="90d")])
    app.tick("25s")


def signals(execution: Execution) -> Duration:
    if execution.attempt > 1:
        raise Retry(after="10m")
    raise Snooze(60)


async def twins() -> None:
    assert_type(await plain.enqueue(1).arefresh(), Job[float])
    assert_type(await app.jobs.acount(status="failed"), int)
    assert_type((await app.jobs.aget("x")).id == current().job.id, bool)
    open_store("memory://").close()


@asynccontextmanager
async def pool_of(app: App) -> AsyncIterator[str]:
    yield "pool"


def get_pool(ctx: Context) -> str:
    return str(ctx.state)


with_pool = App("memory://", lifespan=pool_of)


@with_pool.task
def query(number: int, pool: Annotated[str, Provide(get_pool)] = PROVIDED) -> int:
    return number


def provided() -> None:
    assert_type(query.enqueue(number=1), Job[int])
