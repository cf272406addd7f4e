"""The pages about schedules."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.interfaces.dashboard.kit import House, forms

from tidemill import After, Cron, Daily, Every, Manual, On
from tidemill.client.schedules.schedule import Schedule
from tidemill.dashboard import schedule_form
from tidemill.domain.schedules import Fired
from tidemill.ids import new_id
from tidemill.web.parsers import Fields


def added(shop: House, key: str = "nightly", **how: object) -> Schedule:
    how.setdefault("tenant", "acme")
    how.setdefault("args", {"to": "ada"})
    trigger = how.pop("trigger", Cron("0 2 * * *"))
    return shop.app.schedules.add("send", trigger, key, **how)  # type: ignore[arg-type]


def test_without_schedules_the_page_explains_what_to_do(shop: House) -> None:
    assert "Create one here" in shop.person("admin", "acme").open("/schedules")
    assert "ask an admin" in shop.person("viewer", "acme").open("/schedules")


def test_schedules_are_listed_in_words_with_their_last_outcomes(shop: House) -> None:
    made = added(shop, timezone="Europe/Berlin")
    shop.app.schedules.trigger(made.id, tenant="acme")
    shop.drain()
    at = datetime(2026, 1, 1, tzinfo=UTC)
    shop.app.store.note_fires([Fired(made.id, at, tenant="acme", reason="overlap: it lives")])
    page = shop.person("viewer", "acme").open("/schedules")
    assert "At 02:00 every day" in page
    assert "Europe/Berlin" in page
    assert 'class="mark s-completed"' in page
    assert "skipped, 2026-01-01 00:00:00 UTC: overlap: it lives" in page


def test_schedules_are_filtered_by_key_or_task_and_state(shop: House) -> None:
    added(shop, "nightly")
    paused = added(shop, "hourly")
    shop.app.schedules.pause(paused.id, reason="holidays", tenant="acme")
    person = shop.person("viewer", "acme")
    found = person.open("/schedules?q=NIGHT")
    assert "nightly" in found
    assert "hourly" not in found
    assert "hourly" in person.open("/schedules?q=send")
    found = person.open("/schedules?status=paused")
    assert "holidays" in found
    assert "nightly" not in found
    assert "No schedules found" in person.open("/schedules?status=broken")


def test_a_schedule_that_cannot_run_shows_why_next_to_a_disabled_button(shop: House) -> None:
    made = added(shop, trigger=Manual())
    person = shop.person("operator", "acme")
    assert "Run now…</a>" in person.open(f"/schedules/{made.id}")
    shop.app.schedules.pause(made.id, tenant="acme")
    page = person.open(f"/schedules/{made.id}")
    assert '<button type="button" disabled aria-describedby="run-refused">Run now…</button>' in page
    assert "It cannot be run now: schedule &#39;nightly&#39; of tenant acme is paused." in page


def test_a_schedule_of_a_disabled_definition_cannot_be_run(shop: House) -> None:
    definition = shop.app.definitions.save("letter", "send", args={"to": "ada"}, tenant="acme")
    made = shop.app.schedules.add(definition, Cron("0 2 * * *"), "nightly")
    shop.app.definitions.disable("letter", tenant="acme")
    page = shop.person("operator", "acme").open(f"/schedules/{made.id}")
    assert "It cannot be run now: definition &#39;letter&#39; of tenant acme is disabled." in page
    assert "Run now…</a>" not in page


def test_a_job_links_to_its_schedule_and_definition_and_is_found_by_them(shop: House) -> None:
    definition = shop.app.definitions.save("letter", "send", args={"to": "ada"}, tenant="acme")
    made = shop.app.schedules.add(definition, Cron("0 2 * * *"), "nightly")
    job = shop.app.schedules.trigger(made.id, tenant="acme")
    other = shop.app.definitions.trigger("letter", tenant="acme")
    person = shop.person("operator", "acme")
    page = person.open(f"/jobs/{job.id}")
    assert f'/schedules/{made.id}">nightly</a>' in page
    assert f'/jobs?definition={definition.id}">letter</a>' in page
    assert ">version 1</a>" in page
    found = person.open("/jobs?schedule=nightly")
    assert str(job.id) in found
    assert str(other.id) not in found
    found = person.open("/jobs?definition=letter&definition_version=1")
    assert str(job.id) in found
    assert str(other.id) in found
    shop.app.schedules.remove(made.id, tenant="acme")
    assert "removed</span>" in person.open(f"/jobs/{job.id}")


def test_a_schedule_of_every_runner_is_labelled(shop: House) -> None:
    made = added(shop, scope="process")
    person = shop.person("admin", "acme")
    assert "in every runner process" in person.open(f"/schedules/{made.id}")
    assert "for every runner process that is alive" in person.open(f"/schedules/{made.id}/run")
    assert '<option value="process" selected>in every runner process' in person.open(
        f"/schedules/{made.id}/edit"
    )


def test_a_long_list_of_schedules_is_paged(shop: House) -> None:
    for number in range(55):
        added(shop, f"s{number:02d}")
    person = shop.person("viewer", "acme")
    first, second = person.open("/schedules"), person.open("/schedules?page=2")
    assert "s49" in first
    assert "s50" not in first
    assert "s54" in second
    assert "There are no more" in person.open("/schedules?page=3")


def test_a_schedule_shows_its_next_fires_with_notes_on_clock_changes(shop: House) -> None:
    made = added(shop, trigger=Daily("02:30"), timezone="Europe/Berlin")
    page = shop.person("viewer", "acme").open(f"/schedules/{made.id}?after=2027-03-28&n=2")
    assert "Sun 2027-03-28 03:00:00 +0200" in page
    assert "for 02:30, which does not exist on this day" in page
    assert "Mon 2027-03-29 02:30:00 +0200" in page
    assert "02:30 comes twice on this day: it fires the first time only" in page


def test_an_invalid_day_is_rejected_with_a_message(shop: House) -> None:
    made = added(shop)
    page = shop.person("viewer", "acme").open(f"/schedules/{made.id}?after=soon", 422)
    assert "give a day such as" in page


def test_viewers_see_no_secrets_and_no_buttons(shop: House) -> None:
    made = added(shop, args={"to": "ada", "password": "hunter2"})
    viewer = shop.person("viewer", "acme")
    page = viewer.open(f"/schedules/{made.id}")
    assert "hunter2" not in page
    assert "Run now" not in page
    assert "Edit" not in page
    assert [
        form.action for form in forms(page) if "/schedules/" in form.action and form.method == "post"
    ] == []
    assert "hunter2" in shop.person("operator", "acme").open(f"/schedules/{made.id}")
    for act in ("pause", "resume", "run", "remove", "edit"):
        assert viewer.post(f"/schedules/{made.id}/{act}").status_code == 403
    assert shop.person("operator", "acme").post(f"/schedules/{made.id}/remove").status_code == 403
    assert viewer.ask("GET", "/schedules/new").status_code == 403


@pytest.mark.parametrize("act", ["", "/run", "/edit", "/remove"])
def test_a_schedule_of_another_tenant_is_not_found(shop: House, act: str) -> None:
    made = added(shop, tenant="other")
    person = shop.person("admin", "acme")
    assert person.ask("GET", f"/schedules/{made.id}{act}").status_code == 404
    assert "nightly" not in person.open("/schedules")
    assert person.post(f"/schedules/{made.id}/pause").status_code == 404
    assert shop.app.schedules.get(made.id, tenant="other").enabled


def test_a_schedule_is_paused_with_a_reason_and_resumed(shop: House) -> None:
    made = added(shop)
    person = shop.person("operator", "acme")
    page = person.send(f"/schedules/{made.id}", "/pause", reason="it is broken")
    assert "Schedule nightly is paused." in page
    assert "it is broken" in page
    assert "is resumed" in person.send(f"/schedules/{made.id}", "/resume")
    assert shop.app.schedules.get(made.id, tenant="acme").enabled


def test_running_now_needs_confirmation_and_creates_a_job(shop: House) -> None:
    made = added(shop)
    person = shop.person("operator", "acme")
    assert "One job of send is created" in person.open(f"/schedules/{made.id}/run")
    page = person.send(f"/schedules/{made.id}/run", "/run")
    (job,) = shop.app.jobs.list(tenant="acme").items
    assert f"Job {job.id} of schedule nightly was created." in page
    assert f"/jobs/{job.id}" in page
    assert "by hand" in page


def test_removing_needs_confirmation_and_keeps_the_jobs(shop: House) -> None:
    made = added(shop)
    shop.app.schedules.trigger(made.id, tenant="acme")
    page = shop.person("admin", "acme").send(f"/schedules/{made.id}/remove", "/remove")
    assert "Schedule nightly is removed" in page
    assert shop.app.schedules.list(tenant="acme") == []
    assert shop.app.jobs.count(tenant="acme") == 1


def test_a_new_schedule_is_created_by_its_form(shop: House) -> None:
    page = shop.person("admin", "acme").send(
        "/schedules/new", "/schedules/new", key="nightly", task="send", expression="30 2 * * mon", args='{"to": "ada"}',
        timezone="Europe/Berlin", tags="a, b", priority="5", calendar='{"weekend": "fri"}',
    )  # fmt: skip
    assert "Schedule nightly is saved." in page
    (made,) = shop.app.schedules.list(tenant="acme")
    assert made.trigger == Cron("30 2 * * mon")
    assert (made.timezone, made.args, made.enabled) == ("Europe/Berlin", {"to": "ada"}, True)
    assert made.options == {"tags": ["a", "b"], "priority": 5}
    assert made.calendar.weekend == "fri"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "every", "interval": "5", "interval_unit": "minutes"}, "Every 5 minutes"),
        ({"kind": "daily", "daily_at": "06:00, 18:30"}, "At 06:00 and 18:30 every day"),
        (
            {"kind": "weekly", "weekly_days": ["mon", "fri"], "weekly_at": "09:00"},
            "At 09:00 on Monday and Friday",
        ),
        (
            {"kind": "monthly", "monthly_day": "last", "monthly_at": "00:30"},
            "At 00:30 on the last day of every month",
        ),
        (
            {
                "kind": "monthly_business_day",
                "business_n": "-1",
                "business_at": "07:00",
                "business_roll": "none",
            },
            "At 07:00 on the last business day of every month; a month with fewer is left out",
        ),
        ({"kind": "once", "once_at": "2099-05-01T08:00"}, "Once, at 2099-05-01 06:00 UTC"),
        ({"kind": "manual"}, "Only when triggered manually"),
    ],
)
def test_every_kind_of_trigger_can_be_created_and_saved_unchanged(
    shop: House, fields: dict[str, object], words: str
) -> None:
    person = shop.person("admin", "acme")
    csrf = csrf_of(person.open("/schedules/new"))
    said = {
        "csrf": csrf,
        "key": "k",
        "task": "send",
        "args": '{"to": "a"}',
        "timezone": "Europe/Berlin",
        **fields,
    }
    if words.startswith("Once"):  # the maximum is five years ahead
        said["once_at"] = f"{datetime.now(UTC).year + 1}-05-01T08:00"
        words = words.replace("2099", str(datetime.now(UTC).year + 1))
    answer = person.ask("POST", "/schedules/new", data=said)
    assert answer.status_code == 303, answer.text
    (made,) = shop.app.schedules.list(tenant="acme")
    assert made.words == words
    # Saving its form without changes leaves the schedule unchanged.
    person.send(f"/schedules/{made.id}/edit", "/edit", **_ticked(person.open(f"/schedules/{made.id}/edit")))
    (again,) = shop.app.schedules.list(tenant="acme")
    assert (again.trigger, again.args, again.timezone) == (made.trigger, made.args, made.timezone)


def csrf_of(page: str) -> str:
    found = re.search(r'name="csrf" content="(\w+)"', page)
    assert found is not None
    return found[1]


def _ticked(page: str) -> dict[str, Any]:
    days = re.findall(r'name="weekly_days" value="(\w+)" checked', page)
    return {"weekly_days": days} if days else {}


def test_a_preview_is_shown_in_words_and_saves_nothing(shop: House) -> None:
    person = shop.person("admin", "acme")
    csrf = csrf_of(person.open("/schedules/new"))
    answer = person.ask(
        "POST",
        "/schedules/new",
        data={
            "csrf": csrf, "do": "preview", "key": "k", "task": "send", "args": '{"to": "a"}', "kind": "daily",
            "daily_at": "02:30", "timezone": "Europe/Berlin",
        },
    )  # fmt: skip
    assert answer.status_code == 200
    preview = answer.text.partition('id="previewed"')[2]
    assert "At 02:30 every day" in preview
    assert "Europe/Berlin" in preview
    assert answer.text.count('<td class="nowrap mono">') == 8
    assert "Nothing is saved yet" in answer.text
    assert 'value="02:30"' in answer.text
    assert shop.app.schedules.list(tenant="acme") == []


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("expression", "61 * * * *", "minute"),
        ("expression", "", "write five or six fields"),
        ("timezone", "Mars/Olympus", "unknown time zone"),
        ("args", "{to: ada}", "this is not JSON"),
        ("args", '{"to": 7}', "to: Input should be a valid string"),
        ("args", '{"whom": "ada"}', "there is no such argument"),
        ("key", "", "give it a name"),
        ("task", "", "choose a task"),
        ("priority", "900", "give a whole number from -100 to 100"),
        ("calendar", '{"weekend": "someday"}', "is not a weekday"),
        ("exclude", "[]", "this is not a JSON object"),
        ("queue", "@node", "begins with"),
    ],
)
def test_an_error_is_shown_next_to_its_field_and_the_input_is_kept(
    shop: House, field: str, value: str, words: str
) -> None:
    person = shop.person("admin", "acme")
    said = {
        "csrf": csrf_of(person.open("/schedules/new")), "kind": "cron", "key": "my-key", "task": "send",
        "expression": "0 2 * * *", "args": '{"to": "ada"}', field: value,
    }  # fmt: skip
    answer = person.ask("POST", "/schedules/new", data=said)
    assert answer.status_code == 422
    beside = re.search(rf'id="wrong-{field}">([^<]*)<', answer.text)
    assert beside is not None, re.findall(r'id="wrong-[^"]*">[^<]*<', answer.text)
    assert words in beside[1].replace("&#39;", "'")
    assert field == "key" or 'value="my-key"' in answer.text
    assert shop.app.schedules.list(tenant="acme") == []


def test_a_duplicate_key_is_reported_next_to_its_field(shop: House) -> None:
    added(shop)
    person = shop.person("admin", "acme")
    csrf = csrf_of(person.open("/schedules/new"))
    data = {"csrf": csrf, "kind": "manual", "key": "nightly", "task": "send", "args": '{"to": "a"}'}
    answer = person.ask("POST", "/schedules/new", data=data)
    assert answer.status_code == 422
    assert 'id="wrong-key">tenant acme has a schedule' in answer.text


def test_a_trigger_that_never_fires_is_reported_next_to_its_field(shop: House) -> None:
    person = shop.person("admin", "acme")
    csrf = csrf_of(person.open("/schedules/new"))
    data = {
        "csrf": csrf,
        "kind": "once",
        "once_at": "2001-01-01T00:00",
        "key": "k",
        "task": "send",
        "args": '{"to": "a"}',
    }
    answer = person.ask("POST", "/schedules/new", data=data)
    assert answer.status_code == 422
    assert re.search(r'id="wrong-once_at">[^<]*has passed', answer.text)


def test_a_schedule_is_changed_by_its_form_and_cleared_options_are_reset(shop: House) -> None:
    made = added(shop, queue="slow", priority=7, tags=["x"], trigger=Every(timedelta(hours=2)))
    person = shop.person("admin", "acme")
    page = person.send(
        f"/schedules/{made.id}/edit", "/edit", kind="daily", daily_at="06:00", queue="", tags="", misfire="all",
        misfire_limit="7",
    )  # fmt: skip
    assert "is saved and effective immediately" in page
    found = shop.app.schedules.get(made.id, tenant="acme")
    assert found.trigger == Daily("06:00")
    assert found.row.misfire == {"all": 7}
    assert (found.options["queue"], found.options["priority"], found.options["tags"]) == ("mail", 7, [])


def test_a_schedule_declared_in_code_cannot_be_changed_or_removed(shop: House) -> None:
    shop.app.schedule("send", Cron("0 3 * * *"), "coded", args={"to": "ada"})
    shop.app.reconcile()
    (found,) = shop.app.schedules.list(tenant="*")
    person = shop.person("admin")
    page = person.open(f"/schedules/{found.id}")
    assert "in code" in page
    assert "Edit</a>" not in page
    assert "Remove" not in page
    assert "change it there" in person.open(f"/schedules/{found.id}/edit", 409)
    assert person.post(f"/schedules/{found.id}/remove").status_code == 422


def test_an_unreadable_schedule_shows_why(shop: House) -> None:
    made = added(shop)
    shop.app.store.put_schedules([replace(made.row, trigger={"format": 99})])
    person = shop.person("viewer", "acme")
    assert "broken" in person.open("/schedules?status=broken")
    page = person.open(f"/schedules/{made.id}")
    assert "it cannot be read here" in page
    assert "It does not fire." in page


def test_fires_are_paged_with_their_jobs(shop: House) -> None:
    made = added(shop)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    shop.app.store.note_fires(
        [
            Fired(
                made.id,
                start + timedelta(hours=n),
                tenant="acme",
                job_id=new_id() if n == 29 else None,
                reason=f"r{n}",
            )
            for n in range(30)
        ]
    )
    person = shop.person("viewer", "acme")
    page = person.open(f"/schedules/{made.id}")
    assert "job no longer stored" in page
    older = re.search(r'href="([^"]*before=[^"]*)"', page)
    assert older is not None
    assert ">r5<" in page
    page = person.open(older[1].replace("&amp;", "&"))
    assert ">r4<" in page
    assert ">r5<" not in page


@pytest.mark.parametrize("nodes", [10, 30])
def test_no_fire_of_a_node_is_lost_between_two_pages(shop: House, nodes: int) -> None:
    made = added(shop)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    every = [(hour, node) for hour in range(4) for node in range(nodes)]
    shop.app.store.note_fires(
        [
            Fired(made.id, start + timedelta(hours=hour), f"n{node}", "acme", reason=f"r{hour}-{node}")
            for hour, node in every
        ]
    )
    person = shop.person("viewer", "acme")
    shown: list[str] = []
    address: str | None = f"/schedules/{made.id}"
    while address is not None:
        page = person.open(address)
        shown += re.findall(r">(r\d-\d+)<", page)
        older = re.search(r'href="([^"]*before=[^"]*)">Older', page)
        address = None if older is None else older[1].replace("&amp;", "&")
    assert sorted(shown) == sorted(f"r{hour}-{node}" for hour, node in every)


def test_an_active_schedule_is_called_enabled_everywhere(
    shop: House,
) -> None:
    made = shop.app.schedules.add("send", Daily("06:00"), "nightly", args={"to": "ada"})
    person = shop.person()
    for page in (person.open("/schedules?status=enabled"), person.open(f"/schedules/{made.id}")):
        assert 'class="badge s-enabled"' in page
        assert 'class="badge s-active"' not in page


def test_a_schedule_of_a_definition_shows_the_definition_and_its_owner(shop: House) -> None:
    definition = shop.app.definitions.save(
        "letter", "send", args={"to": "ada"}, name="Nightly letter", owner="billing team", tenant="acme"
    )
    made = shop.app.schedules.add(definition, Cron("0 2 * * *"), "nightly")
    page = shop.person("viewer", "acme").open(f"/schedules/{made.id}")
    assert "Nightly letter" in page
    assert "billing team" in page


def test_a_schedule_that_runs_after_a_definition_shows_what_it_waits_for(shop: House) -> None:
    made = added(shop, "load", trigger=After("orders"))
    page = shop.person("viewer", "acme").open(f"/schedules/{made.id}")
    assert "After orders completed" in page
    assert "It waits for orders, which does not exist yet." in page
    edit = shop.person("admin", "acme").open(f"/schedules/{made.id}/edit")
    assert 'name="after_definitions" value="orders"' in edit or 'value="orders"' in edit


@pytest.mark.parametrize(
    ("fields", "trigger"),
    [
        (
            {"kind": "after", "after_definitions": "orders, stock", "after_on": "end", "after_same": "day"},
            After("orders", "stock", on="end", same="day", fresh=None),
        ),
        (
            {
                "kind": "on",
                "on_event": "paid",
                "on_where": '{"country": "DE"}',
                "on_args": '{"to": "$.name"}',
            },
            On("paid", where={"country": "DE"}, args={"to": "$.name"}),
        ),
    ],
)
def test_the_form_reads_triggers_without_times(fields: dict[str, str], trigger: object) -> None:
    rules, errors = schedule_form.read_rules(Fields(list({"timezone": "UTC", **fields}.items())))
    assert errors == {}
    assert rules["trigger"] == trigger


def test_the_page_counts_definitions_and_schedules_by_state(shop: House) -> None:
    added(shop)
    shop.app.definitions.save("letter", "send", args={"to": "ada"}, tenant="acme")
    shop.app.definitions.disable("letter", tenant="acme")
    page = shop.person("viewer", "acme").open("/schedules")
    assert "1 schedules enabled, 0 paused; 0 definitions enabled, 1 disabled" in page


def test_missed_fires_are_previewed_and_created(shop: House) -> None:
    made = added(shop, trigger=Daily("02:00"))
    person = shop.person("operator", "acme")
    assert "Back-fill…</a>" in person.open(f"/schedules/{made.id}")
    range_of = "start=2026-01-01&end=2026-01-04"
    page = person.open(f"/schedules/{made.id}/backfill?{range_of}")
    assert "Create 3 jobs" in page
    assert not shop.app.schedules.fires(made.id, tenant="acme")
    page = person.send(f"/schedules/{made.id}/backfill?{range_of}", "/backfill")
    assert "3 fires of schedule nightly were made, 0 existed." in page
    fires = shop.app.schedules.fires(made.id, tenant="acme")
    assert [fire.fire_at.day for fire in fires] == [3, 2, 1]
    assert all(fire.job_id for fire in fires)
    assert "No fire is missing" in person.open(f"/schedules/{made.id}/backfill?{range_of}")


def test_an_invalid_range_is_explained_at_its_field(shop: House) -> None:
    made = added(shop, trigger=Daily("02:00"))
    person = shop.person("operator", "acme")
    assert "is not a moment" in person.open(f"/schedules/{made.id}/backfill?start=soon", 422)
    page = person.open(f"/schedules/{made.id}/backfill?start=2026-01-04&end=2026-01-01", 422)
    assert "is before" in page
    page = person.open(f"/schedules/{made.id}/backfill?start=2026-01-04&end=2300-01-01", 422)
    assert "has not passed yet" in page


def test_a_schedule_of_every_node_has_no_missed_fires_to_make(shop: House) -> None:
    made = added(shop, scope="instance")
    person = shop.person("operator", "acme")
    assert "Back-fill" not in person.open(f"/schedules/{made.id}")
    page = person.open(f"/schedules/{made.id}/backfill?start=2026-01-01", 422)
    assert "cannot be backfilled" in page
