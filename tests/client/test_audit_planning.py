"""Tests of the audit entries for schedules and definitions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.audit_kit import acts, entries, undone
from tests.client.schedules_kit import HOUR, MIDNIGHT, on_each_store

from tidemill import App, Every, ManualClock
from tidemill.client.access import acting
from tidemill.errors import DefinitionExists, ScheduleExists

ARGS = {"to": "open sesame"}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An app on each store, with a manual clock and a task ``send``."""
    with on_each_store(request, tmp_path) as app:
        yield app


def test_each_action_on_a_schedule_writes_one_entry(app: App) -> None:
    face = app.schedules
    with acting("ann"):
        face.add("send", Every(HOUR), "often", args=ARGS, metadata={"customer": "sesame street"})
        face.update("often", timezone="Europe/Berlin", args={"to": "sesame two"})
        face.pause("often", reason="holidays")
        face.pause("often", reason="again")
        face.resume("often")
        face.resume("often")
        job = face.trigger("often")
        assert isinstance(app.clock, ManualClock)
        app.clock.advance(3 * HOUR)
        face.backfill("often", MIDNIGHT, MIDNIGHT + 2 * HOUR, dry_run=True)
        face.backfill("often", MIDNIGHT, MIDNIGHT + 2 * HOUR)
        face.backfill("often", MIDNIGHT, MIDNIGHT + 2 * HOUR)
        face.remove("often")
    found = entries(app)
    verbs = ["added", "updated", "paused", "resumed", "triggered", "backfilled", "removed"]
    assert [entry.action for entry in found] == [f"schedule.{verb}" for verb in verbs]
    assert {(entry.who, entry.subject, entry.tenant) for entry in found} == {
        ("ann", "schedule:often", "default")
    }
    added, updated, paused, resumed, triggered, filled, _ = found
    assert added.before is None
    assert added.after is not None
    assert (added.after["task"], added.after["args"], added.after["options.metadata"]) == (
        "send",
        "***",
        "***",
    )
    assert updated.before == {"timezone": "UTC", "args": "***"}
    assert updated.after == {"timezone": "Europe/Berlin", "args": "***"}
    assert (paused.before, paused.after) == (
        {"enabled": True, "note": None},
        {"enabled": False, "note": "holidays"},
    )
    assert resumed.after == {"enabled": True, "note": None}
    assert triggered.after == {"jobs": [str(job.id)]}
    assert filled.after is not None
    assert filled.after["fires"] == 3
    assert "sesame" not in repr(found)
    assert app.audit.verify()[:2] == (True, 7)


def test_a_refused_schedule_writes_no_entry(app: App) -> None:
    app.schedules.add("send", Every(HOUR), "often", args=ARGS)
    with pytest.raises(ScheduleExists):
        app.schedules.add("send", Every(HOUR), "often", args=ARGS)
    assert len(entries(app)) == 1


def test_an_action_on_a_schedule_that_cannot_be_audited_is_rolled_back(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    face = app.schedules
    undone(app, monkeypatch, lambda: face.add("send", Every(HOUR), "often", args=ARGS))
    assert face.list() == []
    was = face.add("send", Every(HOUR), "often", args=ARGS)
    undone(app, monkeypatch, lambda: face.update("often", timezone="Europe/Berlin"))
    undone(app, monkeypatch, lambda: face.pause("often"))
    undone(app, monkeypatch, lambda: face.trigger("often"))
    undone(app, monkeypatch, lambda: face.remove("often"))
    assert face.get("often") == was
    assert app.jobs.count() == 0


def test_each_action_on_a_definition_writes_one_entry(app: App) -> None:
    face = app.definitions
    with acting("ann"), app.tenant("acme"):
        face.save("daily", "send", args=ARGS, queue="slow")
        face.save("daily", owner="bob", args={"to": "sesame two"})
        face.disable("daily")
        face.disable("daily")
        face.enable("daily")
        job = face.trigger("daily")
        face.restore("daily", 1)
        face.remove("daily")
    found = entries(app)
    verbs = ["saved", "saved", "disabled", "enabled", "triggered", "restored", "removed"]
    assert [entry.action for entry in found] == [f"definition.{verb}" for verb in verbs]
    assert {(entry.who, entry.subject, entry.tenant) for entry in found} == {
        ("ann", "definition:daily", "acme")
    }
    assert found[0].after is not None
    assert (found[0].after["settings.queue"], found[0].after["args"]) == ("slow", "***")
    assert found[1].before == {"owner": None, "version": 1, "args": "***"}
    assert found[1].after == {"owner": "bob", "version": 2, "args": "***"}
    assert (found[2].before, found[2].after) == ({"enabled": True}, {"enabled": False})
    assert found[4].after == {"jobs": [str(job.id)], "version": 2}
    assert "sesame" not in repr(found)
    versions = app.store.definition_versions(
        app.definitions.list(tenant="acme", deleted=True)[0].id, tenant="acme"
    )
    assert {version.created_by for version in versions} == {"ann"}


def test_an_action_on_a_definition_that_cannot_be_audited_is_rolled_back(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    face = app.definitions
    undone(app, monkeypatch, lambda: face.save("daily", "send", args=ARGS))
    assert face.list() == []
    was = face.save("daily", "send", args=ARGS)
    for act in (face.disable, face.trigger, face.remove):
        undone(app, monkeypatch, lambda act=act: act("daily"))  # type: ignore[misc]
    with pytest.raises(DefinitionExists):
        face.save("daily", "send", args=ARGS, version=0)
    assert face.get("daily") == was
    assert app.jobs.count() == 0
    assert acts(app) == [("definition.saved", "definition:daily")]


def test_reconciling_declared_schedules_writes_one_entry_per_change_as_the_app(
    app: App,
) -> None:
    app.schedule("send", Every(HOUR), "one", args=ARGS)
    app.schedule("send", Every(HOUR), "two", args=ARGS)
    app.reconcile()
    app.reconcile()
    assert acts(app) == [("schedule.added", "schedule:one"), ("schedule.added", "schedule:two")]
    assert {entry.who for entry in entries(app)} == {"app"}
    assert {entry.after and entry.after["app"] for entry in entries(app)} == {"mill"}
    declared = app._declarations._all
    del declared["default", "default", "two"]
    del declared["default", "default", "one"]
    app.schedule("send", Every(timedelta(hours=2)), "one", args=ARGS)
    app.reconcile()
    assert acts(app)[2:] == [("schedule.updated", "schedule:one"), ("schedule.paused", "schedule:two")]
    assert entries(app)[3].after == {"enabled": False, "note": "removed from the code"}
    assert "sesame" not in repr(entries(app))


def test_an_explicit_actor_of_a_reconcile_is_recorded(app: App) -> None:
    app.schedule("send", Every(HOUR), "one", args=ARGS)
    with acting("ann"):
        app.reconcile()
    assert [entry.who for entry in entries(app)] == ["ann"]
