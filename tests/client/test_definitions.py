"""Tests of ``app.definitions``: versioned configurations of tasks per tenant."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemill import App, Every
from tidemill.client.schedules.definitions import Definitions
from tidemill.errors import (
    BadArguments,
    BadSchedule,
    DefinitionExists,
    DefinitionNotFound,
    ScheduleNotFound,
    TaskNotFound,
)

HOUR = timedelta(hours=1)


@pytest.fixture
def app(app: App) -> App:
    """The folder's app, on each store, with a task."""

    @app.task
    def report(to: str, since: datetime, pages: int = 1) -> str:
        return f"{to} {since:%Y} {pages}"

    return app


SAID: dict[str, Any] = {"to": "ann", "since": datetime(2026, 1, 1, tzinfo=UTC)}


def test_each_save_creates_a_new_version(app: App) -> None:
    face = app.definitions
    first = face.save("monthly", "report", args=SAID, name="Monthly", owner="ann", queue="slow", by="ann")
    assert (first.version, first.task, first.tenant, first.enabled) == (1, "report", "default", True)
    second = face.save("monthly", args={**SAID, "pages": 3}, priority=5, by="bob")
    assert (second.id, second.version) == (first.id, 2)
    assert (second.name, second.owner) == ("Monthly", "ann")
    assert second.settings == {"queue": "slow", "priority": 5, "max_concurrent": 1}
    assert face.get("monthly") == second
    versions = face.versions("monthly")
    assert [(each.definition.version, each.created_by) for each in versions] == [(1, "ann"), (2, "bob")]
    assert versions[0].definition.args == first.args


def test_a_save_over_another_version_is_refused(app: App) -> None:
    face = app.definitions
    face.save("monthly", "report", args=SAID, version=0)
    with pytest.raises(DefinitionExists, match="has version 1 in the meantime"):
        face.save("monthly", "report", args=SAID, version=0)
    assert face.save("monthly", args=SAID, version=1).version == 2
    with pytest.raises(DefinitionExists, match="has version 2"):
        face.save("monthly", args=SAID, version=1)


def test_bad_input_is_refused_and_nothing_is_saved(app: App) -> None:
    face = app.definitions
    with pytest.raises(BadArguments, match="since"):
        face.save("m", "report", args={"to": "ann"})
    with pytest.raises(TaskNotFound):
        face.save("m", "resport", args=SAID)
    with pytest.raises(BadSchedule, match="task: a new definition needs a task"):
        face.save("m", args=SAID)
    with pytest.raises(BadSchedule, match="colour"):
        face.save("m", "report", args=SAID, colour="red")
    with pytest.raises(BadArguments, match="name: it has 201 characters"):
        face.save("m", "report", args=SAID, name="x" * 201)
    for field in ("name", "owner"):
        with pytest.raises(BadArguments, match=f"{field}: 5 is not a text"):
            face.save("m", "report", args=SAID, **{field: 5})  # type: ignore[arg-type]
    assert face.list(tenant="*", deleted=True) == []


def test_a_job_records_the_version_it_was_created_from(app: App) -> None:
    face = app.definitions
    made = face.save("monthly", "report", args=SAID, tags=["monthly"], timeout=HOUR)
    first = face.trigger("monthly")
    face.save("monthly", args={**SAID, "to": "bob"})
    second = face.trigger("monthly", args={"pages": 7})
    app.testing().drain()
    assert (first.result(1), second.result(1)) == ("ann 2026 1", "bob 2026 7")
    for job, version in ((first, 1), (second, 2)):
        details = job.refresh().row.details
        assert (details.definition_id, details.definition_version) == (made.id, version)
        assert (job.tags, job.row.timeout) == (("monthly",), HOUR)
    with pytest.raises(BadArguments, match="pages"):
        face.trigger("monthly", args={"pages": "many"})


def test_tenants_do_not_see_each_others_definitions(app: App) -> None:
    for tenant in ("acme", "bolt"):
        app.definitions.save("monthly", "report", args={**SAID, "to": tenant}, tenant=tenant)
    with app.tenant("acme"):
        assert [each.tenant for each in app.definitions.list()] == ["acme"]
        app.definitions.remove("monthly")
        with pytest.raises(DefinitionNotFound, match="tenant acme has no definition 'monthly'"):
            app.definitions.get("monthly")
    assert app.definitions.get("monthly", tenant="bolt").version == 1


def test_removing_a_definition_removes_its_schedules_and_it_can_be_restored(app: App) -> None:
    face = app.definitions
    old = face.save("monthly", "report", args=SAID, owner="ann")
    face.save("monthly", args={**SAID, "pages": 2})
    app.schedules.add(old, Every(HOUR), "monthly")
    face.remove("monthly")
    with pytest.raises(ScheduleNotFound):
        app.schedules.get("monthly")
    assert [each.deleted_at is not None for each in face.list(deleted=True)] == [True]
    back = face.restore("monthly")
    assert (back.version, back.owner) == (1, "ann")
    assert back.id != old.id
    assert '"pages":2' in back.args.replace(" ", "")


def test_restoring_an_old_version_saves_it_as_a_new_one(app: App) -> None:
    face = app.definitions
    face.save("monthly", "report", args=SAID)
    face.save("monthly", args={**SAID, "to": "bob"}, queue="slow")
    back = face.restore("monthly", 1, by="ann")
    assert (back.version, back.settings) == (3, {"max_concurrent": 1})
    assert "ann" in back.args
    with pytest.raises(DefinitionNotFound, match="has no version 9"):
        face.restore("monthly", 9)
    with pytest.raises(BadSchedule, match="specify the version"):
        face.restore("monthly")
    with pytest.raises(DefinitionNotFound, match="never had"):
        face.restore("other")


def test_a_definition_is_enabled_and_disabled(app: App) -> None:
    app.definitions.save("monthly", "report", args=SAID)
    assert not app.definitions.disable("monthly").enabled
    assert app.definitions.save("monthly", owner="bob").enabled is False
    assert app.definitions.enable("monthly").enabled


def test_the_arguments_of_a_schedule_override_those_of_its_definition(app: App) -> None:
    made = app.definitions.save("monthly", "report", args=SAID)
    schedule = app.schedules.add(made, Every(HOUR), "long", args={"pages": 9})
    assert schedule.args == {"pages": 9}
    job = app.schedules.trigger("long")
    app.testing().drain()
    assert job.result(1) == "ann 2026 9"
    assert [each.key for each in app.schedules.list(definition=made)] == ["long"]
    with pytest.raises(BadArguments, match="pages"):
        app.schedules.add(made, Every(HOUR), "wrong", args={"pages": "x"})


def test_every_method_has_an_async_variant(app: App) -> None:
    for name, verb in inspect.getmembers(Definitions, inspect.isfunction):
        if not name.startswith("_") and not inspect.iscoroutinefunction(verb):
            assert inspect.iscoroutinefunction(getattr(Definitions, f"a{name}")), name

    async def story() -> None:
        face = app.definitions
        with app.tenant("acme"):
            made = await face.asave("monthly", "report", args=SAID)
            assert (await face.aget("monthly")) == made
            assert await face.alist() == [made]
            assert len(await face.aversions("monthly")) == 1
            assert not (await face.adisable("monthly")).enabled
            assert (await face.aenable("monthly")).enabled
            assert (await face.atrigger("monthly")).tenant == "acme"
            assert (await face.arestore("monthly", 1)).version == 2
            await face.aremove("monthly")

    asyncio.run(story())
