"""A photo shop's work of the last hour for two tenants, on a fixed clock.

The tasks are those of the demo, but they advance the clock instead of working. The screenshots and the accessibility
tests use this data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from tidemill import (
    App,
    BoundTask,
    Breaker,
    Context,
    Cron,
    Daily,
    Every,
    Exponential,
    Fixed,
    JobState,
    Limit,
    ManualClock,
    PermanentError,
    Rate,
    Review,
)
from tidemill.client.access import acting
from tidemill.domain.cluster import Worker
from tidemill.domain.job import Claim, LogEntry, Progress, ProgressReport
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.worker_reports import ProcessFigures, SlotCounts, SupervisorReport, WorkerReport
from tidemill.ids import new_id

NOW = datetime(2026, 9, 7, 12, 40, tzinfo=UTC)
"""The time of the screenshots: a Monday afternoon."""

PAST = timedelta(minutes=58)
TENANTS = ("acme", "globex")
STAGES = ("download", "resize", "upload")
ALBUMS = ("wedding", "summer", "garden", "harbour")
QUEUES = ("media", "partners", "mail", "default")


class Showroom:
    """Fills an app, which must have a manual clock."""

    def __init__(self, app: App) -> None:
        assert isinstance(app.clock, ManualClock)
        self.app, self.clock = app, app.clock
        self.dice = Random(7)
        self.reports: list[ProgressReport] = []  #: progress reports of the running jobs
        self.orders = iter(range(4_181, 9_999))
        self.tasks = self._declare()

    def fill(self) -> None:
        """Create an hour of work that ends now."""
        with acting("ada@example.com"):
            self._plan()
        crew = [self._hired(1)]
        with self.app.testing() as testing:
            while self.clock.now() < NOW - timedelta(seconds=70):
                self._some()
                self._sample()
                testing.drain()
                self._sample()
                self._until(
                    min(
                        NOW - timedelta(seconds=70),
                        self.clock.now() + timedelta(seconds=self.dice.randint(4, 22)),
                    )
                )
                if len(crew) < 2 and self.clock.now() > NOW - timedelta(minutes=19):
                    crew.append(self._hired(2))
            with acting("ada@example.com"):
                self._decide()
                testing.drain()
        with acting("ada@example.com"):
            self._switch()
        self._wait()
        self._until(NOW - timedelta(seconds=9))
        for number, worker in enumerate(crew):
            self._begin(worker, number)
        self._until(NOW)
        store = self.app.store
        self._sample()
        store.report(self.reports, now=NOW)
        store.beat(crew, lease=timedelta(seconds=30), now=NOW)
        store.acquire("duties", crew[0], ttl=timedelta(seconds=10), now=NOW)

    def _until(self, at: datetime) -> None:
        self.clock.advance(max(at - self.clock.now(), timedelta(0)))

    # Tasks ---------------------------------------------------------------------------------------------------------------

    def _declare(self) -> dict[str, BoundTask[Any, Any]]:
        made = (*self._media(), *self._partners(), *self._office())
        return {task.name: task for task in made}

    def _media(self) -> list[BoundTask[Any, Any]]:
        app = self.app

        @app.task(name="resize_photos", queue="media", stages=STAGES, timeout=timedelta(minutes=1))
        def resize_photos(ctx: Context, album: str, photos: int = 8) -> dict[str, int]:
            """Make three sizes of every photo of an album."""
            for number, stage in enumerate(STAGES):
                with ctx.stage(stage):
                    self._work(2.0, 4.5)
                    ctx.progress(
                        (number + 1) * photos, photos * len(STAGES), f"{stage} photo {photos} of {photos}"
                    )
                    ctx.log(f"{stage} is done", album=album, photos=photos)
            return {"photos": photos}

        @app.task(name="transcode", queue="media", max_concurrent=2, timeout=timedelta(minutes=5))
        def transcode(ctx: Context, film: str, minutes: int = 5) -> str:
            """Turn a film into one that browsers play; two at a time."""
            for minute in range(minutes):
                self._work(0.6, 1.4)
                ctx.progress(minute + 1, minutes, f"minute {minute + 1} of {minutes}")
            return f"{film}.webm"

        return [resize_photos, transcode]

    def _partners(self) -> list[BoundTask[Any, Any]]:
        app = self.app
        retry = Exponential(max_attempts=5, wait=timedelta(seconds=5), cap=timedelta(seconds=20))

        @app.task(name="call_partner", queue="partners", retry=retry, breaker=Breaker("partner"))
        def call_partner(ctx: Context, order: int) -> str:
            """Hand an order to the partner; tried again when its server is busy."""
            self._work(0.1, 0.6)
            if self.dice.random() < 0.3:
                raise ConnectionError(f"the partner's server said 503 to order {order}")
            ctx.log("accepted", order=order, attempt=ctx.attempt)
            return "accepted"

        @app.task(
            name="import_invoice", queue="partners", retry=Fixed(max_attempts=3, wait=timedelta(seconds=4))
        )
        def import_invoice(number: int) -> None:
            """Read an invoice of a partner."""
            self._work(0.1, 0.3)
            raise ValueError(f"invoice {number} has no total")

        @app.task(name="charge_card", queue="partners")
        def charge_card(order: int, amount: float = 19.9, card: str = "4242") -> str:
            """Charge a customer's card; a card that is refused is not tried again."""
            self._work(0.2, 0.9)
            if self.dice.random() < 0.25:
                raise PermanentError(f"order {order}: the card has expired")
            return "charged"

        return [call_partner, import_invoice, charge_card]

    def _office(self) -> list[BoundTask[Any, Any]]:
        app = self.app
        per_minute = Rate(20, per=timedelta(minutes=1), by_tenant=True)

        @app.task(name="send_newsletter", queue="mail", limits=[Limit(2, key="list_name"), per_minute])
        def send_newsletter(ctx: Context, list_name: str, edition: int = 1) -> int:
            """Send one edition to a list."""
            self._work(0.5, 2.0)
            ctx.log("sent", list=list_name, edition=edition)
            return edition

        @app.task(name="remind", queue="mail", priority=-10)
        def remind(who: str) -> str:
            """Remind a customer of a basket."""
            self._work(0.05, 0.2)
            return f"reminded {who}"

        @app.task(name="publish_article", retry=None)
        def publish_article(title: str) -> None:
            """Publish an article after a review."""
            raise Review(f"may {title!r} be published?", output={"title": title, "words": 840})

        @app.task(name="count_visitors", priority=10)
        def count_visitors() -> int:
            """Count who was here."""
            self._work(0.01, 0.05)
            return self.dice.randrange(1000)

        return [send_newsletter, remind, publish_article, count_visitors]

    def _work(self, least: float, most: float) -> None:
        self.clock.advance(timedelta(seconds=self.dice.uniform(least, most)))

    # Jobs ----------------------------------------------------------------------------------------------------------------

    def _one(self, name: str, tenant: str | None = None, **args: Any) -> Any:
        chosen = self.tasks[name].using(
            tenant=tenant or self.dice.choice(TENANTS), tags=[args.pop("tag", "shop")]
        )
        return chosen.enqueue(**args)

    def _some(self) -> None:
        kinds: dict[Callable[[], Any], int] = {
            lambda: self._one(
                "resize_photos", album=self.dice.choice(ALBUMS), photos=self.dice.randint(6, 12)
            ): 3,
            lambda: self._one(
                "transcode", film=f"film-{next(self.orders)}", minutes=self.dice.randint(3, 6)
            ): 1,
            lambda: self._one("call_partner", order=next(self.orders)): 5,
            lambda: self._one("charge_card", order=next(self.orders), tag="money"): 4,
            lambda: self._one("send_newsletter", list_name=self.dice.choice(["weekly", "offers"])): 4,
            lambda: self._one("remind", who=self.dice.choice(["ada", "grace", "alan"])): 3,
        }
        for make in self.dice.choices(list(kinds), list(kinds.values()), k=self.dice.randint(1, 4)):
            make()
        if self.dice.random() < 0.04:
            self._one("import_invoice", number=next(self.orders), tag="money")

    def _decide(self) -> None:
        self._issue()
        for title in ("Tides and mills", "On waiting", "The second attempt"):
            self._one("publish_article", title=title, tag="press")
        for job in self.app.jobs.list(status=JobState.FAILED, tenant="acme", limit=1).items:
            job.retry()

    def _issue(self) -> None:
        """Start a flow that waits for the review of its article."""
        with self.app.tenant("acme"):
            flow = self.app.flow("weekly-issue", key="2026-37")
            counted = flow.add(self.tasks["count_visitors"])
            article = flow.add(self.tasks["publish_article"], title="The week in photos").after(counted)
            mailed = flow.add(self.tasks["send_newsletter"], list_name="weekly", edition=37).after(article)
            flow.add(self.tasks["remind"], who="grace").after(mailed)
            flow.start()

    def _switch(self) -> None:
        self.app.control.pause("queue", "partners", reason="the partner moves its servers until three")
        self.app.limits.set("queue/media", 12)

    def _wait(self) -> None:
        for _ in range(14):
            self._one("charge_card", order=next(self.orders), tag="money")
        for number in range(6):
            late = self.tasks["remind"].using(delay=timedelta(minutes=7 * number + 3), tenant="acme")
            late.enqueue(who="grace")
        for number in range(9):
            self._one("send_newsletter", list_name="offers", edition=number + 1)
        self._one("resize_photos", "acme", album="wedding", photos=8)
        self._one("transcode", "acme", film="harbour-at-night", minutes=6)
        self._one("resize_photos", "globex", album="summer", photos=8)

    def _sample(self) -> None:
        """Sample the depth of the queues, as a worker does."""
        now, store = self.clock.now(), self.app.store
        store.put_depths(store.measure_depths(now=now), now=now)

    # Workers -------------------------------------------------------------------------------------------------------------

    def _hired(self, number: int) -> UUID:
        worker = Worker(
            new_id(),
            f"mill-{number}",
            host=f"mill-{number}.example",
            pid=4_016 + number,
            node=f"mill-{number}",
            version=f"0.1.{number - 1}",
            queues=QUEUES,
            tasks=tuple(self.tasks),
            concurrency=8,
            supervisor=new_id(),
            place=1,
            report=WorkerReport(
                SlotCounts(5, 2, 1),
                ProcessFigures(118_400_000 + number * 9_000_000, 0.64 / number),
                SupervisorReport(f"mill-{number}", 4_015, 1, ProcessFigures(43_100_000, 0.012)),
            ),
        )
        return self.app.store.register(worker, lease=timedelta(hours=2), now=self.clock.now()).id

    def _begin(self, worker: UUID, number: int) -> None:
        """Let a worker claim jobs and report progress."""
        store = self.app.store
        lanes = [lane for lane in (*store.lanes(), *store.gates()) if lane.queue == "media"]
        for claim in store.claim(ClaimRequest(worker, lanes, number + 1), now=self.clock.now()):
            if claim.task == "transcode":
                self._report(claim, Progress(2 / 6, 2, 6, "minute 2 of 6"))
            else:
                step = 13 if number == 0 else 10
                self._say(claim, "download is done", "download", {"photos": 8})
                self._say(claim, f"began with {step - 8} of 8 photos", "resize", {"size": "1600 px"})
                self._report(claim, Progress(step / 24, step, 24, f"resize photo {step - 8} of 8", "resize"))

    def _report(self, claim: Claim, progress: Progress) -> None:
        self.reports.append(ProgressReport(claim.id, claim.token, claim.worker, replace(progress, at=NOW)))

    def _say(self, claim: Claim, words: str, stage: str, details: dict[str, object]) -> None:
        now = self.clock.advance(timedelta(seconds=0.5))
        self.app.store.log(
            [LogEntry(claim.id, claim.token, now, words, stage=stage, details=details, worker=claim.worker)]
        )

    # Plans ---------------------------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        add = self.app.schedules.add
        add(self.tasks["count_visitors"], Every(timedelta(minutes=5)), "visitors", tenant="acme")
        add(
            self.tasks["send_newsletter"],
            Cron("0 7 * * MON"),
            "monday-letter",
            timezone="Europe/Berlin",
            tenant="globex",
            args={"list_name": "weekly"},
        )
        add(
            self.tasks["remind"],
            Daily("02:30"),
            "night-reminder",
            timezone="Europe/Berlin",
            tenant="acme",
            args={"who": "all"},
        )
        paused = add(
            self.tasks["resize_photos"],
            Every(timedelta(hours=1)),
            "old-albums",
            tenant="acme",
            args={"album": "archive"},
        )
        self.app.schedules.pause(paused.id, reason="the archive is full", tenant="acme")
        self.app.definitions.save(
            "nightly-letter", self.tasks["send_newsletter"], args={"list_name": "offers"}, name="Nightly letter", owner="ada",
            tenant="acme",
        )  # fmt: skip
        self.app.control.set(
            "alerts.failure_rate", 0.2, description="The share of failures that is worth a look."
        )
        self.app.keys.create("deploys", role="operator", tenant="acme")
        self.app.keys.create("screen in the office", role="viewer")


def beginning() -> ManualClock:
    """The clock for the app."""
    return ManualClock(NOW - PAST)
