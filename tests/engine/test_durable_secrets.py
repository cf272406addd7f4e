"""Tests of secrets in durable functions: nothing of them is readable in the store."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.grounds import url_of

from tidemill import RESULT, App, Context, ManualClock, PermanentError, Secret, Step, undo
from tidemill.domain.filters import JobFilter

PIN = "pin-4711-of-ada"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setenv("TIDEMILL_ENCRYPTION_KEYS", f"k1:{base64.b64encode(os.urandom(32)).decode()}")
    url = url_of(request.param, tmp_path, request)
    with App(url, clock=ManualClock(), migrate=True) as app:
        yield app


def stored(app: App) -> str:
    """All that the store has about the jobs."""
    rows = app.store.jobs(JobFilter("default")).items
    texts = [repr(rows)]
    for row in rows:
        texts.append(repr(app.store.checkpoints(row.id, tenant="default")))
        texts.append(repr(app.store.executions([row.id], tenant="default")))
        texts.append(repr(app.store.logs(row.id, tenant="default")))
    return "\n".join(texts)


def test_secret_arguments_of_child_jobs_are_sealed(app: App) -> None:
    seen: list[str] = []

    @app.task
    def child(pin: Secret[str], n: int) -> int:
        seen.append(pin.reveal())
        return n

    @app.task
    def parent(ctx: Context, pin: Secret[str]) -> list[int]:
        first = ctx.call("one", child, pin=pin, n=0)
        return [first, *ctx.map("many", child, [{"pin": pin, "n": n} for n in (1, 2)])]

    job = parent.enqueue(pin=Secret(PIN))
    with app.testing() as testing:
        testing.run_until_idle(raise_errors=True)
    assert job.result(timeout=1) == [0, 1, 2]
    assert seen == [PIN] * 3
    assert PIN not in stored(app)
    assert stored(app).count("$sealed") == 4


def test_secret_arguments_of_the_next_job_are_sealed(app: App) -> None:
    seen: list[str] = []

    @app.task
    def loop(ctx: Context, pin: Secret[str], turn: int = 0) -> None:
        seen.append(pin.reveal())
        ctx.step("turn", int, turn)
        if turn < 2:
            ctx.again(turn=turn + 1)

    loop.enqueue(pin=Secret(PIN))
    with app.testing() as testing:
        testing.run_until_idle(raise_errors=True)
    assert seen == [PIN] * 3
    assert PIN not in stored(app)


def test_secret_arguments_of_a_compensation_are_sealed(app: App) -> None:
    seen: list[tuple[str, str | None]] = []

    @app.task
    def revert(pin: Secret[str], token: Secret[str] | None) -> None:
        seen.append((pin.reveal(), None if token is None else token.reveal()))

    def book() -> Secret[str]:
        return Secret(f"token of {PIN}")

    @app.task
    def saga(ctx: Context, pin: Secret[str]) -> None:
        token = ctx.step(Step("book", compensate=undo(revert, pin=pin, token=RESULT)), book)
        ctx.sleep("rest", timedelta(hours=1))
        raise PermanentError(f"the token was {token.reveal()}")

    saga.enqueue(pin=Secret(PIN))
    with app.testing() as testing:
        testing.run_until_idle()
    assert seen == [(PIN, f"token of {PIN}")]
    assert PIN not in stored(app)


def test_a_secret_result_of_a_child_job_is_opened_for_its_parent(app: App) -> None:
    @app.task
    def issue() -> Secret[str]:
        return Secret(PIN)

    @app.task
    def parent(ctx: Context) -> bool:
        return ctx.call("one", issue) == Secret(PIN) and ctx.map("many", issue, [{}]) == [Secret(PIN)]

    job = parent.enqueue()
    with app.testing() as testing:
        testing.run_until_idle(raise_errors=True)
    assert job.result(timeout=1) is True
    assert PIN not in stored(app)


def test_a_recorded_failure_has_no_secret(app: App) -> None:
    def fail(pin: str) -> None:
        raise ValueError("refused", pin)

    @app.task
    def parent(ctx: Context, pin: Secret[str]) -> str:
        try:
            ctx.step("try", fail, pin.reveal())
        except ValueError:
            ctx.sleep("rest", timedelta(hours=1))
        return "done"

    job = parent.enqueue(pin=Secret(PIN))
    with app.testing() as testing:
        testing.run_until_idle(raise_errors=True)
    assert job.result(timeout=1) == "done"
    assert PIN not in stored(app)
