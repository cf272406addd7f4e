"""Sample tasks, each of which demonstrates one feature.

They have no effect outside their own job.
"""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from random import Random
from typing import Any

from tidemill.app import App
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.domain.retry import Exponential, Fixed
from tidemill.engine.context import Context
from tidemill.errors import PermanentError, Review
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

    @app.task(name="transcode", queue="media", max_concurrent=2, timeout=timedelta(minutes=1))
    def transcode(ctx: Context, film: str, minutes: int = 5) -> str:
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
        """Fails about every second time, and is tried again a little later."""
        await asyncio.sleep(_dice.uniform(0.1, 0.6))
        if _dice.random() < 0.55:
            raise ConnectionError(f"the partner's server said 503 to order {order}")
        ctx.log("accepted", order=order, attempt=ctx.attempt)
        return "accepted"

    @app.task(name="import_invoice", queue="partners", retry=Fixed(max_attempts=3, wait=timedelta(seconds=4)))
    def import_invoice(number: int) -> None:
        """Never succeeds: after three attempts it is among the dead letters, for a person to look at."""
        raise ValueError(f"invoice {number} has no total")

    @app.task(name="charge_card", queue="partners")
    def charge_card(order: int, card: str = "expired") -> None:
        """An error that a retry would not fix: it fails at once."""
        raise PermanentError(f"order {order}: the card is {card}")

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
        """The work of a schedule that fires every five seconds."""
        await asyncio.sleep(0.05)
        return _dice.randrange(1000)

    return [send_newsletter, remind, publish_article, count_visitors]
