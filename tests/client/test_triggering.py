"""Tests of refused triggers of definitions and schedules."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from tidemill import App, Every, Manual, Unique
from tidemill.domain.schedules import Definition
from tidemill.errors import BadFilter, BadSchedule, DefinitionBusy, DefinitionDisabled, SchedulePaused

HOUR = timedelta(hours=1)


@pytest.fixture
def shop(app: App) -> App:
    """The folder's app, on each store, with a task."""

    @app.task
    def report(to: str = "ann") -> str:
        return to

    return app


def last_audit(app: App, action: str) -> dict[str, Any]:
    found = [record for record in app.audit.list(tenant="*", limit=100) if record.entry.action == action]
    return dict(max(found, key=lambda record: record.number).entry.after or {})


# Disabled and paused -------------------------------------------------------------------------------------------------


def test_a_disabled_definition_does_not_trigger(shop: App) -> None:
    made = shop.definitions.save("monthly", "report")
    shop.schedules.add(made, Every(HOUR), "monthly")
    shop.definitions.disable("monthly")
    with pytest.raises(DefinitionDisabled, match="definition 'monthly' of tenant default is disabled"):
        shop.definitions.trigger("monthly")
    with pytest.raises(DefinitionDisabled, match="is disabled; enable it, or trigger it with force"):
        shop.schedules.trigger("monthly")
    assert shop.jobs.count() == 0
    shop.definitions.enable("monthly")
    shop.definitions.trigger("monthly")
    shop.schedules.trigger("monthly")
    assert shop.jobs.count() == 2


def test_force_triggers_a_disabled_definition_and_is_audited(shop: App) -> None:
    made = shop.definitions.save("monthly", "report")
    shop.schedules.add(made, Every(HOUR), "monthly")
    shop.definitions.disable("monthly")
    job = shop.definitions.trigger("monthly", force=True)
    assert last_audit(shop, "definition.triggered") == {"jobs": [str(job.id)], "version": 1, "force": True}
    job = shop.schedules.trigger("monthly", force=True)
    assert last_audit(shop, "schedule.triggered") == {"jobs": [str(job.id)], "force": True}


def test_a_paused_manual_schedule_does_not_trigger(shop: App) -> None:
    shop.schedules.add("report", Manual(), "by-hand")
    shop.schedules.pause("by-hand")
    with pytest.raises(SchedulePaused, match="schedule 'by-hand' of tenant default is paused"):
        shop.schedules.trigger("by-hand")
    assert shop.jobs.count() == 0
    shop.schedules.trigger("by-hand", force=True)
    shop.schedules.resume("by-hand")
    shop.schedules.trigger("by-hand")
    assert shop.jobs.count() == 2


def test_a_paused_timed_schedule_can_be_triggered(shop: App) -> None:
    shop.schedules.add("report", Every(HOUR), "hourly")
    shop.schedules.pause("hourly")
    assert shop.schedules.trigger("hourly").schedule_id is not None


# One at a time -------------------------------------------------------------------------------------------------------


def test_a_new_definition_runs_one_job_at_a_time_by_default(shop: App) -> None:
    assert shop.definitions.save("one", "report").settings == {"max_concurrent": 1}
    assert shop.definitions.save("one", args={"to": "bob"}).settings == {"max_concurrent": 1}
    assert shop.definitions.save("any", "report", max_concurrent=0).settings == {"max_concurrent": 0}
    job = shop.definitions.trigger("one")
    assert job.row.limits == (f"definition/{job.definition_id}",)
    assert shop.definitions.trigger("any").row.limits == ()


def test_a_busy_definition_queues_jobs_by_default(shop: App) -> None:
    shop.definitions.save("queued", "report")
    assert len({shop.definitions.trigger("queued").id for _ in range(3)}) == 3


def test_a_definition_with_on_busy_refuse_accepts_one_job_until_it_has_ended(shop: App) -> None:
    made = shop.definitions.save("single", "report", on_busy="refuse")
    shop.schedules.add(made, Every(HOUR), "single")
    first = shop.definitions.trigger("single")
    with pytest.raises(
        DefinitionBusy, match=f"refuses a second job, and job {first.id} has not ended"
    ) as seen:
        shop.definitions.trigger("single")
    assert seen.value.details["id"] == first.id
    with pytest.raises(DefinitionBusy):
        shop.schedules.trigger("single")
    assert shop.jobs.count() == 1
    forced = shop.definitions.trigger("single", force=True)
    assert shop.jobs.count() == 2
    forced.cancel()
    first.cancel()
    assert shop.definitions.trigger("single").id != first.id


def test_of_concurrent_triggers_a_definition_with_on_busy_refuse_accepts_one(shop: App) -> None:
    shop.definitions.save("single", "report", on_busy="refuse")
    start = threading.Barrier(6)
    made: list[Any] = []
    refused: list[DefinitionBusy] = []

    def trigger() -> None:
        start.wait(10)
        try:
            made.append(shop.definitions.trigger("single"))
        except DefinitionBusy as error:
            refused.append(error)

    threads = [threading.Thread(target=trigger) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(made), len(refused)) == (1, 5)
    assert {error.details["id"] for error in refused} == {made[0].id}
    assert shop.jobs.count() == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"on_busy": "wait"}, "on_busy: 'wait' is unknown; choose queue or refuse"),
        ({"on_busy": "refuse", "max_concurrent": 2}, "max_concurrent is 2; set it to 1"),
        ({"max_concurrent": -1}, "max_concurrent: -1 is not a number of jobs"),
    ],
)
def test_invalid_settings_are_refused(shop: App, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSchedule, match=words):
        shop.definitions.save("odd", "report", **settings)
    assert shop.definitions.list() == []


def test_a_definition_of_a_task_with_a_unique_rule_cannot_refuse(shop: App) -> None:
    @shop.task(unique=Unique(by=("to",)))
    def send(to: str) -> None: ...

    with pytest.raises(BadSchedule, match="task send has a unique rule of its own"):
        shop.definitions.save("odd", "send", args={"to": "ann"}, on_busy="refuse")


# Origin of a job -----------------------------------------------------------------------------------------------------


def test_a_job_records_the_definition_and_the_schedule_that_created_it(shop: App) -> None:
    made = shop.definitions.save("monthly", "report")
    made = shop.definitions.save("monthly", args={"to": "bob"})
    schedule = shop.schedules.add(made, Every(HOUR), "monthly")
    by_hand = shop.definitions.trigger("monthly").refresh()
    assert (by_hand.definition_id, by_hand.definition_version) == (made.id, 2)
    assert (by_hand.schedule_id, by_hand.fire_at) == (None, None)
    fired = shop.schedules.trigger("monthly").refresh()
    assert (fired.definition_id, fired.schedule_id) == (made.id, schedule.id)
    assert fired.fire_at is not None


def test_jobs_are_filtered_by_definition_and_schedule(shop: App) -> None:
    first = shop.definitions.save("monthly", "report")
    one = shop.definitions.trigger("monthly")
    shop.definitions.save("monthly", args={"to": "bob"})
    two = shop.definitions.trigger("monthly")
    other = shop.definitions.save("other", "report")
    shop.definitions.trigger("other")
    schedule = shop.schedules.add(other, Every(HOUR), "hourly")
    three, four = (shop.schedules.trigger("hourly").refresh() for _ in range(2))

    def found(**where: Any) -> list[Any]:
        return [job.id for job in shop.jobs.list(sort="oldest", **where).items]

    for name in ("monthly", first, first.id, str(first.id)):
        assert found(definition=name) == [one.id, two.id]
    assert found(definition="monthly", definition_version=2) == [two.id]
    for given in ("hourly", schedule, schedule.id):
        assert found(schedule=given) == [three.id, four.id]
    assert found(schedule="hourly", fire_at=four.fire_at) == [four.id]
    assert found(schedule="hourly", definition="monthly") == []
    assert shop.jobs.count(definition="other") == 3
    assert shop.jobs.cancel(definition="monthly").done == 2
    shop.definitions.remove("monthly")
    assert found(definition="monthly") == [one.id, two.id]


def test_filtering_by_an_unknown_definition_or_schedule_is_refused(shop: App) -> None:
    made: Definition = shop.definitions.save("monthly", "report")
    shop.definitions.save("monthly", "report", tenant="acme")
    with pytest.raises(BadFilter, match="there is no definition 'weekly' here"):
        shop.jobs.list(definition="weekly")
    with pytest.raises(BadFilter, match="there is no schedule 'weekly' here"):
        shop.jobs.list(schedule="weekly")
    with pytest.raises(BadFilter, match="2 tenants have a definition 'monthly'"):
        shop.jobs.list(definition="monthly", tenant="*")
    with pytest.raises(BadFilter, match="definition_version needs definition"):
        shop.jobs.list(definition_version=1)
    with pytest.raises(BadFilter, match="fire_at needs schedule"):
        shop.jobs.list(fire_at=made.created_at)
    assert shop.archive.search(definition="monthly").items == []
