"""Secret arguments and results: sealed in the store, opened in the worker, hidden everywhere else."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.interfaces.dashboard.kit import House

from tidemill import App, Context, Limit, PermanentError, Secret, Unique
from tidemill.client.core import client_of
from tidemill.domain import masks
from tidemill.domain.masks import masked
from tidemill.domain.states import JobState
from tidemill.engine.sanitize import scrubbed
from tidemill.errors import BadArguments, BadSettings
from tidemill.tasks.secret_values import KEYS, MOST_SCRUBBED, KeyRing, key_ring, new_key, seal_arguments

CANARY = "CANARY-hunter2-🦊-"


@pytest.fixture(autouse=True)
def ring(monkeypatch: pytest.MonkeyPatch) -> KeyRing:
    monkeypatch.setenv(KEYS, new_key("k1"))
    return key_ring()


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://") as made:
        yield made


def test_a_secret_argument_is_sealed_and_the_task_gets_it(app: App) -> None:
    @app.task
    def pay(card: Secret[str], amount: int, codes: Secret[list[int]] | None = None) -> Secret[str]:
        total = 0 if codes is None else sum(codes.reveal())
        return Secret(f"{card.reveal()} {amount} {total}")

    jobs = [
        pay.enqueue(card=Secret(CANARY), amount=1, codes=Secret([40001, 40002])),
        pay.enqueue(Secret(CANARY), 2),
    ]
    assert all(CANARY not in job.row.args and "40001" not in job.row.args for job in jobs)
    assert jobs[0].row.args != jobs[1].row.args
    app.testing().drain()
    assert [job.result().reveal() for job in jobs] == [f"{CANARY} 1 80003", f"{CANARY} 2 0"]
    assert repr(jobs[0].result()) == "Secret(***)"
    row = jobs[0].refresh().row
    assert row.result is not None
    assert CANARY not in row.result


def test_a_secret_shows_nothing_of_its_value() -> None:
    secret = Secret(CANARY)
    assert CANARY not in f"{secret} {secret!r} {secret:>20}"
    assert secret == Secret(CANARY) != Secret("other")
    assert len({secret, Secret(CANARY)}) == 1
    with pytest.raises(TypeError):
        json.dumps(secret)


@pytest.mark.parametrize("move", ["another job", "another field", "changed", "not sealed"])
def test_a_sealed_value_opens_only_in_its_own_job_and_field(app: App, move: str) -> None:
    @app.task
    def pay(card: Secret[str], other: Secret[str] | None = None) -> None: ...

    first, second = pay.enqueue(card=Secret("first")), pay.enqueue(card=Secret("second"))
    load = app_arguments(app)
    assert load(second.row.args, second.id) == {"card": Secret("second")}
    moved = json.loads(first.row.args)
    if move == "another job":
        text, id = first.row.args, second.id
    elif move == "another field":
        text, id = json.dumps({**moved, "other": moved["card"]}), first.id
    elif move == "changed":
        text, id = first.row.args.replace("k1:", "k1:AAAA"), first.id
    else:
        text, id = '{"card":"first"}', first.id
    with pytest.raises(BadArguments, match="not sealed" if move == "not sealed" else "cannot be opened"):
        load(text, id)


def app_arguments(app: App) -> Any:
    return client_of(app).registry.get("pay").arguments.load


def test_a_rotated_ring_opens_old_jobs_and_seals_with_the_new_key(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    @app.task
    def pay(card: Secret[str]) -> None:
        seen.append(card.reveal())

    def send() -> None:
        for number in range(200):
            pay.enqueue(card=Secret(f"{CANARY}{number}"))
            if number == 100:
                half.set()

    half = threading.Event()
    old, new = key_ring_text(), new_key("k2")
    thread = threading.Thread(target=send)
    with app.worker(children=0):
        thread.start()
        assert half.wait(20)
        monkeypatch.setenv(KEYS, f"{new},{old}")
        thread.join()
        later = pay.enqueue(card=Secret(f"{CANARY}last"))
        later.result("20 s")
        for job in app.jobs.list(limit=1000).items:
            job.result("20 s")
    assert sorted(seen) == sorted(f"{CANARY}{number}" for number in [*range(200), "last"])
    assert '"k2:' in later.row.args
    monkeypatch.setenv(KEYS, new)
    with pytest.raises(BadArguments, match="sealed with the key 'k1'"):
        app_arguments(app)(pay_sealed_with(old, later.id, monkeypatch, new), later.id)


def key_ring_text() -> str:
    return os.environ[KEYS]


def pay_sealed_with(keys: str, id: Any, monkeypatch: pytest.MonkeyPatch, then: str) -> str:
    monkeypatch.setenv(KEYS, keys)
    text = seal_arguments('{"card":"x"}', ["card"], id)
    monkeypatch.setenv(KEYS, then)
    return text


def test_a_job_whose_key_is_missing_waits_instead_of_failing(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def pay(card: Secret[str]) -> None: ...

    job = pay.enqueue(card=Secret(CANARY))
    monkeypatch.setenv(KEYS, new_key("k9"))
    app.testing().drain()
    assert job.refresh().status is not JobState.FAILED
    assert job.refresh().status is not JobState.DEAD_LETTERED


@pytest.mark.parametrize("keys", ["", "k1", "k1:short", "k1:" + "A" * 43 + "=,k1:" + "B" * 43 + "="])
def test_a_missing_or_malformed_key_is_refused_without_being_shown(
    app: App, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    @app.task
    def pay(card: Secret[str]) -> None: ...

    monkeypatch.setenv(KEYS, keys)
    with pytest.raises(BadSettings, match=KEYS) as raised:
        pay.enqueue(card=Secret(CANARY))
    assert "AAAA" not in str(raised.value)
    assert app.jobs.list().items == []


def test_an_invalid_secret_is_refused_without_its_value(app: App) -> None:
    @app.task
    def pay(card: Secret[int]) -> None: ...

    with pytest.raises(BadArguments, match="the secret value does not fit its type") as raised:
        pay.enqueue(card=CANARY)  # type: ignore[arg-type]
    assert CANARY not in repr(raised.value)
    with pytest.raises(BadArguments, match="card"):
        pay.enqueue()  # type: ignore[call-arg]


def test_declarations_that_would_reveal_a_secret_are_refused(app: App) -> None:
    def pay(card: Secret[str], order: int) -> None: ...

    for options in (
        {"unique": Unique()},
        {"unique": Unique(by=("card",))},
        {"limits": [Limit(1, key="card")]},
    ):
        with pytest.raises(BadSettings, match="secret"):
            app.task(**options)(pay)
    task = app.task(unique=Unique(by=("order",)))(pay)
    assert task.enqueue(card=Secret("a1b2"), order=1) == task.enqueue(card=Secret("c3d4"), order=1)
    with pytest.raises(BadSettings, match="only a whole argument can be secret"):

        @app.task
        def nested(cards: list[Secret[str]]) -> None: ...


def test_errors_tracebacks_and_logs_are_scrubbed_before_they_are_stored(app: App) -> None:
    @app.task
    def pay(ctx: Context, card: Secret[str]) -> None:
        ctx.log(f"charging {card.reveal()}", used=card.reveal())
        ctx.progress(0.5, f"with {card.reveal()}")
        raise PermanentError(f"refused {card.reveal()}: password=swordfish at postgres://ada:pw123@db/x")

    job = pay.enqueue(card=Secret(CANARY))
    app.testing().drain()
    row = job.refresh().row
    assert row.error is not None
    stored = repr(row) + repr(job.logs()) + repr(job.executions())
    for secret in (CANARY, "swordfish", "pw123"):
        assert secret not in stored
    assert "refused ***: password=*** at postgres://ada:***@db/x" in row.error.message


def test_a_secret_in_use_is_removed_from_messages_however_many_were_opened_since(app: App) -> None:
    @app.task
    def pay(card: Secret[str]) -> None: ...

    load, job = app_arguments(app), pay.enqueue(card=Secret(CANARY))
    held = load(job.row.args, job.id)
    for number in range(MOST_SCRUBBED + 1):
        load(seal_arguments(json.dumps({"card": f"other secret {number}"}), ["card"], job.id), job.id)
    assert scrubbed(f"refused {CANARY}") == "refused ***"
    assert held["card"].reveal() == CANARY
    assert scrubbed("refused other secret 0") == "refused other secret 0"


def test_declared_names_are_scrubbed_from_messages_and_masked_for_viewers(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masks._Declared, "names", frozenset())
    monkeypatch.setenv("TIDEMILL_SECRET_NAMES", "tax id")
    text = 'refused: account-number=DE02 "Account Number": "DE03" tax_id=77 account=open'
    assert scrubbed(text) == text
    app.configure(secret_names=["account_number"])
    shown = 'refused: account-number=*** "Account Number": "***" tax_id=*** account=open'
    assert scrubbed(text) == shown
    assert masked({"accountNumber": 1, "Account-Number": 2, "account": 3}) == {
        "accountNumber": 1,
        "Account-Number": "***",
        "account": 3,
    }

    @app.task
    def pay(account_number: str) -> None:
        raise PermanentError(f"refused: account_number={account_number}")

    job = pay.enqueue(account_number="DE02")
    app.testing().drain()
    error = job.refresh().row.error
    assert error is not None
    assert error.message == "refused: account_number=***"
    with closing(House(app)) as shop:
        assert "DE02" not in shop.person("viewer", "*").open(f"/jobs/{job.id}")
        assert "DE02" in shop.person("operator", "*").open(f"/jobs/{job.id}")


@pytest.mark.parametrize("names", ["iban", [""], ["a.b"], [7]])
def test_wrong_names_of_secrets_are_refused(names: Any) -> None:
    with pytest.raises(BadSettings, match="secret"):
        App("memory://", secret_names=names)


def test_a_run_with_many_secrets_leaves_no_plaintext_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    found: list[str] = []
    with App(f"sqlite:///{tmp_path}/jobs.db", migrate=True) as app:

        @app.task(audit=True)
        def pay(ctx: Context, card: Secret[str], number: int) -> Secret[str]:
            ctx.log(f"charging {card.reveal()}")
            logging.getLogger("shop").warning("number %s", number)
            if number % 5 == 0:
                raise PermanentError(f"refused {card.reveal()}")
            return Secret(card.reveal())

        for number in range(100):
            pay.enqueue(card=Secret(f"{CANARY}{number}"), number=number)
        app.testing().drain(limit=10_000)
        found += [path.name for path in tmp_path.iterdir() if b"CANARY" in path.read_bytes()]
        with closing(House(app)) as shop:
            person = shop.person()
            failed = app.jobs.list(status="failed", limit=5).items or app.jobs.list(limit=5).items
            paths = ["/", "/jobs", "/errors", "/audit", *(f"/jobs/{job.id}" for job in failed)]
            pages = [person.open(path) for path in paths]
            bearer = {"authorization": f"Bearer {shop.key('super_admin', '*')}"}
            api = ["/metrics", "/api/jobs?limit=1000", *(f"/api/jobs/{job.id}/logs" for job in failed)]
            pages += [person.ask("GET", path, headers=bearer).text for path in api]
        assert app.archive.run(older_than=timedelta(0)).archived > 0
        pages += [repr(app.audit.list(tenant="*", limit=1000))]
        found += [path.name for path in tmp_path.iterdir() if b"CANARY" in path.read_bytes()]
    found += [path.name for path in tmp_path.iterdir() if b"CANARY" in path.read_bytes()]
    assert found == []
    assert not [page for page in pages if "CANARY" in page]
    assert "CANARY" not in caplog.text
    assert "***" in pages[4]
