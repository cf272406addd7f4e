"""Sample tasks, each of which demonstrates one feature.

They have no effect outside their own job.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from tidemill.app import App
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.client.flows.node_jobs import each
from tidemill.demo.pause import QUEUE
from tidemill.demo.shop import book_invoice, charge, send_order
from tidemill.domain.retry import Exponential, Fixed
from tidemill.engine.context import Context
from tidemill.errors import Review
from tidemill.tasks.limits import Limit, Rate

STAGES = ("download", "resize", "upload")

_dice = Random()  # noqa: S311  (demo data, not a secret)


def declare(app: App) -> dict[str, BoundTask[Any, Any]]:
    """Declare all tasks and return them by name."""
    return {task.name: task for task in (*_media(app), *_partners(app), *_office(app))}


def _rest(seconds: float) -> None:
    """Simulate work on a thread without using the CPU."""
    threading.Event().wait(seconds)


def _media(app: App) -> list[BoundTask[Any, Any]]:
    @app.task(name="resize_photos", queue="media", stages=STAGES, timeout=timedelta(minutes=1))
    async def resize_photos(ctx: Context, album: str, photos: int = 8) -> dict[str, int]:
        """Three stages with progress, each photo a step."""
        done = 0
        for stage in STAGES:
            with ctx.stage(stage):
                for photo in range(photos):
                    await asyncio.sleep(0.25)
                    done += 1
                    ctx.progress(done, photos * len(STAGES), f"{stage} photo {photo + 1} of {photos}")
                ctx.log(f"{stage} is done", album=album, photos=photos)
        return {"photos": photos}

    @app.task(name="transcode", queue="media", max_concurrent=2, timeout=timedelta(minutes=2))
    def transcode(ctx: Context, film: str, minutes: int = 15) -> str:
        """At most two at a time: others wait, and say why."""
        for minute in range(minutes):
            _rest(1.0)
            ctx.progress(minute + 1, minutes, f"minute {minute + 1}")
        return f"{film}.webm"

    return [resize_photos, transcode]


def _partners(app: App) -> list[BoundTask[Any, Any]]:
    retry = Exponential(max_attempts=5, wait=timedelta(seconds=5), cap=timedelta(seconds=20))

    @app.task(name="call_partner", queue="partners", retry=retry)
    async def call_partner(ctx: Context, order: int) -> str:
        """Fails now and then, and is tried again a little later."""
        await asyncio.sleep(_dice.uniform(0.1, 0.6))
        answer = send_order(order, _dice, 0.3)
        ctx.log(answer, order=order, attempt=ctx.attempt)
        return answer

    @app.task(name="import_invoice", queue="partners", retry=Fixed(max_attempts=3, wait=timedelta(seconds=4)))
    def import_invoice(number: int) -> int:
        """One in ten has no total since the last release: an error that was resolved, and that is back."""
        _rest(_dice.uniform(0.05, 0.2))
        return book_invoice(number, None if number % 10 == 0 else 20.0 * number)

    @app.task(name="charge_card", queue="partners")
    def charge_card(order: int, card: str = "valid") -> str:
        """With an expired card it fails at once: a retry would not help."""
        _rest(_dice.uniform(0.1, 0.4))
        return charge(order, card)

    return [call_partner, import_invoice, charge_card]


def _office(app: App) -> list[BoundTask[Any, Any]]:
    per_minute = Rate(20, per=timedelta(minutes=1), by_tenant=True)

    @app.task(name="send_newsletter", queue="mail", limits=[Limit(2, key="list_name"), per_minute])
    async def send_newsletter(ctx: Context, list_name: str, edition: int = 1) -> int:
        """Two at a time for each list, and twenty a minute for each tenant."""
        await asyncio.sleep(_dice.uniform(0.5, 2.0))
        ctx.log("sent", list=list_name, edition=edition)
        return edition

    @app.task(name="remind", queue="mail", priority=-10)
    async def remind(who: str) -> str:
        """Enqueued for a minute from now: it waits among the scheduled."""
        await asyncio.sleep(0.1)
        return f"reminded {who}"

    @app.task(name="publish_article", retry=None)
    def publish_article(title: str) -> None:
        """Asks a person: approve or reject it."""
        raise Review(f"may {title!r} be published?", output={"title": title})

    @app.task(name="count_visitors", priority=10)
    async def count_visitors() -> int:
        """The work of a schedule that fires every fifteen seconds."""
        await asyncio.sleep(0.05)
        return _dice.randrange(1000)

    @app.task(name="export_orders", queue=QUEUE)
    def export_orders(month: str) -> str:
        """Its queue is paused: the jobs wait until a person resumes it."""
        _rest(1.0)
        return f"orders-{month}.csv"

    return [send_newsletter, remind, publish_article, count_visitors, export_orders]


def declare_flow(app: App) -> Callable[[], None]:
    """Declare the tasks of a flow, and return the function that starts one."""

    @app.task(name="list_pages", queue="imports")
    async def list_pages(ctx: Context, shop: str) -> list[int]:
        """The first node: its result decides how many jobs follow."""
        await asyncio.sleep(1.0)
        pages = list(range(1, _dice.randint(5, 8)))
        ctx.log("found pages", shop=shop, pages=len(pages))
        return pages

    @app.task(name="load_page", queue="imports")
    async def load_page(ctx: Context, shop: str, page: int) -> int:
        """One job for each page, two at a time."""
        await asyncio.sleep(_dice.uniform(3.0, 7.0))
        ctx.log("loaded", shop=shop, page=page)
        return page * 20

    @app.task(name="publish_import", queue="imports")
    async def publish_import(ctx: Context, shop: str, orders: list[int]) -> int:
        """The last node: it begins when all pages are loaded, and gets their results."""
        await asyncio.sleep(1.5)
        ctx.log("published", shop=shop, orders=sum(orders))
        return sum(orders)

    def start() -> None:
        shop = _dice.choice(["berlin", "lisbon", "oslo"])
        flow = app.flow(f"import {shop}")
        pages = flow.add(list_pages, shop=shop)
        loaded = flow.map(load_page, shop=shop, page=each(pages.result)).at_once(2)
        flow.add(publish_import, shop=shop, orders=loaded.results)
        flow.start()

    return start
