"""An app with a lifespan and providers for runner and child processes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from tidemill import App, Context, Provide

STORE, NOTES, KIND = "LIFESPAN_STORE", "LIFESPAN_NOTES", "LIFESPAN_KIND"


@dataclass
class Pool:
    """Stands for a connection pool, which belongs to one event loop."""

    loop: asyncio.AbstractEventLoop | None
    lent: list[str] = field(default_factory=list)


def note(text: str) -> None:
    with Path(os.environ[NOTES]).open("a") as file:
        file.write(f"{text} {os.getpid()}\n")


@asynccontextmanager
async def async_lifespan(_: App) -> AsyncIterator[Pool]:
    note("entered")
    # A broken tear-down or set-up on another loop would raise here.
    async with asyncio.TaskGroup():
        yield Pool(asyncio.get_running_loop())
    note("left")


@contextmanager
def plain_lifespan(_: App) -> Iterator[Pool]:
    note("entered")
    yield Pool(None)
    note("left")


@asynccontextmanager
async def failing_lifespan(app: App) -> AsyncIterator[Pool]:
    if app.registry:
        raise ConnectionError("the database refuses connections")
    yield Pool(None)


_LIFESPANS: dict[str, Any] = {"async": async_lifespan, "plain": plain_lifespan, "failing": failing_lifespan}
app = App(os.environ.get(STORE), lifespan=_LIFESPANS[os.environ.get(KIND, "async")])


async def lend(ctx: Context) -> AsyncIterator[Pool]:
    pool: Pool = ctx.state
    if pool.loop is not None:
        assert pool.loop is asyncio.get_running_loop()
    pool.lent.append("lent")
    yield pool
    pool.lent.append("returned")


def lend_name(pool: Annotated[Pool, Provide(lend)]) -> Iterator[str]:
    yield "name"
    pool.lent.append("name returned")


def used(pool: Pool, again: Pool, name: str) -> list[str]:
    assert pool is again
    assert name == "name"
    return [str(threading.get_ident()), *pool.lent]


Lent = Annotated[Pool, Provide(lend)]
Name = Annotated[str, Provide(lend_name)]


@app.task(retry=None)
def plain(pool: Lent, again: Lent, name: Name) -> list[str]:
    return used(pool, again, name)


@app.task(retry=None)
async def coroutine(pool: Lent, again: Lent, name: Name) -> list[str]:
    await asyncio.sleep(0)
    return used(pool, again, name)


@app.task(retry=None, isolation="process")
def plain_apart(pool: Lent, again: Lent, name: Name) -> list[str]:
    return used(pool, again, name)


@app.task(retry=None, isolation="process")
async def coroutine_apart(pool: Lent, again: Lent, name: Name) -> list[str]:
    await asyncio.sleep(0)
    return used(pool, again, name)


@app.task(retry=None)
def lent_so_far(ctx: Context) -> list[str]:
    return list(ctx.state.lent)
