"""Rotation of encryption keys: every place is sealed again, and no job is lost."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from tidemill import App, Context, Every, Secret
from tidemill.client.secrets import Rotation
from tidemill.domain.states import JobState
from tidemill.errors import BadArguments, UsageError
from tidemill.tasks.secret_values import KEYS, new_key, open_arguments

K1, K2 = new_key("k1"), new_key("k2")
PIN = "CANARY-4711"


@pytest.fixture(autouse=True)
def _first_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS, K1)


def test_a_rotation_seals_jobs_results_steps_and_definitions_again(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    def issue() -> Secret[str]:
        return Secret(PIN)

    @app.task
    def pay(ctx: Context, card: Secret[str]) -> Secret[str]:
        ctx.step("issue", issue)
        return Secret(card.reveal() + "!")

    done = pay.enqueue(card=Secret(PIN))
    app.testing().drain()
    waiting = pay.enqueue(card=Secret(PIN))
    app.definitions.save("weekly", pay, args={"card": Secret(PIN)})
    assert app.secrets.status().counts == {"k1": 6}
    monkeypatch.setenv(KEYS, f"{K2},{K1}")
    rotation = app.secrets.rotate()
    assert (rotation.active, rotation.resealed, rotation.not_resealed) == ("k2", 6, 0)
    monkeypatch.setenv(KEYS, K2)
    assert app.secrets.status() == ({"k2": 6}, "k2", ())
    assert app.secrets.rotate().resealed == 0
    assert done.result().reveal() == f"{PIN}!"
    triggered = app.definitions.trigger("weekly")
    app.testing().drain()
    assert [job.result().reveal() for job in (waiting, triggered)] == [f"{PIN}!"] * 2
    entries = [
        entry for entry in app.audit.list(tenant="*", limit=100) if entry.entry.action == "secrets.rotated"
    ]
    assert len(entries) == 2


def test_an_interrupted_rotation_is_continued_by_the_next_one(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.client.secrets.BATCH", 3)

    @app.task
    def pay(card: Secret[str]) -> None: ...

    pay.enqueue_many([{"card": Secret(PIN)} for _ in range(10)])
    monkeypatch.setenv(KEYS, f"{K2},{K1}")

    def stop(done: Rotation) -> None:
        if done.resealed >= 6:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        app.secrets.rotate(stop)
    assert app.secrets.status().counts == {"k1": 4, "k2": 6}
    assert app.secrets.rotate().resealed == 4
    assert app.secrets.status().counts == {"k2": 10}


def test_a_rotation_under_load_loses_no_job(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.client.secrets.BATCH", 20)
    seen: list[int] = []

    @app.task
    def pay(card: Secret[str], number: int) -> Secret[int]:
        assert card.reveal() == f"{PIN}{number}"
        seen.append(number)
        return Secret(number)

    pay.enqueue_many([{"card": Secret(f"{PIN}{number}"), "number": number} for number in range(200)])
    monkeypatch.setenv(KEYS, f"{K2},{K1}")
    begun = threading.Event()

    def enqueue_more() -> None:
        for number in range(200, 260):
            pay.enqueue(card=Secret(f"{PIN}{number}"), number=number)
            begun.set()

    more = threading.Thread(target=enqueue_more)
    with app.worker(threads=4):
        more.start()
        begun.wait(60)
        app.secrets.rotate()
        more.join(60)
    app.secrets.rotate()
    app.testing().drain()
    assert sorted(seen) == list(range(260))
    counts = app.secrets.status().counts
    assert set(counts) == {"k2"}
    assert counts["k2"] == 520


def test_a_value_of_a_definition_opens_only_for_its_jobs_and_field(app: App) -> None:
    @app.task
    def pay(card: Secret[str], other: Secret[str] | None = None) -> None: ...

    one = app.definitions.save("one", pay, args={"card": Secret(PIN)})
    two = app.definitions.save("two", pay, args={"card": Secret("another")})
    job = pay.enqueue(card=Secret("x")).id
    assert json.loads(open_arguments(one.args, ["card"], job, one.id))["card"] == PIN
    for definition in (two.id, None):
        with pytest.raises(BadArguments):
            open_arguments(one.args, ["card"], job, definition)
    moved = json.dumps({"other": json.loads(one.args)["card"]})
    with pytest.raises(BadArguments):
        open_arguments(moved, ["other"], job, one.id)


def test_a_schedule_of_a_definition_with_a_secret_fires_jobs_that_open_it(app: App) -> None:
    seen: list[str] = []

    @app.task
    def pay(card: Secret[str], amount: int = 1) -> None:
        seen.append(f"{card.reveal()} {amount}")

    definition = app.definitions.save("weekly", pay, args={"card": Secret(PIN)})
    job = app.definitions.trigger("weekly", args={"amount": 3})
    app.testing().drain()
    row = job.refresh().row
    assert row.state is JobState.COMPLETED
    assert seen == [f"{PIN} 3"]
    stored = repr(app.definitions.get("weekly")) + repr(app.audit.list(tenant="*")) + repr(row)
    assert PIN not in stored
    # A job that a duty fired has the sealed text of the definition itself.
    fired = replace(row.details, definition_id=definition.id)
    assert json.loads(open_arguments(definition.args, ["card"], job.id, fired.definition_id))["card"] == PIN


def test_a_form_shows_a_secret_as_stars_and_keeps_it(app: App) -> None:
    seen: list[str] = []

    @app.task
    def pay(card: Secret[str], amount: int = 1) -> None:
        seen.append(f"{card.reveal()} {amount}")

    app.definitions.save("weekly", pay, args={"card": Secret(PIN)})
    rows = app.definitions.parameters("weekly")
    assert [(row.name, row.type, row.required, row.secret, row.is_set, row.value) for row in rows] == [
        ("card", "string", True, True, True, "***"),
        ("amount", "integer", False, False, False, None),
    ]
    assert [row.default for row in pay.parameters] == [None, 1]
    app.definitions.save("weekly", args={"card": "***", "amount": 2})
    app.definitions.trigger("weekly")
    app.testing().drain()
    assert seen == [f"{PIN} 2"]


def test_a_removed_definition_with_a_secret_can_be_restored(app: App) -> None:
    seen: list[str] = []

    @app.task
    def pay(card: Secret[str]) -> None:
        seen.append(card.reveal())

    app.definitions.save("weekly", pay, args={"card": Secret(PIN)})
    app.definitions.remove("weekly")
    app.definitions.restore("weekly")
    app.definitions.trigger("weekly")
    app.testing().drain()
    assert seen == [PIN]


def test_a_schedule_itself_holds_no_secret(app: App) -> None:
    @app.task
    def pay(card: Secret[str]) -> None: ...

    with pytest.raises(BadArguments, match="save it in a definition"):
        app.schedules.add(pay, Every(timedelta(days=7)), "weekly", args={"card": Secret(PIN)})


def test_values_of_a_missing_key_are_counted_and_kept(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def pay(card: Secret[str]) -> None: ...

    pay.enqueue(card=Secret(PIN))
    monkeypatch.setenv(KEYS, K2)
    assert app.secrets.status() == ({"k1": 1}, "k2", ("k1",))
    assert app.secrets.rotate().not_resealed == 1
    monkeypatch.delenv(KEYS)
    assert app.secrets.status() == ({"k1": 1}, None, ("k1",))
    with pytest.raises(UsageError):
        app.secrets.rotate()
