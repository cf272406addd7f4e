"""A day of ended jobs, written before the demo starts: ``python -m tidemill.demo.history STORE``.

The jobs run in this process on a clock that begins a day ago: their bodies advance it instead of working. They have the
names and queues of the demo's tasks, so that charts and lists join the past with the present.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from math import pi, sin
from random import Random

from tidemill.app import App
from tidemill.client.access import acting
from tidemill.clock import ManualClock, SystemClock
from tidemill.demo.pause import QUEUE, REASON
from tidemill.domain.retry import Exponential, Fixed
from tidemill.engine.context import Context
from tidemill.errors import PermanentError

LENGTH = timedelta(hours=24)
TENANTS = ("acme", "acme", "globex")
STEP, SHORT_STEP = timedelta(minutes=7), timedelta(seconds=75)
LAST = timedelta(minutes=70)
"""The last part of the day, which has more jobs: the overview shows an hour at first."""

OUTAGE = (9.0, 10.5)
"""Hours before now between which the partner's server answers few calls, so that the charts show a story."""


class History:
    """Tasks that advance a clock, and the jobs of a day."""

    def __init__(self, store: str, random: Random) -> None:
        self.now = SystemClock().now()
        self.clock = ManualClock(self.now - LENGTH)
        self.app = App(store, clock=self.clock, migrate=True, name="demo")
        self.random = random
        self.orders = iter(range(1_000, 9_999))
        self._declare()

    def _declare(self) -> None:
        app, retry = (
            self.app,
            Exponential(max_attempts=5, wait=timedelta(seconds=5), cap=timedelta(seconds=20)),
        )

        @app.task(name="resize_photos", queue="media")
        def resize_photos(ctx: Context, album: str, photos: int = 8) -> dict[str, int]:
            for stage in ("download", "resize", "upload"):
                with ctx.stage(stage):
                    self._work(photos * 0.2, photos * 0.3)
                    ctx.log(f"{stage} is done", album=album, photos=photos)
            return {"photos": photos}

        @app.task(name="transcode", queue="media", max_concurrent=2)
        def transcode(film: str, minutes: int = 5) -> str:
            self._work(minutes, minutes + 0.4)
            return f"{film}.webm"

        @app.task(name="call_partner", queue="partners", retry=retry)
        def call_partner(ctx: Context, order: int) -> str:
            self._work(0.1, 0.6)
            if self.random.random() < (0.9 if OUTAGE[0] < self._hours_ago() < OUTAGE[1] else 0.1):
                raise ConnectionError(f"the partner's server said 503 to order {order}")
            ctx.log("accepted", order=order, attempt=ctx.attempt)
            return "accepted"

        @app.task(
            name="import_invoice", queue="partners", retry=Fixed(max_attempts=3, wait=timedelta(seconds=4))
        )
        def import_invoice(number: int) -> int:
            self._work(0.05, 0.2)
            if number % 25 == 0 and self._hours_ago() > 2:
                raise ValueError(f"invoice {number} has no total")
            return number

        @app.task(name="charge_card", queue="partners")
        def charge_card(order: int, card: str = "valid") -> str:
            self._work(0.2, 0.9)
            if card != "valid":
                raise PermanentError(f"order {order}: the card is {card}")
            return "charged"

        @app.task(name="send_newsletter", queue="mail")
        def send_newsletter(ctx: Context, list_name: str, edition: int = 1) -> int:
            self._work(0.5, 2.0)
            ctx.log("sent", list=list_name, edition=edition)
            return edition

        @app.task(name="export_orders", queue=QUEUE)
        def export_orders(month: str) -> None: ...

    def _hours_ago(self) -> float:
        return (self.now - self.clock.now()) / timedelta(hours=1)

    def _work(self, least: float, most: float) -> None:
        self.clock.advance(timedelta(seconds=self.random.uniform(least, most)))

    def write(self) -> int:
        """Run the jobs of a day, pause a queue with a backlog, and return the number of jobs."""
        made = 0
        with self.app.testing() as testing:
            while (left := self.now - self.clock.now()) > SHORT_STEP:
                busy = 1 + sin(pi * (left / timedelta(hours=12) + 0.5))
                for _ in range(round(self.random.uniform(0.6, 1.6) * (1 + busy * 1.6))):
                    self._enqueue()
                    made += 1
                testing.drain()
                self.clock.advance((STEP if left > LAST else SHORT_STEP) * self.random.uniform(0.5, 1.0))
        self.clock.advance(max(timedelta(0), self.now - self.clock.now() - timedelta(minutes=2)))
        with acting("ada@example.com"):
            self.app.control.pause("queue", QUEUE, reason=REASON)
        with self.app.tenant("acme"):
            for number in range(12):
                self.app.enqueue("export_orders", month=f"2026-{number + 1:02}")
        return made + 12

    def _enqueue(self) -> None:
        number, random = next(self.orders), self.random
        name, args = random.choices(
            (
                ("call_partner", {"order": number}),
                ("charge_card", {"order": number, "card": random.choices(("valid", "expired"), (19, 1))[0]}),
                ("send_newsletter", {"list_name": random.choice(("weekly", "offers"))}),
                (
                    "resize_photos",
                    {"album": random.choice(("wedding", "summer")), "photos": random.randint(6, 12)},
                ),
                ("import_invoice", {"number": number}),
                ("transcode", {"film": f"film-{number}", "minutes": random.randint(3, 6)}),
            ),
            (5, 3, 4, 2, 2, 1),
        )[0]
        with self.app.tenant(random.choice(TENANTS)):
            self.app.enqueue(name, **args)

    def close(self) -> None:
        """Close the store."""
        self.app.close()


def main(store: str) -> None:
    """Write a day into an empty store; leave one with jobs as it is."""
    history = History(store, Random(7))  # noqa: S311  (demo data, not a secret)
    try:
        if not history.app.jobs.count(tenant="*"):
            history.write()
    finally:
        history.close()


if __name__ == "__main__":
    main(sys.argv[1])
