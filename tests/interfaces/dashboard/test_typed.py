"""Extreme input in forms and URLs is parsed or rejected with a message."""

from __future__ import annotations

from typing import Any

import pytest
from tests.interfaces.dashboard.crowd import post
from tests.interfaces.dashboard.kit import House, forms, house

from tidemill import App, BoundTask, Daily

ZEROS = "0" * 5_000  # more digits than Python converts to a number
DEEP = "[" * 100_000  # deeper than Python parses JSON


@pytest.mark.parametrize("text", ["--5", "-", "5-", ZEROS, f"{ZEROS}5", "٥", "1e3", "9" * 30])
@pytest.mark.parametrize(
    "address", ["/schedules?page=", "/audit?before=", "/tasks?page=", "/schedules/{}?n="]
)
def test_an_invalid_number_in_a_url_is_rejected_with_a_message(shop: House, address: str, text: str) -> None:
    made = shop.app.schedules.add("send", Daily("06:00"), "k", args={"to": "ann"})
    page = shop.person().open(address.format(made.id) + text, status=422)
    assert "give a whole number from" in page


@pytest.mark.parametrize("word", ["path", "self", "query", "changes", "tenant_", "request"])
@pytest.mark.parametrize(("address", "status"), [("/", 200), ("/jobs", 200), ("/nowhere", 404)])
def test_a_url_may_contain_any_query_parameter(shop: House, address: str, status: int, word: str) -> None:
    page = shop.person().open(f"{address}?{word}=x", status=status)
    assert f"{word}=x" in page


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/tasks/send", {"args_json": DEEP}),
        ("/tasks/send", {"arg.to": "ann", "arg.size": DEEP}),
        ("/schedules/new", {"key": "k", "task": "send", "kind": "daily", "daily_at": "06:00", "args": DEEP}),
        (
            "/schedules/new",
            {"key": "k", "task": "send", "kind": "daily", "daily_at": "06:00", "exclude": DEEP},
        ),
        ("/queues/-/limit", {"name": "queue/mail", "max": ZEROS}),
        ("/jobs/bulk?status=failed", {"act": "retry", "scope": "all", "sure": "1", "done": "--1"}),
    ],
)
def test_an_unreadable_field_is_reported_on_the_form(shop: House, path: str, fields: dict[str, str]) -> None:
    answer = shop.person().post(path, **fields)
    assert answer.status_code == 422, answer.text
    assert "nested too deep" in answer.text or "give a whole number" in answer.text


@pytest.mark.parametrize("text", ["+00005x", "0000500", "5.0"])
def test_a_priority_with_extra_characters_is_rejected(shop: House, text: str) -> None:
    job = post(shop, "send", to="ann")
    answer = shop.person().post(f"/jobs/{job}/again", args='{"to": "ann"}', priority=text)
    assert answer.status_code == 422
    assert "give a whole number from -100 to 100" in answer.text


@pytest.mark.parametrize("weight", ["1000", "0.001", "2.5", "1"])
def test_a_weight_sent_back_unchanged_stays_the_same(shop: House, weight: str) -> None:
    person = shop.person()
    assert person.post("/tenants/weight", name="acme", weight=weight).status_code == 303
    page = person.open("/tenants")
    (shown,) = (dict(form.fields) for form in forms(page) if form.action.endswith("/tenants/weight"))
    assert shown["weight"] == weight
    assert person.post("/tenants/weight", **shown).status_code == 303
    (setting,) = shop.app.control.settings()
    assert setting.value == {"weight": float(weight)}


def test_a_very_long_reason_is_truncated_everywhere(shop: House) -> None:
    person, long = shop.person(), "x" * 9_000
    person.post("/tenants/pause", name="acme", reason=long)
    assert [len(pause.reason or "") for pause in shop.app.control.pauses()] == [2_000]
    job = post(shop)
    person.post("/jobs/bulk", act="cancel", id=job, sure="1", reason=long)
    assert len(shop.app.jobs.get(job, tenant="acme").reason or "") < 3_000


@pytest.mark.parametrize("path", ["/jobs/{}/delete", "/jobs/{}/again", "/jobs/bulk?status=failed"])
def test_a_read_only_site_shows_no_form_that_could_not_be_sent(path: str) -> None:
    with house(read_only=True) as shop:
        job = asked_for(shop.app, "fail", words="no")
        shop.drain()
        assert "is read-only" in shop.person().open(path.format(job), status=403)


def asked_for(app: App, task: str, **args: Any) -> str:
    """Enqueue a job from code and return its id."""
    bound: BoundTask[Any, Any] = app.bound_task(task)
    return str(bound.enqueue(**args).id)
