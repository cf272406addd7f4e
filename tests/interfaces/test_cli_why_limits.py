"""Explanations of why a job is not running where limits are the reason."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.limits_kit import claim
from tests.grounds import url_of

from tidemill import App, Breaker, Job, Limit, Rate
from tidemill.client.access import acting
from tidemill.client.jobs.why import Reason, explain
from tidemill.domain.breaker import BreakerPhase, BreakerState, written
from tidemill.domain.cluster import Worker
from tidemill.domain.lanes import ClaimRequest
from tidemill.ids import new_id

HOUR = timedelta(hours=1)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    url = url_of(request.param, tmp_path, request)
    with App(url, migrate=True) as app:
        yield app


def send(account: int = 7) -> None: ...


def why(app: App, job: Job[None]) -> dict[str, str]:
    (facts,) = app.store.get([job.id], tenant="*")
    found: list[Reason] = explain(app.store, facts, app.clock.now())
    return {reason.code: reason.text for reason in found}


def test_a_full_limit_is_reported_with_its_key_and_its_numbers(app: App) -> None:
    task = app.task(name="mail", limits=[Limit(3, key="account")])(send)
    task.enqueue_many([{}] * 3)
    last, free = task.enqueue(), task.enqueue(account=8)
    assert "limit_full" not in why(app, last)
    claim(app.store, 3)
    assert why(app, last)["limit_full"] == "Limit mail.limit.account/7 is full: 3 of 3 are running."
    assert "limit_full" not in why(app, free)


def test_limits_of_the_queue_and_the_tenant_are_reported(app: App) -> None:
    task = app.task(name="mail", queue="post", max_concurrent=5)(send)
    app.limits.set("queue", 1)
    app.limits.set("tenant/default", 1)
    jobs = task.enqueue_many([{}] * 2)
    lanes = [
        lane._replace(limits=(*lane.limits, "queue/post", "tenant/default")) for lane in app.store.gates()
    ]
    rules = {rule.name: rule for rule in app.store.rules()}
    worker = app.store.register(Worker(new_id(), "w1"), lease=HOUR)
    (first,) = app.store.claim(ClaimRequest(worker.id, lanes, 5, rules=rules))
    last = next(job for job in jobs if job.id != first.id)
    (facts,) = app.store.get([last.id], tenant="*")
    full = [found.text for found in explain(app.store, facts, app.clock.now()) if found.code == "limit_full"]
    assert full == [
        "Limit queue/post is full: 1 of 1 is running.",
        "Limit tenant/default is full: 1 of 1 is running.",
    ]


def test_an_exhausted_rate_reports_when_it_opens(app: App) -> None:
    task = app.task(name="mail", limits=[Rate(2, per=HOUR)])(send)
    task.enqueue_many([{}] * 2)
    last = task.enqueue()
    claim(app.store)
    said = why(app, last)["rate_full"]
    assert said.startswith("Rate mail.rate is used up: 2 begin in 3600 s; there is room in ")
    assert said.endswith(" UTC.")


def test_an_empty_bucket_reports_its_burst(app: App) -> None:
    task = app.task(name="mail", limits=[Rate(1, per=HOUR, burst=1)])(send)
    task.enqueue()
    last = task.enqueue()
    claim(app.store)
    assert why(app, last)["rate_full"].startswith("Rate mail.rate is used up: 1 begin in 3600 s, 1 at once;")


def test_an_open_breaker_reports_since_when_and_its_next_attempt(app: App) -> None:
    task = app.task(name="mail", breaker=Breaker("api"))(send)
    job, other = task.enqueue_many([{}] * 2)
    now = app.clock.now()
    opened = written(BreakerState(BreakerPhase.OPEN, now, now + HOUR))
    assert app.store.change_breaker("breaker/api", None, opened)
    said = why(app, job)["breaker_open"]
    assert said.startswith("The breaker api is open since ")
    assert "it is tried again in " in said
    rested = written(BreakerState(BreakerPhase.OPEN, now - 2 * HOUR, now - HOUR))
    assert app.store.change_breaker("breaker/api", opened, rested)
    assert "breaker_open" not in why(app, job)
    (probe,) = claim(app.store)
    last = other if probe.id == job.id else job
    assert "half open: 1 job tries whether api works again" in why(app, last)["breaker_open"]


def test_a_dropped_or_lifted_limit_blocks_no_job(app: App) -> None:
    task = app.task(name="mail", max_concurrent=1)(send)
    task.enqueue()
    last = task.enqueue()
    claim(app.store)
    assert "limit_full" in why(app, last)
    app.limits.set("task/mail", 0)
    assert "limit_full" not in why(app, last)
    app.store.drop_rules(["task/mail"])
    assert "limit_full" not in why(app, last)


def test_disabled_workers_are_a_reason_with_who_disabled_them(app: App) -> None:
    task = app.task(name="mail")(send)
    pending, later = task.enqueue(), task.using(delay=HOUR).enqueue()
    with acting("ann"):
        app.control.set("worker_enabled", False)
    for job in (pending, later):
        said = why(app, job)["worker_disabled"]
        assert said.startswith("All workers were switched off by ann ")
    app.control.set("worker_enabled", True)
    assert "worker_disabled" not in why(app, pending)
