"""The list of schedules with the fires of a day, and the form with arguments, days and a preview."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.interfaces.dashboard.kit import House, forms, house
from tests.interfaces.dashboard.test_schedules import added, csrf_of

from tidemill import BusinessCalendar, Daily, Every, Exclude, ManualClock
from tidemill.dashboard import schedule_form
from tidemill.web.parsers import Fields

# The list: a day at a glance, and actions
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hour", [0, 9, 23])
def test_the_list_shows_the_fires_of_the_next_day(hour: int) -> None:
    with house(clock=ManualClock(datetime(2026, 3, 1, hour, 50, tzinfo=UTC))) as shop:
        added(shop, "often", trigger=Every(timedelta(minutes=30)))
        added(shop, "letters", trigger=Daily("06:00, 18:00"))
        paused = added(shop, "resting", trigger=Daily("07:00"))
        shop.app.schedules.pause(paused.id, tenant="acme")
        page = shop.person("viewer", "acme").open("/schedules")
    day = page.partition('id="day"')[2].partition("</section>")[0]
    assert "50 fires" in day
    assert day.count("<g data-since=") == 96
    listed = re.findall(r'/schedules/[\w-]+">(\w+)</a>', day)
    assert listed.count("letters") == 2
    assert listed.count("often") == 1
    assert "and often after that" in day
    assert "resting" not in day


def test_a_schedule_is_paused_and_resumed_in_the_list_and_both_can_be_undone(shop: House) -> None:
    made = added(shop)
    person = shop.person("operator", "acme")
    page = person.send("/schedules", "/pause")
    assert "Schedule nightly is paused." in page
    assert "<h1>Schedules</h1>" in page
    assert not shop.app.schedules.get(made.id, tenant="acme").enabled
    undo = next(form for form in forms(page) if form.action.endswith("/resume"))
    answer = person.ask("POST", undo.action, data=dict(undo.fields))
    page = person.open(answer.headers["location"])
    assert "Schedule nightly is resumed." in page
    assert shop.app.schedules.get(made.id, tenant="acme").enabled
    undo = next(form for form in forms(page) if form.action.endswith("/pause"))
    assert person.ask("POST", undo.action, data=dict(undo.fields)).status_code == 303
    assert not shop.app.schedules.get(made.id, tenant="acme").enabled


def test_run_now_in_the_list_returns_to_the_list(shop: House) -> None:
    made = added(shop)
    person = shop.person("operator", "acme")
    page = person.open("/schedules")
    link = re.search(rf'href="(/schedules/{made.id}/run\?next=[^"]*)"', page)
    assert link is not None
    page = person.send(link[1], "/run")
    assert "of schedule nightly was created." in page
    assert "<h1>Schedules</h1>" in page
    assert shop.app.jobs.count(tenant="acme") == 1


# The form: arguments, days and the preview
# ---------------------------------------------------------------------------------------------------------


def test_the_form_asks_for_the_arguments_of_its_task(shop: House) -> None:
    person = shop.person("admin", "acme")
    assert "Choose a task to see its arguments" in person.open("/schedules/new")
    page = person.open("/schedules/new?task=send")
    assert 'name="arg.to"' in page
    page = person.send(
        "/schedules/new?task=send",
        "/schedules/new",
        key="nightly",
        expression="0 2 * * *",
        **{"arg.to": "ada"},
    )
    assert "Schedule nightly is saved." in page
    (made,) = shop.app.schedules.list(tenant="acme")
    assert made.args == {"to": "ada"}
    edit = person.open(f"/schedules/{made.id}/edit")
    assert re.search(r'name="arg.to"[^>]*value="ada"', edit)
    person.send(f"/schedules/{made.id}/edit", "/edit", **{"arg.to": "grace"})
    assert shop.app.schedules.get(made.id, tenant="acme").args == {"to": "grace"}


def test_the_task_of_the_form_is_chosen_without_a_script(shop: House) -> None:
    person = shop.person("admin", "acme")
    data = {"csrf": csrf_of(person.open("/schedules/new")), "do": "task", "task": "send", "key": "mine"}
    answer = person.ask("POST", "/schedules/new", data=data)
    assert answer.status_code == 200
    assert 'name="arg.to"' in answer.text
    assert 'value="mine"' in answer.text
    assert "bad-words" not in answer.text


def test_a_wrong_argument_is_reported_next_to_its_field(shop: House) -> None:
    person = shop.person("admin", "acme")
    data = {
        "csrf": csrf_of(person.open("/schedules/new")),
        "task": "send",
        "key": "k",
        "expression": "0 2 * * *",
    }
    answer = person.ask("POST", "/schedules/new", data={**data, "kind": "cron"})
    assert answer.status_code == 422
    assert 'id="wrong-arg.to">required, but missing; give it a value' in answer.text


def test_arguments_that_fields_cannot_hold_are_shown_as_json(shop: House) -> None:
    made = added(shop, args={"to": ""})
    page = shop.person("admin", "acme").open(f"/schedules/{made.id}/edit")
    assert "{\n  &#34;to&#34;: &#34;&#34;\n}" in page
    shop.person("admin", "acme").send(f"/schedules/{made.id}/edit", "/edit")
    assert shop.app.schedules.get(made.id, tenant="acme").args == {"to": ""}


def test_business_and_excluded_days_have_fields(shop: House) -> None:
    made = added(shop, trigger=Daily("06:00"))
    person = shop.person("admin", "acme")
    data: dict[str, Any] = {
        "csrf": csrf_of(person.open("/schedules/new")), "kind": "daily", "daily_at": "06:00", "arg.to": "ada",
        "timezone": "UTC", "days_shown": "yes", "weekend": ["fri", "sat"], "holidays": "2026-12-25, 2027-01-01",
        "calendar_name": "office", "excluded_dates": "2026-12-24", "excluded_business": "yes",
        "excluded_roll": "next",
    }  # fmt: skip
    assert person.ask("POST", f"/schedules/{made.id}/edit", data=data).status_code == 303
    changed = shop.app.schedules.get(made.id, tenant="acme")
    assert (changed.calendar.weekend, changed.calendar.name) == ("fri,sat", "office")
    assert (changed.exclude.roll, changed.exclude.calendar) == ("next", changed.calendar)
    page = person.open(f"/schedules/{made.id}/edit")
    assert "2026-12-25\n2027-01-01" in page
    # Saving the form without changes leaves the schedule unchanged.
    again = {**data, "csrf": csrf_of(page), "holidays": "2026-12-25\n2027-01-01"}
    assert person.ask("POST", f"/schedules/{made.id}/edit", data=again).status_code == 303
    saved = shop.app.schedules.get(made.id, tenant="acme")
    assert (saved.calendar, saved.exclude) == (changed.calendar, changed.exclude)


@pytest.mark.parametrize(
    ("field", "values", "words"),
    [
        ("holidays", ["25 December"], "is not a date; write 2026-12-25"),
        ("excluded_dates", ["soon"], "is not a date"),
        ("weekend", ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "has no business days"),
    ],
)
def test_wrong_days_are_reported_next_to_their_field(field: str, values: list[str], words: str) -> None:
    rule = [("kind", "daily"), ("daily_at", "06:00"), ("days_shown", "yes")]
    _, errors = schedule_form.read_rules(Fields([*rule, *((field, text) for text in values)]))
    assert words in errors[field]


def test_days_with_two_calendars_stay_json(shop: House) -> None:
    made = added(
        shop,
        calendar=BusinessCalendar(weekend="fri"),
        exclude=Exclude(calendar=BusinessCalendar(weekend="sun")),
    )
    person = shop.person("admin", "acme")
    assert "&#34;weekend&#34;: &#34;sun&#34;" in person.open(f"/schedules/{made.id}/edit")
    person.send(f"/schedules/{made.id}/edit", "/edit")
    saved = shop.app.schedules.get(made.id, tenant="acme")
    assert (saved.calendar, saved.exclude) == (made.calendar, made.exclude)


def test_the_preview_of_the_script_needs_only_the_rule(shop: House) -> None:
    person = shop.person("admin", "acme")
    page = person.open(
        "/schedules/preview?kind=daily&daily_at=02:30&timezone=Europe/Berlin&preview_from=2027-03-28"
    )
    assert "At 02:30 every day" in page
    assert "Sun 2027-03-28 03:00:00 +0200" in page
    assert "for 02:30, which does not exist on this day" in page
    assert "minute" in person.open("/schedules/preview?kind=cron&expression=61+*+*+*+*")
    untouched = person.open("/schedules/preview?kind=daily")
    assert "The next fires appear here: write a time such as 06:00" in untouched
    assert 'class="missing"' not in untouched
    assert "After orders completed" in person.open("/schedules/preview?kind=after&after_definitions=orders")
    assert shop.person("operator", "acme").ask("GET", "/schedules/preview").status_code == 403
