"""The pages about tasks, and the enqueue form."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import quote

import pytest
from tests.interfaces.dashboard.crowd import words
from tests.interfaces.dashboard.kit import House, Person

from tidemill.domain.job import NewJob
from tidemill.domain.states import JobState
from tidemill.ids import new_id


def enqueue(person: Person, task: str, fields: dict[str, str], status: int = 303) -> str:
    """Send the form of a task's page; return the redirect target, or the page if it is rejected."""
    page = person.open(f"/tasks/{quote(task)}")
    csrf = re.search(r'name="csrf" content="(\w+)"', page)
    assert csrf is not None
    answer = person.ask("POST", f"/tasks/{quote(task)}", data={"csrf": csrf[1], **fields})
    assert answer.status_code == status, answer.text
    return answer.headers["location"] if status == 303 else answer.text


def beside(page: str, field: str) -> str:
    """The error message next to a field."""
    found = re.search(rf'id="wrong-{re.escape(field)}">([^<]*)<', page)
    assert found is not None, re.findall(r'id="wrong-[^<]*<', page)
    return found[1]


def test_every_task_is_listed_with_its_failure_rate(shop: House) -> None:
    with shop.app.tenant("acme"):
        for _ in range(3):
            shop.app.bound_task("send").enqueue(to="ada")
        shop.app.bound_task("fail").enqueue(words="no")
    shop.drain()
    page = shop.person("viewer", "acme").open("/tasks")
    for name in shop.app.registry.names():
        assert f"<strong>{name}</strong>" in page
    assert "100 %" in page
    other = shop.person("viewer", "other").open("/tasks")
    assert "100 %" not in other


def test_the_failures_of_a_task_are_those_of_the_last_day(shop: House) -> None:
    with shop.app.tenant("acme"):
        shop.app.bound_task("fail").enqueue_many([{"words": "no"}] * 3)
        shop.drain()
        shop.app.store.enqueue([_job("fail", "acme") for _ in range(120)])
        shop.app.jobs.cancel(task="fail", status="pending")
    person = shop.person("viewer", "acme")
    page = words(person.open("/tasks"))
    assert "3 (2.4 %)" in page
    assert "Failures, p50 and p95 are those of the last 24 hours" in page
    assert "failed: 3 of 123, last 24 h" in words(person.open("/tasks/fail"))
    assert "p95 of 3, last 24 h" in words(person.open("/tasks/fail"))


def test_jobs_in_review_are_shown_with_their_task(shop: House) -> None:
    with shop.app.tenant("acme"):
        shop.app.bound_task("look").enqueue_many([{"what": "this"}] * 2)
    shop.drain()
    person = shop.person("viewer", "acme")
    assert '<a href="/jobs?task=look&amp;status=review_needed">2</a>' in person.open("/tasks")
    assert "2 waiting for review" in words(person.open("/tasks/look"))


def test_tasks_are_found_by_name(shop: House) -> None:
    person = shop.person("viewer", "acme")
    page = person.open("/tasks?q=SEN")
    assert "<strong>send</strong>" in page
    assert "<strong>talk</strong>" not in page
    assert "No tasks found" in person.open("/tasks?q=nothing")


def test_a_task_shows_its_arguments(shop: House) -> None:
    page = shop.person("viewer", "acme").open("/tasks/send")
    assert "Send one letter." in page
    assert "string or null" in page
    assert "&#34;title&#34;: &#34;Arguments&#34;" in page or "&#34;properties&#34;" in page
    assert "Enqueue" not in page


def test_an_unknown_task_is_not_found(shop: House) -> None:
    assert "unknown task" in shop.person("viewer", "acme").open("/tasks/nothing", 404)


def test_a_task_known_only_from_jobs_has_no_form_and_shows_why(shop: House) -> None:
    name = "strange/task name?"
    shop.app.store.enqueue([_job(name, "acme")])
    person = shop.person("operator", "acme")
    assert "not known here" in person.open("/tasks")
    page = person.open(f"/tasks/{quote(name)}")
    assert "This server has no code that declares this task" in page
    assert 'id="enqueue"' not in page
    assert shop.person("operator", "other").ask("GET", f"/tasks/{quote(name)}").status_code == 404
    assert person.post(f"/tasks/{quote(name)}").status_code == 422


def _job(task: str, tenant: str) -> NewJob:
    return NewJob(id=new_id(), task=task, args="{}", tenant=tenant)


def test_the_form_enqueues_a_job_and_leads_to_its_page(shop: House) -> None:
    person = shop.person("operator", "acme")
    where = enqueue(
        person, "send", {"arg.to": "ada", "arg.size": "3", "priority": "5", "queue": "slow", "delay": "2",
        "delay_unit": "hours", "tags": "a, b"},
    )  # fmt: skip
    (job,) = shop.app.jobs.list(tenant="acme").items
    assert where == f"/jobs/{job.id}"
    assert job.row.args == '{"to":"ada","size":3}'
    assert (job.row.queue, job.row.priority, job.row.state) == ("slow", 5, JobState.SCHEDULED)
    assert job.row.run_at - job.row.created_at >= timedelta(minutes=119)
    assert job.row.details.tags == ("a", "b")


def test_a_user_of_all_tenants_enqueues_for_the_selected_tenant(shop: House) -> None:
    person = shop.person("operator")
    page = person.open("/tasks/send?tenant=acme")
    assert "for tenant acme" in page
    csrf = re.search(r'name="csrf" content="(\w+)"', page)
    assert csrf is not None
    answer = person.ask("POST", "/tasks/send?tenant=acme", data={"csrf": csrf[1], "arg.to": "ada"})
    assert answer.status_code == 303
    assert shop.app.jobs.count(tenant="acme") == 1


def test_an_error_is_shown_next_to_its_field_and_the_input_is_kept(shop: House) -> None:
    person = shop.person("operator", "acme")
    page = enqueue(person, "send", {"arg.size": "many", "tags": "kept"}, 422)
    assert "give a whole number" in beside(page, "arg.size")
    assert 'value="many"' in page
    assert 'value="kept"' in page
    page = enqueue(person, "send", {"arg.size": "7"}, 422)
    assert beside(page, "arg.to") == "required, but missing; give it a value"
    assert 'value="7"' in page
    page = enqueue(person, "send", {"args_json": '{"to": 1, "wrong": 2}'}, 422)
    assert "there is no such argument" in page
    assert shop.app.jobs.count(tenant="acme") == 0


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("priority", "1000", "from -100 to 100"),
        ("queue", "@node", "nodes"),
        ("delay", "soon", "is not a duration"),
        ("delay", "inf", "is not a duration"),
        ("args_json", "{", "not JSON"),
    ],
)
def test_invalid_options_are_reported_next_to_their_fields(
    shop: House, field: str, value: str, words: str
) -> None:
    person = shop.person("operator", "acme")
    assert words in beside(enqueue(person, "send", {"arg.to": "ada", field: value}, 422), field)
    assert shop.app.jobs.count(tenant="acme") == 0


def test_a_duplicate_of_a_unique_job_leads_to_the_existing_one(shop: House) -> None:
    person = shop.person("operator", "acme")
    first = enqueue(person, "once", {"arg.number": "1"})
    assert enqueue(person, "once", {"arg.number": "1"}) == first
    assert enqueue(person, "send", {"arg.to": "a"}) != enqueue(person, "send", {"arg.to": "a"})
    second = enqueue(person, "send", {"arg.to": "b", "unique": "live"})
    assert enqueue(person, "send", {"arg.to": "b", "unique": "live"}) == second


def test_a_full_queue_is_reported_on_the_form(shop: House) -> None:
    shop.app.limits.set("depth/queue/mail", 1)
    person = shop.person("operator", "acme")
    enqueue(person, "send", {"arg.to": "ada"})
    page = enqueue(person, "send", {"arg.to": "bob"}, 422)
    assert "queue mail is full" in page
    assert 'value="bob"' in page


def test_viewers_cannot_enqueue(shop: House) -> None:
    person = shop.person("viewer", "acme")
    assert person.post("/tasks/send", **{"arg.to": "ada"}).status_code == 403
    assert shop.app.jobs.count(tenant="acme") == 0


def test_a_task_is_paused_with_a_reason_and_resumed(shop: House) -> None:
    person = shop.person("operator")
    page = person.send("/tasks/send", "/tasks/-/pause", reason="the server is down")
    assert "Task send is paused" in page
    assert "the server is down" in page
    listed = shop.person("viewer", "acme").open("/tasks")
    assert "paused" in listed
    assert "the server is down" not in listed
    assert "start again" in person.send("/tasks/send", "/tasks/-/resume")
    assert shop.app.control.pauses() == []


@pytest.mark.parametrize("act", ["pause", "resume"])
def test_a_user_of_one_tenant_cannot_pause_a_task(shop: House, act: str) -> None:
    person = shop.person("admin", "acme")
    assert "/tasks/-/" not in person.open("/tasks/send")
    assert person.post(f"/tasks/-/{act}", name="send").status_code == 403
    assert shop.person("viewer").post(f"/tasks/-/{act}", name="send").status_code == 403


def test_settings_override_the_code_and_can_be_removed_again(shop: House) -> None:
    person = shop.person()
    at = "/tasks/-/settings/send"
    page = person.send(
        at,
        "/tasks/-/settings/send",
        max_attempts="9",
        timeout="5",
        timeout_unit="minutes",
        max_concurrent="2",
    )
    assert "Workers apply it" in page
    assert "<strong>9</strong>" in page
    assert "<strong>5 min</strong>" in page
    assert "task/send" in page
    assert [each.value for each in shop.app.control.settings()] == [{"max_attempts": 9, "timeout": 300.0}]
    assert [rule.max for rule in shop.app.store.rules() if rule.pinned] == [2]
    # Saving the form without changes keeps the settings.
    person.send(at, "/tasks/-/settings/send")
    assert [each.value for each in shop.app.control.settings()] == [{"max_attempts": 9, "timeout": 300.0}]
    person.send(
        at, "/tasks/-/settings/send", timeout="", timeout_unit="no limit", max_attempts="", max_concurrent=""
    )
    assert [each.value for each in shop.app.control.settings()] == [{"timeout": None}]
    assert [rule.max for rule in shop.app.store.rules() if rule.pinned] == []
    person.send(at, "/tasks/-/settings/send", timeout="", timeout_unit="seconds")
    assert shop.app.control.settings() == []


def test_an_invalid_setting_is_reported_next_to_its_field(shop: House) -> None:
    person = shop.person()
    answer = person.post("/tasks/-/settings/send", max_attempts="0", timeout="9")
    assert answer.status_code == 422
    assert "whole number from 1" in beside(answer.text, "max_attempts")
    assert 'value="9"' in answer.text
    assert "longer than zero" in beside(person.post("/tasks/-/settings/send", timeout="0").text, "timeout")
    assert shop.app.control.settings() == []


def test_settings_need_a_super_admin_of_all_tenants(shop: House) -> None:
    for person in (shop.person("admin"), shop.person("super_admin", "acme")):
        assert "/tasks/-/settings" not in person.open("/tasks/send")
        assert person.ask("GET", "/tasks/-/settings/send").status_code == 403
        assert person.post("/tasks/-/settings/send", max_attempts="2").status_code == 403


def test_the_latest_jobs_of_a_task_are_listed_by_their_end(shop: House) -> None:
    with shop.app.tenant("acme"):
        ended_last, ended_first = shop.app.bound_task("send").enqueue_many([{"to": "ada"}] * 2)
    ended_first.cancel()
    shop.drain()
    page = shop.person("viewer", "acme").open("/tasks/send").partition("<tbody>")[2]
    assert page.index(str(ended_last.id)) < page.index(str(ended_first.id))


def test_a_task_shows_the_latest_jobs_of_the_tenant_only(shop: House) -> None:
    with shop.app.tenant("acme"):
        job = shop.app.bound_task("send").enqueue(to="ada")
    shop.drain()
    assert str(job.id) in shop.person("viewer", "acme").open("/tasks/send")
    assert str(job.id) not in shop.person("viewer", "other").open("/tasks/send")


def test_a_task_and_its_queue_show_the_ends_of_the_last_hour(shop: House) -> None:
    with shop.app.tenant("acme"):
        shop.app.bound_task("send").enqueue(to="ada")
    shop.drain()
    viewer = shop.person("viewer", "acme")
    assert "Jobs of send that ended per minute in the last hour" in viewer.open("/tasks")
    assert "Jobs of mail that ended per minute in the last hour" in viewer.open("/queues")
    assert "that ended per minute" not in shop.person("viewer", "other").open("/tasks")
