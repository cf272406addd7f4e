"""Tests of strings that no store can hold: refused with the field's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tidemill.app import App
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.client.schedules.api import Schedules
from tidemill.domain.bounds import check_metadata, check_text
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.limits import key_text
from tidemill.domain.triggers.daily import Daily
from tidemill.errors import BadArguments, BadFilter, BadSchedule, BadSettings, UsageError
from tidemill.tasks.limits import Limit

UNFIT = ["a\ud800b", "\udcff", "a\0b"]

GIVEN: Mapping[str, tuple[Callable[[App, BoundTask[Any, Any], str], object], type[UsageError], str]] = {
    "cancel": (lambda app, task, text: task.enqueue().cancel(text), BadSettings, "reason"),
    "cancel many": (lambda app, task, text: app.jobs.cancel(task="work", reason=text), BadSettings, "reason"),
    "approve": (lambda app, task, text: task.enqueue().approve(text), BadSettings, "comment"),
    "reject": (lambda app, task, text: task.enqueue().reject(text), BadSettings, "comment"),
    "pause": (lambda app, task, text: app.control.pause("queue", "mail", reason=text), BadSettings, "reason"),
    "setting": (lambda app, task, text: app.control.set("colour", {"a": [text]}), BadSettings, "colour"),
    "setting's name": (lambda app, task, text: app.control.set(text, 1), BadSettings, "setting's name"),
    "setting's words": (
        lambda app, task, text: app.control.set("colour", 1, description=text),
        BadSettings,
        "description",
    ),
    "key": (lambda app, task, text: app.keys.create(text), BadSettings, "key's name"),
    "tag": (lambda app, task, text: task.using(tags=[text]), BadSettings, "tags"),
    "metadata": (lambda app, task, text: task.using(metadata={"a": {"b": [text]}}), BadSettings, "metadata"),
    "metadata's key": (lambda app, task, text: task.using(metadata={text: 1}), BadSettings, "metadata"),
    "reference": (lambda app, task, text: task.using(reference=("user", text)), BadSettings, "reference"),
    "correlation": (lambda app, task, text: task.using(correlation_id=text), BadSettings, "correlation_id"),
    "task's tag": (lambda app, task, text: app.task(tags=[text])(_other), BadSettings, "tags"),
    "task's words": (lambda app, task, text: app.task(description=text)(_other), BadSettings, "description"),
    "task's owner": (lambda app, task, text: app.task(owner=text)(_other), BadSettings, "owner"),
    "schedule's pause": (
        lambda app, task, text: _scheduled(app, task).pause("k", reason=text),
        BadSettings,
        "reason",
    ),
    "schedule's metadata": (
        lambda app, task, text: app.schedules.add(task, Daily("06:00"), "k", metadata={"a": text}),
        BadSchedule,
        "metadata",
    ),
    "schedule's key": (
        lambda app, task, text: app.schedules.add(task, Daily("06:00"), text),
        BadSchedule,
        "key",
    ),
    "definition's name": (
        lambda app, task, text: app.definitions.save("d", task, name=text),
        BadArguments,
        "name",
    ),
    "definition's owner": (
        lambda app, task, text: app.definitions.save("d", task, owner=text),
        BadArguments,
        "owner",
    ),
    "definition's author": (
        lambda app, task, text: app.definitions.save("d", task, by=text),
        BadSettings,
        "by",
    ),
    "filter's tag": (lambda app, task, text: app.jobs.count(tag=text), BadFilter, "tag"),
    "filter's task": (lambda app, task, text: app.jobs.count(task=text), BadFilter, "task"),
    "filter's queue": (lambda app, task, text: app.jobs.count(queue=text), BadFilter, "queue"),
    "filter's tenant": (lambda app, task, text: app.jobs.count(tenant=text), BadFilter, "tenant"),
    "filter's correlation": (
        lambda app, task, text: app.jobs.count(correlation_id=text),
        BadFilter,
        "correlation_id",
    ),
    "filter's reference": (
        lambda app, task, text: app.jobs.count(reference=("user", text)),
        BadSettings,
        "reference",
    ),
    "filter's metadata": (
        lambda app, task, text: app.jobs.count(metadata={"a": text}),
        BadFilter,
        "metadata",
    ),
    "filter's text": (lambda app, task, text: app.jobs.list(text=text), BadFilter, "text"),
}


def _other() -> None: ...


def _scheduled(app: App, task: BoundTask[Any, Any]) -> Schedules:
    if not app.schedules.list():
        app.schedules.add(task, Daily("06:00"), "k")
    return app.schedules


@pytest.mark.parametrize("what", GIVEN)
def test_a_string_that_no_store_can_hold_is_refused_with_its_field(app: App, what: str) -> None:
    @app.task(name="work")
    def work() -> None: ...

    give, error, name = GIVEN[what]
    for text in UNFIT:
        with pytest.raises(error, match=name):
            give(app, work, text)
    assert app.audit.list(tenant=ALL_TENANTS, action="job.cancelled") == []


def test_looking_up_a_name_that_no_store_can_hold_raises_a_usage_error(app: App) -> None:
    """Reads do not validate names. The lookup fails with the same kind of error on every store."""
    for ask in (
        lambda: app.schedules.get("\ud800"),
        lambda: app.definitions.get("a\0b"),
        lambda: app.keys.get("\ud800"),
    ):
        with pytest.raises(UsageError):
            ask()


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), b"x", {"deep": [object()]}])
def test_metadata_that_is_not_plain_data_is_refused(app: App, value: object) -> None:
    @app.task(name="work")
    def work() -> None: ...

    with pytest.raises(BadSettings, match="metadata is not plain data") as refused:
        work.using(metadata={"a": value})
    assert refused.value.details["option"] == "metadata"


def test_circular_metadata_is_refused() -> None:
    around: dict[str, object] = {}
    around["self"] = around
    with pytest.raises(BadSettings, match="metadata"):
        check_metadata(around)


def test_plain_metadata_is_stored_unchanged(app: App) -> None:
    @app.task(name="work")
    def work() -> None: ...

    said = {"a": [1, 2.5, None, True], "é": {"🦊": "\\u0000"}}
    job = work.using(metadata=said, tags=["é"], reference=("user", "🦊")).enqueue()
    (row,) = app.jobs.list(reference=("user", "🦊")).items
    assert row.id == job.id
    assert app.store.get([job.id], tenant=ALL_TENANTS)[0].details.metadata == said


def test_jobs_are_found_by_a_reference_as_it_was_given(app: App) -> None:
    @app.task(name="work")
    def work() -> None: ...

    job = work.using(reference=("user", 42)).enqueue()  # type: ignore[arg-type]
    assert [row.id for row in app.jobs.list(reference=("user", 42)).items] == [job.id]


def test_a_value_that_is_not_a_string_is_refused() -> None:
    with pytest.raises(BadSettings, match="reason is 5; give a text"):
        check_text("reason", 5)
    check_text("reason", None)


def test_any_argument_value_can_be_the_key_of_a_limit(app: App) -> None:
    """A key that no table can hold would stop every claim of its queue, not only that of its own job."""

    @app.task(name="work", limits=[Limit(1, key="account"), Limit(5, key=lambda args: "\ud800", name="half")])
    def work(account: str) -> str:
        return account

    odd, plain = work.enqueue(account="a\0b"), work.enqueue(account="b")
    app.testing().drain()
    assert (odd.result(), plain.result()) == ("a\0b", "b")
    assert key_text("a\0b") != key_text("b\0a")


def test_a_bad_filter_is_refused_before_the_store_is_read() -> None:
    with pytest.raises(BadFilter, match="tag"):
        JobFilter("default", tag="\ud800")


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, object()])
def test_metadata_filters_accept_only_single_values(app: App, value: object) -> None:
    with pytest.raises(BadFilter, match="metadata"):
        app.jobs.count(metadata={"a": value})
    assert app.jobs.count(metadata={"a": True, "b": None, "c": 3, "d": "x"}) == 0
