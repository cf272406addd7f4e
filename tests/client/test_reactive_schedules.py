"""Schedules that run after definitions and on events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.client.schedules_kit import HOUR, MIDNIGHT
from tests.grounds import url_of

from tidemill import After, App, Cron, Exclude, ManualClock, On, PermanentError
from tidemill.domain.schedules import FireOutcome
from tidemill.errors import BadArguments, BadSchedule
from tidemill.stores.memory.occurrences import MemoryOccurrences
from tidemill.stores.sql.occurrences import SqlOccurrences
from tidemill.testing.conformance.kit import claim_all, finish_all
from tidemill.testing.runner import Testing

runs: list[Any] = []


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    with App(url_of(request.param, tmp_path, request), migrate=True, clock=ManualClock(MIDNIGHT)) as app:
        yield _with_tasks(app)


@pytest.fixture
def memory() -> Iterator[App]:
    with App("memory://", clock=ManualClock(MIDNIGHT)) as app:
        yield _with_tasks(app)


def _with_tasks(app: App) -> App:
    runs.clear()

    @app.task(name="extract")
    def extract(works: bool = True) -> None:
        if not works:
            raise PermanentError("no source")

    @app.task(name="load")
    def load() -> None:
        runs.append("load")

    @app.task(name="ship")
    def ship(order: int, express: bool = False) -> None:
        runs.append((order, express))

    for key in ("orders", "stock"):
        app.definitions.save(key, "extract", max_concurrent=0)
    app.definitions.save("load", "load", max_concurrent=0)
    return app


def run(testing: Testing, app: App, *keys: str, works: bool = True) -> list[Any]:
    """Run one job of each definition, and what follows; return the runs since."""
    before = len(runs)
    for key in keys:
        app.definitions.trigger(key, args={"works": works})
        testing.advance("1m")
    testing.drain()
    return runs[before:]


def test_a_definition_runs_once_after_all_of_the_others(app: App) -> None:
    app.schedules.add(app.definitions.get("load"), After("orders", "stock"), "chained")
    with app.testing() as testing:
        assert run(testing, app, "orders", "orders") == []
        assert run(testing, app, "stock") == ["load"]
        assert run(testing, app, "stock") == []
        assert run(testing, app, "orders") == ["load"]
        testing.advance("3d")
        assert run(testing, app, "orders") == []
        testing.advance("25h")
        assert run(testing, app, "stock") == []  # the end of orders is no longer fresh
    fires = app.schedules.fires("chained")
    assert [fire.outcome for fire in fires] == [FireOutcome.FIRED] * 2
    job = app.jobs.list(task="load", limit=1).items[0]
    assert job.definition_id == app.definitions.get("load").id


def test_s25_definitions_that_end_in_one_batch_fire_once(app: App) -> None:
    app.schedules.add(app.definitions.get("load"), After("orders", "stock"), "chained")
    with app.testing() as testing:
        for key in ("orders", "stock"):
            app.definitions.trigger(key)
        testing.advance("1m")
        both = claim_all(app.store, now=app.clock.now())
        assert len(both) == 2
        finish_all(app.store, both, now=app.clock.now())
        testing.drain()
    assert runs == ["load"]
    assert [fire.outcome for fire in app.schedules.fires("chained")] == [FireOutcome.FIRED]


def test_an_event_starts_one_job_with_arguments_of_its_payload(app: App) -> None:
    trigger = On("order.paid", where={"country": "DE"}, args={"order": "$.id"})
    app.schedules.add("ship", trigger, "shipping", args={"express": True})
    with app.testing() as testing:
        app.emit("order.paid", {"id": 7, "country": "DE"}, id="evt-1")
        app.emit("order.paid", {"id": 7, "country": "DE"}, id="evt-1")
        app.emit("order.paid", {"id": 8, "country": "FR"})
        app.emit("order.paid", {"id": 9, "country": "DE"})
        testing.drain()
    assert sorted(runs) == [(7, True), (9, True)]
    assert len(app.schedules.fires("shipping")) == 2


def test_a_leader_that_dies_in_the_fire_leaves_nothing_of_it(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.schedules.add("load", After("orders"), "chained")
    deaths: list[object] = []
    kinds: list[Any] = [MemoryOccurrences, SqlOccurrences]

    def dying_of(kind: Any) -> Any:
        dropped = kind.drop_occurrences

        def dying(self: Any, keys: Any) -> Any:
            if len(deaths) < 2:
                deaths.append(keys)
                raise SystemExit("killed")
            return dropped(self, keys)

        return dying

    with app.testing() as testing:
        app.definitions.trigger("orders")
        for kind in kinds:
            monkeypatch.setattr(kind, "drop_occurrences", dying_of(kind))
        for _ in range(2):
            with pytest.raises(SystemExit):
                testing.drain()
            assert app.schedules.fires("chained") == []
            assert app.jobs.count(task="load") == 0
        testing.drain()
        testing.drain()
    assert runs == ["load"]
    assert len(deaths) == 2


def test_a_failed_job_counts_if_the_trigger_includes_failures(memory: App) -> None:
    memory.schedules.add("load", After("orders", on="failure"), "alarm")
    with memory.testing() as testing:
        assert run(testing, memory, "orders") == []
        assert run(testing, memory, "orders", works=False) == ["load"]


def test_a_paused_schedule_misses_ends_and_events(memory: App) -> None:
    memory.schedules.add("load", After("orders"), "chained")
    memory.schedules.pause("chained")
    with memory.testing() as testing:
        assert run(testing, memory, "orders") == []
        memory.schedules.resume("chained")
        testing.drain()
        assert run(testing, memory, "orders") == ["load"]


def test_an_end_counts_while_the_next_job_still_runs(memory: App) -> None:
    """The default overlap rule queues one more job, so that the newest result is used."""
    schedule = memory.schedules.add("load", After("orders"), "chained")
    assert schedule.overlap == "queue"
    assert memory.schedules.add("ship", On("x", args={"order": "$"}), "event").overlap == "allow"
    assert memory.schedules.add("load", Cron("0 2 * * *"), "nightly").overlap == "skip"
    with memory.testing() as testing:
        assert run(testing, memory, "orders", "orders") == ["load", "load"]


def test_why_tells_what_a_schedule_waits_for(memory: App) -> None:
    memory.schedules.add("load", After("orders", "later"), "chained")
    memory.schedules.add("load", Cron("0 2 * * *"), "nightly")
    assert memory.schedules.why("chained") == "waits for orders and later, which does not exist yet"
    with memory.testing() as testing:
        run(testing, memory, "orders")
    assert memory.schedules.why("chained").startswith(
        "waits for later, which does not exist yet; orders ended at"
    )
    assert memory.schedules.why("nightly") == "waits for 2026-01-01T02:00:00+00:00"
    memory.schedules.pause("chained", reason="holidays")
    assert memory.schedules.why("chained") == "is paused: holidays"
    assert memory.schedules.preview("chained") == []


def test_a_cycle_of_definitions_is_refused(memory: App) -> None:
    memory.schedules.add(memory.definitions.get("load"), After("orders"), "one")
    memory.schedules.add(memory.definitions.get("orders"), After("stock"), "two")
    with pytest.raises(BadSchedule, match="stock after load after orders after stock"):
        memory.schedules.add(memory.definitions.get("stock"), After("load"), "three")
    with pytest.raises(BadSchedule, match="load after load"):
        memory.schedules.update("one", trigger=After("load"))


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ({"misfire": "skip"}, "misfire"),
        ({"scope": "instance"}, "scope"),
        ({"exclude": Exclude(weekdays="sat,sun")}, "exclude"),
    ],
)
def test_rules_about_time_are_refused(memory: App, rules: dict[str, Any], field: str) -> None:
    with pytest.raises(BadSchedule) as refused:
        memory.schedules.add("load", After("orders"), "chained", **rules)
    assert refused.value.details["field"] == field


def test_an_argument_that_the_task_lacks_is_refused(memory: App) -> None:
    with pytest.raises(BadArguments, match="no argument 'oder'"):
        memory.schedules.add("ship", On("paid", args={"oder": "$.id"}), "paid")
    with pytest.raises(BadArguments, match="order"):
        memory.schedules.add("ship", On("paid"), "paid")
    memory.schedules.add("ship", On("paid", args={"order": "$.id"}), "paid")
    with pytest.raises(BadSchedule, match="emit 'paid' instead"):
        memory.schedules.trigger("paid")
    with pytest.raises(BadSchedule, match="no fires to make up for"):
        memory.schedules.backfill("paid", MIDNIGHT - HOUR, MIDNIGHT - timedelta(minutes=1))


def test_a_declared_schedule_reacts_too(memory: App) -> None:
    @memory.scheduled(On("order.paid", args={"order": "$.id"}), key="declared")
    def bill(order: int) -> None:
        runs.append(order)

    with memory.testing() as testing:
        memory.reconcile()
        memory.emit("order.paid", {"id": 5})
        testing.drain()
    assert runs == [5]


def test_ends_of_an_earlier_rule_are_dropped(memory: App) -> None:
    memory.schedules.add("load", After("orders", "stock"), "chained")
    with memory.testing() as testing:
        run(testing, memory, "orders")
        memory.schedules.update("chained", trigger=Cron("0 2 * * *"))
        run(testing, memory, "stock")
    assert runs == []
