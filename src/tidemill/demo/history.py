"""A day of ended jobs, written before the demo starts: ``python -m tidemill.demo.history STORE``.

The jobs run in this process on a clock that begins a day ago: their bodies advance it instead of working. They have the
names and queues of the demo's tasks, so that charts and lists join the past with the present. The day has a story: the server of a
partner is down for a while, an error is resolved, and a new release brings it back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from math import pi, sin
from random import Random

from tidemill.app import App
from tidemill.client.access import acting
from tidemill.clock import ManualClock, SystemClock
from tidemill.demo.pause import QUEUE, REASON
from tidemill.demo.shop import FORMER_RELEASE, RELEASE, book_invoice, charge, send_order
from tidemill.domain.depths import sample_minute
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.retry import Exponential, Fixed
from tidemill.engine.context import Context

LENGTH = timedelta(hours=24)
TENANTS = ("acme", "acme", "globex")
STEP, SHORT_STEP = timedelta(minutes=7), timedelta(seconds=55)
LAST = timedelta(minutes=65)
"""The last part of the day, which has as many jobs as the demo will have: the overview shows an hour at first."""

RATE, LAST_RATE = 12, 28
"""Jobs of a step, about."""

OUTAGE = (9.0, 10.5)
"""Hours before now between which the partner's server answers few calls."""

FORMER_DEPLOY, RESOLVED, DEPLOY = timedelta(hours=21), timedelta(hours=3), timedelta(minutes=26)
"""How long ago each release started, and when a person resolved the error that the second one brought back."""

ADA = "ada@example.com"

FILMS = 6
"""Films that wait when the demo starts, so that the limit of transcoding is full at once."""


class History:
    """Tasks that advance a clock, and the jobs of a day."""

    def __init__(self, store: str, random: Random) -> None:
        self.today = SystemClock()
        self.clock = ManualClock(self.today.now() - LENGTH)
        self.app = App(store, clock=self.clock, migrate=True, name="demo")
        self.random = random
        self._sampled: datetime | None = None
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
        def transcode(film: str, minutes: int = 15) -> str:
            self._work(minutes, minutes + 0.4)
            return f"{film}.webm"

        @app.task(name="call_partner", queue="partners", retry=retry)
        def call_partner(ctx: Context, order: int) -> str:
            self._work(0.1, 0.6)
            answer = send_order(order, self.random, 0.9 if OUTAGE[0] < self._hours_ago() < OUTAGE[1] else 0.1)
            ctx.log(answer, order=order, attempt=ctx.attempt)
            return answer

        @app.task(
            name="import_invoice", queue="partners", retry=Fixed(max_attempts=3, wait=timedelta(seconds=4))
        )
        def import_invoice(number: int) -> int:
            self._work(0.05, 0.2)
            broken = self.left > RESOLVED + timedelta(hours=1) or self.left < DEPLOY
            return book_invoice(number, None if broken and number % 10 == 0 else 20.0 * number)

        @app.task(name="charge_card", queue="partners")
        def charge_card(order: int, card: str = "valid") -> str:
            self._work(0.2, 0.9)
            return charge(order, card)

        @app.task(name="send_newsletter", queue="mail")
        def send_newsletter(ctx: Context, list_name: str, edition: int = 1) -> int:
            self._work(0.5, 2.0)
            ctx.log("sent", list=list_name, edition=edition)
            return edition

        @app.task(name="export_orders", queue=QUEUE)
        def export_orders(month: str) -> None: ...

        # The demo runs these two when it starts.
        @app.task(name="make_work", queue="demo", retry=None, record="none")
        def make_work(every_kind: bool = False) -> None: ...

        @app.task(name="start_import", queue="demo", retry=None, record="none")
        def start_import() -> None: ...

    @property
    def left(self) -> timedelta:
        """The time until now, which moves on while the day is written."""
        return self.today.now() - self.clock.now()

    def _hours_ago(self) -> float:
        return self.left / timedelta(hours=1)

    def _work(self, least: float, most: float) -> None:
        self.clock.advance(timedelta(seconds=self.random.uniform(least, most)))
        self._sample()

    def _sample(self) -> None:
        """Sample the depth of the queues once a minute, as a worker does."""
        now, store = self.clock.now(), self.app.store
        if sample_minute(now) != self._sampled:
            self._sampled = sample_minute(now)
            store.put_depths(store.measure_depths(now=now), now=now)

    def write(self) -> int:
        """Run the jobs of a day, pause a queue with a backlog, and return the number of jobs."""
        made = 0
        events: list[tuple[timedelta, Callable[[], None]]] = [
            (FORMER_DEPLOY, lambda: self._deploy(FORMER_RELEASE)),
            (RESOLVED, self._resolve),
            (DEPLOY, lambda: self._deploy(RELEASE)),
        ]
        with self.app.testing() as testing:
            while self.left > SHORT_STEP:
                while events and self.left <= events[0][0]:
                    events.pop(0)[1]()
                busy = 1 + sin(pi * (self.left / timedelta(hours=12) + 0.5)) / 2
                is_last = self.left <= LAST
                began = self.clock.now()
                for _ in range(
                    round(self.random.uniform(0.7, 1.3) * (LAST_RATE if is_last else RATE * busy))
                ):
                    self._enqueue()
                    made += 1
                self._sample()
                testing.drain()
                ends = began + (SHORT_STEP if is_last else STEP) * self.random.uniform(0.8, 1.0)
                if (rest := ends - self.clock.now()) > timedelta(0):
                    self.clock.advance(rest)
                self._sample()
        self.clock.advance(max(timedelta(0), self.left - timedelta(minutes=2)))
        with acting(ADA):
            self.app.control.pause("queue", QUEUE, reason=REASON)
        with self.app.tenant("acme"):
            for number in range(12):
                self.app.enqueue("export_orders", month=f"2026-{number + 1:02}")
        self.clock.advance(max(timedelta(0), self.left - timedelta(seconds=20)))
        for _ in range(FILMS):
            self._enqueue("transcode")
        self.app.enqueue("make_work", every_kind=True)
        self.app.enqueue("start_import")
        return made + 12 + FILMS + 2

    def _deploy(self, release: str) -> None:
        self.app.store.note_deploy("demo", release, now=self.clock.now())

    def _resolve(self) -> None:
        """Resolve the error of the invoices for all tenants."""
        groups = self.app.errors.list("24h", task="import_invoice", tenant=ALL_TENANTS)
        with acting(ADA):
            for group in groups:
                self.app.errors.resolve(group.fingerprint, tenant=ALL_TENANTS)

    def _enqueue(self, name: str | None = None) -> None:
        number, random = next(self.orders), self.random
        args: dict[str, dict[str, object]] = {
            "call_partner": {"order": number},
            "charge_card": {"order": number, "card": random.choices(("valid", "expired"), (14, 1))[0]},
            "send_newsletter": {"list_name": random.choice(("weekly", "offers"))},
            "resize_photos": {
                "album": random.choice(("wedding", "summer")),
                "photos": random.randint(6, 12),
            },
            "import_invoice": {"number": number},
            "transcode": {"film": f"film-{number}", "minutes": random.randint(10, 18)},
        }
        name = name or random.choices(list(args), (6, 4, 4, 2, 2, 1))[0]
        with self.app.tenant(random.choice(TENANTS)):
            self.app.enqueue(name, **args[name])

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
