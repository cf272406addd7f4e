"""Tests of task and call options: invalid ones are refused early, with a hint."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tidemill import App, Exponential, Unique
from tidemill.client.enqueue.options import CallKeywords, CallOptions
from tidemill.client.schedules.schedule import HEARTBEAT, RULES, ScheduleKeywords
from tidemill.domain.job_requests import OPTIONS
from tidemill.errors import BadSettings
from tidemill.tasks.options import TaskKeywords, TaskOptions, read_options


def test_type_checkers_know_every_option() -> None:
    assert set(TaskKeywords.__annotations__) == {*TaskOptions.__dataclass_fields__, "max_retries"}
    assert set(CallKeywords.__annotations__) == set(CallOptions.__dataclass_fields__)
    names = ({*RULES, *OPTIONS} - {"trigger"}) | {"tenant", "store", HEARTBEAT}
    assert set(ScheduleKeywords.__annotations__) == names


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("orphans", "again", "choose one of requeue, fail, review"),
        ("isolation", "container", "choose one of auto, thread, process"),
        ("max_retries", "3", "give a whole number"),
        ("max_concurrent", "2", "give a whole number, 0 for no limit"),
        ("max_concurrent", -1, "give a whole number, 0 for no limit"),
        ("result_limit", "x", "give 1 to 1048576 bytes"),
        ("unique", 3, "give Unique(…), or None"),
        ("priority", "high", "higher runs first"),
        ("priority", 101, "higher runs first"),
        ("queue", 5, "is not a queue's name"),
        ("queue", " mail", "no blanks at its ends"),
        ("queue", None, "is not a queue's name"),
        ("name", 7, "is not a task's name"),
        ("timeout", "5x", "give a timedelta, seconds, or text"),
        ("breaker", 5, "give a name or a Breaker"),
        ("tags", "one", "give a list or a tuple"),
    ],
)
def test_an_invalid_task_option_is_refused_with_a_hint(option: str, value: Any, said: str) -> None:
    with pytest.raises(BadSettings) as caught:
        read_options("send", {option: value})
    assert said in str(caught.value)


def test_attempts_and_retries_are_not_both_counted() -> None:
    with pytest.raises(
        BadSettings, match="retry=3 counts attempts and max_retries=3 counts those after the first"
    ):
        read_options("send", {"retry": 3, "max_retries": 3})
    assert read_options("send", {"retry": Exponential(), "max_retries": 2}).retry.max_attempts == 3


def test_string_options_are_read() -> None:
    options = read_options("send", {"orphans": "review", "max_retries": 2, "isolation": "process"})
    assert (options.orphans.value, options.retry.max_attempts, options.isolation) == ("review", 3, "process")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("queue", None, "is not a queue's name"),
        ("tenant", 5, "is not a tenant's name"),
        ("priority", "high", "higher runs first"),
        ("unique", 5, "give Unique(…), or None"),
        ("tags", 5, "give a list of texts"),
        ("tags", [5], "give a list of texts"),
        ("delay", "5x", "give a timedelta, seconds, or text"),
    ],
)
def test_an_invalid_call_option_is_refused_before_anything_is_enqueued(
    option: str, value: Any, said: str
) -> None:
    with App("memory://") as app:

        @app.task
        def send(to: str) -> None: ...

        with pytest.raises(BadSettings) as caught:
            send.using(**{option: value})
        assert said in str(caught.value)


def test_tags_may_be_any_iterable() -> None:
    with App("memory://") as app:

        @app.task(unique=Unique(), tags=["a"])
        def send(to: str) -> None: ...

        tags: Any = (tag for tag in ("b", "c"))
        assert send.using(tags=tags, delay=timedelta(1), unique=None).enqueue(to="x").tags == ("a", "b", "c")
