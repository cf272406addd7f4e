"""Sample app whose schedules enqueue jobs and remove old ones.

Old jobs are removed so that the demo can run for days. ``TIDEMILL_STORE`` specifies the store.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from random import Random

from tidemill.app import App
from tidemill.demo.shop import RELEASE
from tidemill.demo.tasks import declare, declare_flow
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.schedule_rules import Cron, Every
from tidemill.domain.states import ENDED, JobState
from tidemill.engine.duties.removal import DropEnded

TENANTS = ("acme", "globex")
KEPT = timedelta(hours=24)
"""How long ended jobs are kept."""

MOST_WAITING = 100
"""Number of waiting jobs above which no more are added, for example while a queue is paused or the worker is stopped.
"""

MOST_REVIEWS = 6

BACKLOG = 6
"""Films that wait while two are transcoded: enough for a limit that is always full, few enough for short waits."""

app = App(name="demo", release=RELEASE, migrate=True)
tasks = declare(app)
start_flow = declare_flow(app)

_dice = Random()  # noqa: S311  (demo data, not a secret)
_numbers = count(_dice.randrange(1_000, 9_000))
_policies = (ArchivePolicy("demo", ENDED, max_age=KEPT),)


def _one(name: str, **args: object) -> None:
    tasks[name].enqueue(**args)


def _photos() -> None:
    _one("resize_photos", album=_dice.choice(["wedding", "summer", "garden"]), photos=_dice.randint(6, 12))


def _reminder() -> None:
    late = timedelta(seconds=_dice.randint(45, 120))
    tasks["remind"].using(delay=late).enqueue(who=_dice.choice(["ada", "grace", "alan"]))


def _article() -> None:
    if app.jobs.count(tenant=ALL_TENANTS, status=JobState.REVIEW_NEEDED) < MOST_REVIEWS:
        _one("publish_article", title=_dice.choice(["Tides and mills", "On waiting", "The second attempt"]))


def _film() -> None:
    if app.jobs.count(tenant=ALL_TENANTS, task=["transcode"], status=JobState.PENDING) < BACKLOG:
        _one("transcode", film=f"film-{next(_numbers)}", minutes=_dice.randint(14, 20))


KINDS: dict[Callable[[], None], int] = {
    _photos: 2,
    _reminder: 3,
    _article: 1,
    _film: 1,
    lambda: _one("call_partner", order=next(_numbers)): 5,
    lambda: _one("import_invoice", number=next(_numbers)): 2,
    lambda: _one(
        "charge_card", order=next(_numbers), card=_dice.choices(("valid", "expired"), (14, 1))[0]
    ): 4,
    lambda: _one("send_newsletter", list_name=_dice.choice(["weekly", "offers"])): 4,
}
"""What to enqueue next, with relative frequencies."""


@app.task(name="make_work", queue="demo", retry=None, timeout=timedelta(seconds=30), record="none")
def make_work(every_kind: bool = False) -> int:
    """A few more jobs, for one tenant or the other; nothing while too much waits."""
    waiting = (JobState.PENDING, JobState.SCHEDULED)
    if app.jobs.count(tenant=ALL_TENANTS, status=waiting) >= MOST_WAITING:
        return 0
    chosen = (
        list(KINDS) if every_kind else _dice.choices(list(KINDS), list(KINDS.values()), k=_dice.randint(1, 2))
    )
    for make in (*chosen, _film):
        with app.tenant(_dice.choice(TENANTS)):
            make()
    return len(chosen)


@app.task(name="start_import", queue="demo", retry=None, timeout=timedelta(seconds=30), record="none")
def start_import() -> None:
    """Start a flow: a job lists pages, one job loads each of them, and the last one publishes all."""
    with app.tenant(_dice.choice(TENANTS)):
        start_flow()


@app.task(name="tidy", queue="demo", retry=None, timeout=timedelta(minutes=1), record="none")
def tidy() -> int:
    """Delete jobs and fires that ended a while ago, so that the demo does not grow without bound."""
    app.store.purge_fires(app.clock.now() - KEPT, limit=1_000)
    return DropEnded(app.store, _policies)().items


app.schedule(make_work, Every(timedelta(seconds=8)), key="a-little-work", misfire="skip")
app.schedule(
    make_work, Every(timedelta(seconds=90)), key="one-of-each", args={"every_kind": True}, misfire="skip"
)
app.schedule(start_import, Every(timedelta(seconds=75)), key="imports", misfire="skip")
app.schedule(tidy, Every(timedelta(minutes=1)), key="tidy", misfire="skip")
app.schedule(tasks["count_visitors"], Every(timedelta(seconds=15)), key="visitors", tenant="acme")
app.schedule(
    tasks["send_newsletter"],
    Cron("0 7 * * MON"),
    key="monday-letter",
    timezone="Europe/Berlin",
    tenant="globex",
    args={"list_name": "weekly"},
)
