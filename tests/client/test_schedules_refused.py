"""Tests of invalid schedules: the error names the field and the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.client.schedules_kit import HOUR, MIDNIGHT, TO, app_on

from tidemill import (
    App,
    BusinessCalendar,
    Daily,
    Every,
    Monthly,
    MonthlyBusinessDay,
    Once,
    Weekly,
)
from tidemill.errors import (
    BadArguments,
    BadSchedule,
    BadSettings,
    TaskNotFound,
    TidemillError,
)


@pytest.fixture
def app() -> Iterator[App]:
    with app_on() as app:
        yield app


# Invalid schedules -------------------------------------------------------------------------------------------------------

BAD: list[tuple[str, Callable[[App], object], type[TidemillError], str, str]] = [
    ("cron", lambda app: app.schedules.add("send", "61 * * * *", "k", args=TO), BadSchedule, "", "61"),
    ("cron words", lambda app: app.schedules.add("send", "never", "k", args=TO), BadSchedule, "", "never"),
    (
        "31 February",
        lambda app: app.schedules.add("send", "0 0 31 2 *", "k", args=TO),
        BadSchedule,
        "",
        "31 2",
    ),
    (
        "31 February, monthly",
        lambda app: app.schedules.add("send", Monthly(day=32), "k", args=TO),
        BadSchedule,
        "day",
        "32",
    ),
    (
        "zone",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args=TO, timezone="Mars/Base"),
        BadSchedule,
        "timezone",
        "unknown time zone 'Mars/Base'",
    ),
    (
        "interval",
        lambda app: app.schedules.add("send", Every(-HOUR), "k", args=TO),
        BadSchedule,
        "interval",
        "not between one second and five years",
    ),
    (
        "business day",
        lambda app: app.schedules.add("send", MonthlyBusinessDay(25, "18:00"), "k", args=TO),
        BadSchedule,
        "",
        "25",
    ),
    (
        "calendar without days",
        lambda app: app.schedules.add(
            "send", Daily("06:00"), "k", args=TO, calendar=BusinessCalendar(weekend="mon-sun")
        ),
        BadSchedule,
        "weekend",
        "no business days",
    ),
    (
        "nothing left",
        lambda app: app.schedules.add("send", Weekly("sat", "06:00"), "k", args=TO, exclude="sat"),
        BadSchedule,
        "trigger",
        "would never fire",
    ),
    (
        "past",
        lambda app: app.schedules.add("send", Once(MIDNIGHT - HOUR), "k", args=TO),
        BadSchedule,
        "trigger",
        "has passed",
    ),
    (
        "no calendar",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args=TO, calendar="DE"),
        BadSchedule,
        "calendar",
        "is not a BusinessCalendar",
    ),
    (
        "not a trigger",
        lambda app: app.schedules.add("send", HOUR, "k", args=TO),  # type: ignore[arg-type]
        BadSchedule,
        "trigger",
        "is not a trigger",
    ),
    (
        "misfire",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args=TO, misfire="twice"),  # type: ignore[arg-type]
        BadSchedule,
        "misfire",
        "is not a misfire rule",
    ),
    (
        "overlap",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args=TO, overlap="pile"),  # type: ignore[arg-type]
        BadSchedule,
        "overlap",
        "is not an overlap rule",
    ),
    (
        "scope",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args=TO, scope="galaxy"),
        BadSchedule,
        "scope",
        "is not a scope",
    ),
    ("key", lambda app: app.schedules.add("send", Daily("06:00"), " ", args=TO), BadSchedule, "key", "name"),
    (
        "option",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args=TO, colour="red"),
        BadSchedule,
        "colour",
        "there is no such option",
    ),
    (
        "delay",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args=TO, delay=HOUR),
        BadSchedule,
        "delay",
        "there is no such option",
    ),
    (
        "node's queue",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args=TO, queue="@blue"),
        BadSchedule,
        "queue",
        "scope='instance'",
    ),
    (
        "jitter",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args=TO, jitter=-1),
        BadSchedule,
        "jitter",
        "is negative; give zero or more",
    ),
    (
        "metadata",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args=TO, metadata={"a": object()}),
        BadSchedule,
        "metadata",
        "not plain data",
    ),
    (
        "expires",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args=TO, expires=MIDNIGHT),
        BadSchedule,
        "expires",
        "give a duration",
    ),
    (
        "priority",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args=TO, priority=500),
        BadSettings,
        "",
        "priority is 500",
    ),
    ("missing", lambda app: app.schedules.add("send", Daily("06:00"), "k"), BadArguments, "", "to"),
    (
        "argument",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args={"to": "x", "size": "y"}),
        BadArguments,
        "",
        "size",
    ),
    (
        "arguments",
        lambda app: app.schedules.add("send", Daily("06:00"), "k", args=["x"]),  # type: ignore[arg-type]
        BadArguments,
        "args",
        "args",
    ),
    (
        "task",
        lambda app: app.schedules.add("sent", Daily("06:00"), "k"),
        TaskNotFound,
        "",
        "did you mean send",
    ),
]


@pytest.mark.parametrize("case", BAD, ids=[case[0] for case in BAD])
def test_an_invalid_schedule_is_refused_with_field_and_reason_and_is_not_saved(
    app: App, case: tuple[str, Callable[[App], object], type[TidemillError], str, str]
) -> None:
    _, act, kind, field, why = case
    with pytest.raises(kind) as refused:
        act(app)
    assert type(refused.value) is kind
    assert why in str(refused.value)
    if field:
        assert getattr(refused.value, "field", None) == field
    assert app.schedules.list(tenant="*") == []
