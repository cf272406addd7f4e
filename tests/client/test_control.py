"""Tests of ``app.control``: pauses, settings, workers and leases, all audited."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from tests.client.audit_kit import HOUR, acts, entries, undone

from tidemill import App
from tidemill.client.access import acting
from tidemill.client.control import Control
from tidemill.domain.cluster import Worker, WorkerState
from tidemill.domain.records import PauseKind
from tidemill.errors import BadSettings, LeaseNotFound, WorkerNotFound
from tidemill.ids import new_id


def a_worker(app: App, name: str = "w1") -> Worker:
    return app.store.register(Worker(new_id(), name), lease=HOUR)


@pytest.mark.parametrize(
    ("kind", "name", "subject", "tenant"),
    [
        ("queue", "mail", "queue:mail", "*"),
        (PauseKind.TASK, "send", "task:send", "*"),
        ("tenant", "acme", "tenant:acme", "acme"),
        ("all", "", "all", "*"),
    ],
)
def test_a_pause_lasts_until_it_is_resumed_and_both_are_audited(
    app: App, kind: str, name: str, subject: str, tenant: str
) -> None:
    with acting("ann"):
        first = app.control.pause(kind, name, reason="flood")
    with acting("bob"):
        again = app.control.pause(kind, name, reason="other")
    assert again == first
    assert (first.kind, first.name, first.reason, first.paused_by) == (PauseKind(kind), name, "flood", "ann")
    assert app.control.pauses() == [first]
    with acting("bob"):
        assert app.control.resume(kind, name) == first
        assert app.control.resume(kind, name) is None
    assert app.control.pauses() == []
    made, ended = entries(app)
    assert (made.who, made.action, made.subject, made.tenant) == ("ann", f"{kind}.paused", subject, tenant)
    assert made.after == {"reason": "flood"}
    assert (ended.who, ended.action, ended.subject, ended.tenant) == (
        "bob",
        f"{kind}.resumed",
        subject,
        tenant,
    )
    assert ended.before == {"reason": "flood", "paused_by": "ann"}


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [("worker", "x", "cannot be paused"), ("queue", "", "queue's name"), ("all", "x", "has no name")],
)
def test_an_invalid_pause_is_refused(kind: str, name: str, words: str) -> None:
    with App("memory://") as app:
        with pytest.raises(BadSettings, match=words):
            app.control.pause(kind, name)
        assert entries(app) == []


def test_settings_are_overwritten_and_removed_and_each_change_is_audited(app: App) -> None:
    with acting("ann"):
        made = app.control.set("worker_enabled", False)
        assert app.control.set("worker_enabled", False) == made
        app.control.set("worker_enabled", True)
        assert [(each.key, each.value, each.updated_by) for each in app.control.settings()] == [
            ("worker_enabled", True, "ann")
        ]
        assert app.control.unset("worker_enabled")
        assert not app.control.unset("worker_enabled")
    assert app.control.settings() == []
    found = entries(app)
    assert acts(app) == [
        ("setting.changed", "setting:worker_enabled"),
        ("setting.changed", "setting:worker_enabled"),
        ("setting.removed", "setting:worker_enabled"),
    ]
    assert [(entry.before or {}).get("value") for entry in found] == [None, False, True]
    assert [(entry.after or {}).get("value") for entry in found] == [False, True, None]


def test_several_settings_are_stored_together_or_not_at_all(app: App) -> None:
    app.control.set("share_groups", True)
    app.control.set_all({"worker_enabled": False, "priority_ageing": 60, "share_groups": None})
    assert {row.key: row.value for row in app.control.settings()} == {
        "worker_enabled": False,
        "priority_ageing": 60,
    }
    with pytest.raises(BadSettings):
        app.control.set_all({"priority_ageing": None, "worker_enabled": "perhaps"})
    assert len(app.control.settings()) == 2


def test_a_setting_of_one_differs_from_a_setting_of_true(app: App) -> None:
    app.control.set("limit", 1)
    assert app.control.set("limit", True).value is True
    assert app.control.set("limit", True, description="new").description == "new"
    assert len(entries(app)) == 3


@pytest.mark.parametrize("key", ["smtp_password", "API_KEY", "webhook_secret"])
def test_the_audit_log_hides_settings_with_secret_names(app: App, key: str) -> None:
    app.control.set(key, "sesame")
    app.control.set(key, "sesame two")
    app.control.unset(key)
    assert len(entries(app)) == 3
    assert "sesame" not in repr(entries(app))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("worker_enabled", 1, "give a bool"),
        ("worker_enabled", "yes", "give a bool"),
        ("", 1, "setting's name"),
        ("x", object(), "JSON"),
        ("x", float("nan"), "JSON"),
    ],
)
def test_an_invalid_setting_is_refused(key: str, value: Any, words: str) -> None:
    with App("memory://") as app:
        with pytest.raises(BadSettings, match=words):
            app.control.set(key, value)
        assert app.control.settings() == []
        assert entries(app) == []


def test_a_live_worker_is_drained_once(app: App) -> None:
    worker = a_worker(app)
    with acting("ann"):
        assert app.control.drain(worker.id)
        assert not app.control.drain(str(worker.id))
    assert app.store.workers()[0].state is WorkerState.DRAINING
    (entry,) = entries(app)
    assert (entry.who, entry.action, entry.subject) == ("ann", "worker.drained", f"worker:{worker.id}")
    app.store.retire([worker.id])
    for unknown in (new_id(), "nope", worker.id):
        with pytest.raises(WorkerNotFound, match="no living worker has the id"):
            app.control.drain(unknown)
    assert len(entries(app)) == 1


def test_a_lease_is_released_once(app: App) -> None:
    worker = a_worker(app)
    assert app.store.acquire("duties", worker.id, ttl=HOUR) is not None
    assert app.control.release("duties")
    assert not app.control.release("duties")
    assert app.store.leases()[0].holder is None
    (entry,) = entries(app)
    assert (entry.action, entry.subject) == ("lease.released", "lease:duties")
    assert entry.before == {"holder": str(worker.id), "holder_name": "w1", "term": 1}
    with pytest.raises(LeaseNotFound, match="there is no lease 'nope'"):
        app.control.release("nope")


def test_an_action_that_cannot_be_audited_is_rolled_back(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = a_worker(app)
    app.store.acquire("duties", worker.id, ttl=HOUR)
    app.control.pause("task", "send")
    app.control.set("kept", 1)
    before = (app.store.pauses(), app.store.settings(), app.store.leases(), app.store.workers())
    undone(app, monkeypatch, lambda: app.control.pause("queue", "mail"))
    undone(app, monkeypatch, lambda: app.control.resume("task", "send"))
    undone(app, monkeypatch, lambda: app.control.set("kept", 2))
    undone(app, monkeypatch, lambda: app.control.unset("kept"))
    undone(app, monkeypatch, lambda: app.control.drain(worker.id))
    undone(app, monkeypatch, lambda: app.control.release("duties"))
    assert (app.store.pauses(), app.store.settings(), app.store.leases(), app.store.workers()) == before


def test_every_method_has_an_async_variant(app: App) -> None:
    for name, verb in inspect.getmembers(Control, inspect.isfunction):
        if not name.startswith("_") and not inspect.iscoroutinefunction(verb):
            twin = getattr(Control, f"a{name}")
            assert inspect.iscoroutinefunction(twin), name
            assert inspect.signature(twin) == inspect.signature(verb), name
    worker = a_worker(app)
    app.store.acquire("duties", worker.id, ttl=HOUR)

    async def story() -> None:
        face = app.control
        with acting("ann"):
            await face.apause("queue", "mail", reason="flood")
            assert len(await face.apauses()) == 1
            await face.aresume("queue", "mail")
            await face.aset("worker_enabled", False)
            assert len(await face.asettings()) == 1
            await face.aunset("worker_enabled")
            await face.aset_all({"share_groups": True})
            await face.aset_all({"share_groups": None})
            assert await face.adrain(worker.id)
            assert await face.arelease("duties")

    asyncio.run(story())
    assert [entry.who for entry in entries(app)] == ["ann"] * 8
