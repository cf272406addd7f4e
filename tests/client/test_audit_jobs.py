"""Tests of the audit entries that actions on jobs write in the same transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.client.audit_kit import SECRET, acts, claimed, entries, jobs, undone, with_tasks

from tidemill import App, JobState, Unique
from tidemill.client.access import acting, who
from tidemill.client.jobs import api as module
from tidemill.errors import BadSettings, IllegalTransition


@pytest.fixture
def app(app: App) -> App:
    return with_tasks(app)


def enqueue(app: App, **options: Any) -> Any:

    return app.bound_task("send").using(**options)


# Actor -------------------------------------------------------------------------------------------------------------------


def test_the_actor_is_the_one_given_or_the_user_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "ada")
    assert who() == "python:ada"
    with acting("ann"):
        assert who() == "ann"
        with acting("key:ab12cd34 (ci)"):
            assert who() == "key:ab12cd34 (ci)"
        assert who() == "ann"
    for name in ("USER", "USERNAME", "LOGNAME"):
        monkeypatch.delenv(name, raising=False)
    assert who().startswith("python:")
    assert len(who()) > len("python:")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 401])
def test_an_invalid_actor_name_is_refused(name: str) -> None:
    with pytest.raises(BadSettings, match="is not a valid actor"), acting(name):
        pass


# One job -----------------------------------------------------------------------------------------------------------------


def test_each_action_on_a_job_writes_one_entry_with_the_change(app: App) -> None:
    with acting("ann"):
        (job,) = jobs(app, 1)
        job.cancel("not needed")
        job.retry()
        job.cancel()
        job.delete()
    found = entries(app)
    assert [(entry.who, entry.action) for entry in found] == [
        ("ann", "job.cancelled"),
        ("ann", "job.retried"),
        ("ann", "job.cancelled"),
        ("ann", "job.deleted"),
    ]
    assert {(entry.subject, entry.tenant) for entry in found} == {(f"job:{job.id}", "default")}
    assert found[0].before == {"task": "send", "status": "pending"}
    assert found[0].after == {"status": "cancelled", "reason": "not needed"}
    assert found[3].before == {"task": "send", "status": "cancelled"}
    assert found[3].after is None
    assert SECRET not in repr(found)
    assert app.audit.verify().ok


@pytest.mark.parametrize(("verb", "word"), [("approve", "approved"), ("reject", "rejected")])
def test_a_review_decision_is_audited_with_its_comment(app: App, verb: str, word: str) -> None:
    (job,) = jobs(app, 1, "look")
    app.testing().drain()
    getattr(job, verb)("looks fine")
    (entry,) = entries(app)
    assert entry.action == f"job.{word}"
    assert entry.before == {"task": "look", "status": "review_needed"}
    assert entry.after is not None
    assert entry.after["reason"] == "looks fine"
    assert SECRET not in repr(entry)


def test_only_the_first_cancel_request_to_a_running_job_is_audited(app: App) -> None:
    (job,) = jobs(app, 1)
    claimed(app)
    job.cancel("enough")
    job.cancel("again")
    assert acts(app) == [("job.cancel_requested", f"job:{job.id}")]
    assert entries(app)[0].after == {"status": "running", "reason": "enough"}


def test_a_refused_action_writes_no_entry(app: App) -> None:
    (job,) = jobs(app, 1)
    for act in (job.retry, job.approve, job.delete):
        with pytest.raises(IllegalTransition):
            act()
    job.refresh()
    assert entries(app) == []


def test_an_action_that_cannot_be_audited_is_rolled_back(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, running = jobs(app, 2)
    (held,) = claimed(app)
    if held.id == waiting.id:
        waiting, running = running, waiting
    undone(app, monkeypatch, waiting.cancel)
    undone(app, monkeypatch, running.cancel)
    undone(app, monkeypatch, lambda: app.jobs.cancel(task="send"))
    assert waiting.refresh().status is JobState.PENDING
    assert running.refresh().row.cancel_reason is None
    waiting.cancel()
    undone(app, monkeypatch, waiting.retry)
    undone(app, monkeypatch, waiting.delete)
    undone(app, monkeypatch, lambda: app.jobs.delete(task="send"))
    assert waiting.refresh().status is JobState.CANCELLED


def test_async_actions_are_attributed_to_the_actor_of_the_awaiting_context(app: App) -> None:
    async def story() -> None:
        with acting("ann"), app.tenant("acme"):
            (job,) = jobs(app, 1)
            await job.acancel()
            await app.jobs.aretry(task="send")
            await app.jobs.acancel(task="send")
            await app.jobs.adelete(task="send")

    asyncio.run(story())
    assert [(entry.who, entry.tenant) for entry in entries(app)] == [("ann", "acme")] * 4


def test_async_calls_use_the_tenant_of_the_awaiting_context(app: App) -> None:
    async def story() -> int:
        with app.tenant("acme"):
            (job,) = jobs(app, 1)
            assert (await app.jobs.aget(job.id)).tenant == "acme"
            return await app.jobs.acount()

    assert asyncio.run(story()) == 1


# Many jobs ---------------------------------------------------------------------------------------------------------------


def test_a_bulk_action_writes_one_entry_with_its_filter_counts_and_ids(app: App) -> None:
    made = jobs(app, 3)
    claimed(app)
    with acting("ann"):
        app.jobs.cancel(task="send", status=["pending", "running"], reason="flood")
    (entry,) = entries(app)
    assert (entry.who, entry.action, entry.subject, entry.tenant) == (
        "ann",
        "jobs.cancelled",
        "jobs",
        "default",
    )
    assert entry.before == {"status": {"pending": 2, "running": 1}}
    assert entry.after is not None
    assert entry.after["filter"] == {"task": "send", "status": ["pending", "running"]}
    assert (entry.after["done"], entry.after["skipped"], entry.after["reason"]) == (3, 0, "flood")
    assert set(map(str, entry.after["ids"])) == {str(job.id) for job in made}  # type: ignore[call-overload]
    app.jobs.retry(task="send")
    app.jobs.cancel(task="send", status="pending")
    app.jobs.delete(task="send")
    assert [action for action, _ in acts(app)] == [
        "jobs.cancelled",
        "jobs.retried",
        "jobs.cancelled",
        "jobs.deleted",
    ]


def test_an_entry_lists_at_most_a_hundred_job_ids(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 50)
    made = jobs(app, 130)
    app.jobs.cancel(ids=[job.id for job in made])
    (entry,) = entries(app)
    assert entry.after is not None
    assert (entry.after["done"], entry.after["filter"]) == (130, {"ids": 130})
    assert len(list(entry.after["ids"])) == 100  # type: ignore[call-overload]


def test_a_very_large_bulk_action_is_audited_in_parts(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOGETHER", 10)
    jobs(app, 25)
    assert app.jobs.cancel(task="send").done == 25
    assert [entry.after and entry.after["done"] for entry in entries(app)] == [10, 10, 5]


def test_a_bulk_action_that_changes_nothing_writes_no_entry(app: App) -> None:
    jobs(app, 1)
    claimed(app)
    app.jobs.cancel(task="send")
    assert len(entries(app)) == 1
    app.jobs.cancel(task="send")
    app.jobs.retry(task="send")
    app.jobs.delete(task="none")
    assert len(entries(app)) == 1


# Enqueueing --------------------------------------------------------------------------------------------------------------


def test_plain_enqueueing_is_not_audited(app: App) -> None:
    enqueue(app).enqueue(to=SECRET)
    enqueue(app, audit=False).enqueue(to=SECRET)
    assert entries(app) == []


def test_an_enqueue_with_audit_is_recorded_without_the_arguments(app: App) -> None:
    with acting("ann"):
        job = enqueue(app, audit=True).enqueue(to=SECRET)
    (entry,) = entries(app)
    assert (entry.who, entry.action, entry.subject) == ("ann", "job.enqueued", f"job:{job.id}")
    assert entry.after == {"task": "send", "queue": "default", "priority": 0}
    assert job.refresh().status is JobState.PENDING


def test_a_task_with_audit_is_recorded_unless_the_call_disables_it(app: App) -> None:
    @app.task(audit=True)
    def pay(amount: int) -> None: ...

    async def story() -> None:
        with acting("bob"):
            await pay.aenqueue(amount=1)

    pay.enqueue(amount=1)
    pay.using(audit=False).enqueue(amount=1)
    asyncio.run(story())
    pay.enqueue_many([{"amount": number} for number in range(3)])
    assert [action for action, _ in acts(app)] == ["job.enqueued", "job.enqueued", "jobs.enqueued"]
    assert entries(app)[1].who == "bob"
    assert entries(app)[2].after is not None
    assert entries(app)[2].after["done"] == 3  # type: ignore[index]


def test_a_job_that_was_not_created_is_not_audited(app: App) -> None:
    task = enqueue(app, audit=True, unique=Unique())
    first = task.enqueue(to="ann")
    assert task.enqueue(to="ann").id == first.id
    assert acts(app) == [("job.enqueued", f"job:{first.id}")]
    replaced = enqueue(app, audit=True, unique=Unique(on_conflict="replace")).enqueue(to="ann")
    assert acts(app)[1:] == [("job.enqueued", f"job:{replaced.id}")]


def test_an_enqueue_that_cannot_be_audited_is_rolled_back(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    undone(app, monkeypatch, lambda: enqueue(app, audit=True).enqueue(to="ann"))
    assert app.jobs.count() == 0


def test_in_the_users_sqlite_transaction_the_entry_commits_with_the_job(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with App(f"sqlite:///{path}") as app:
        with_tasks(app)
        jobs(app, 1)
        with closing(sqlite3.connect(path)) as connection, acting("ann"):
            enqueue(app, audit=True, connection=connection).enqueue(to=SECRET)
            connection.rollback()
            assert entries(app) == []
            kept = enqueue(app, audit=True, connection=connection).enqueue(to=SECRET)
            connection.commit()
        enqueue(app, audit=True).enqueue(to=SECRET)
        assert acts(app)[0] == ("job.enqueued", f"job:{kept.id}")
        assert entries(app)[0].who == "ann"
        assert app.audit.verify()[:2] == (True, 2)


def test_in_the_users_postgres_transaction_the_entry_commits_with_the_job(
    fresh_postgres_url: str,
) -> None:
    with App(fresh_postgres_url, migrate=True) as app:
        with_tasks(app)
        jobs(app, 1)
        with psycopg.connect(fresh_postgres_url) as connection, acting("ann"):
            enqueue(app, audit=True, connection=connection).enqueue(to=SECRET)
            connection.rollback()
            assert entries(app) == []
            enqueue(app, audit=True, connection=connection).enqueue(to=SECRET)
            many = enqueue(app, audit=True, connection=connection).enqueue_many([{"to": "a"}, {"to": "b"}])
            connection.commit()
        enqueue(app, audit=True).enqueue(to=SECRET)
        assert [action for action, _ in acts(app)] == ["job.enqueued", "jobs.enqueued", "job.enqueued"]
        assert entries(app)[1].after is not None
        assert entries(app)[1].after["ids"] == [str(job.id) for job in many]  # type: ignore[index]
        assert app.audit.verify()[:2] == (True, 3)


def test_in_an_async_postgres_transaction_the_entry_commits_with_the_job(
    fresh_postgres_url: str,
) -> None:
    with App(fresh_postgres_url, migrate=True) as app:
        with_tasks(app)
        jobs(app, 1)

        async def story() -> None:
            import asyncpg

            plain = await psycopg.AsyncConnection.connect(fresh_postgres_url)
            async with plain:
                await enqueue(app, audit=True, connection=plain).aenqueue(to=SECRET)
                await plain.rollback()
            other = await asyncpg.connect(fresh_postgres_url)
            try:
                async with other.transaction():
                    await enqueue(app, audit=True, connection=other).aenqueue(to=SECRET)
            finally:
                await other.close()

        with acting("ann"):
            asyncio.run(story())
        assert [(entry.who, entry.action) for entry in entries(app)] == [("ann", "job.enqueued")]
        assert app.audit.verify()[:2] == (True, 1)
