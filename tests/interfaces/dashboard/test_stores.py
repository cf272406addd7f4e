"""Tests of the dashboard for an app with several stores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interfaces.dashboard.kit import House, forms, house

STORES = {"default": "memory://", "reports": "memory://", "archive": "memory://"}


@pytest.fixture
def several() -> Iterator[House]:
    with house(stores=STORES) as made:
        made.app.task(name="placed", store="reports")(lambda: None)
        yield made


def test_the_switch_works_without_a_script_and_links_keep_the_store(several: House) -> None:
    several.app.enqueue("send", to="ada")
    job = several.app.enqueue("placed")
    person = several.person()
    page = person.open("/jobs")
    assert str(job.id) not in page
    (switch,) = [form for form in forms(page) if dict(form.fields).get("store")]
    assert (switch.method, switch.action, dict(switch.fields)["store"]) == ("get", "/jobs", "default")
    there = person.open("/jobs?store=reports")
    assert str(job.id) in there
    assert 'href="/schedules?store=reports"' in there
    assert 'content="/live?store=reports"' in there
    assert "/static/base.css?v=" in there


def test_the_first_page_opens_the_store_that_was_chosen_last(several: House) -> None:
    person = several.person()
    assert person.ask("GET", "/").status_code == 200
    person.open("/queues?store=reports")
    answer = person.ask("GET", "/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/?store=reports")
    assert person.ask("GET", "/jobs").status_code == 200, "other addresses mean what they say"
    person.open("/?store=default")
    assert person.ask("GET", "/").status_code == 200


def test_a_job_of_another_store_is_shown_and_acted_on_there(several: House) -> None:
    job = several.app.enqueue("placed")
    person = several.person()
    page = person.open(f"/jobs/{job.id}")
    assert f"/jobs/{job.id}/cancel?store=reports" in page
    assert "No living worker serves the store" in page
    person.send(f"/jobs/{job.id}", f"/jobs/{job.id}/cancel")
    assert job.refresh().status == "cancelled"


def test_forms_act_on_the_store_of_their_page(several: House) -> None:
    several.app.at_store("reports").enqueue("send", to="ada")
    several.person().send("/queues?store=reports", "/queues/-/pause")
    assert len(several.app.at_store("reports").control.pauses()) == 1
    assert several.app.control.pauses() == []


def test_an_unknown_store_is_an_error_page(several: House) -> None:
    answer = several.person().ask("GET", "/jobs?store=nowhere")
    assert answer.status_code in (400, 404, 422)
    assert "there is no store named" in answer.text


def test_an_app_with_one_store_has_no_switch() -> None:
    with house() as made:
        page = made.person().open("/")
        assert 'name="store"' not in page
