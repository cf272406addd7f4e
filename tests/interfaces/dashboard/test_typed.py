"""What people type, or put into an address, at its worst: it is read, or refused in words; nothing of it is our own mistake."""

from __future__ import annotations

from typing import Any

import pytest
from tests.interfaces.dashboard.crowd import post
from tests.interfaces.dashboard.kit import House, forms, house

from tidemill import App, BoundTask, Daily

ZEROS = "0" * 5_000  # more digits than Python reads as a number
DEEP = "[" * 100_000  # deeper than Python reads JSON


@pytest.mark.parametrize("text", ["--5", "-", "5-", ZEROS, f"{ZEROS}5", "٥", "1e3", "9" * 30])
@pytest.mark.parametrize(
    "address", ["/schedules?page=", "/audit?before=", "/tasks?page=", "/schedules/{}?n="]
)
def test_a_number_in_an_address_that_is_none_is_refused_in_words(
    shop: House, address: str, text: str
) -> None:
    made = shop.app.schedules.add("send", Daily("06:00"), "k", args={"to": "ann"})
    page = shop.person().open(address.format(made.id) + text, status=422)
    assert "give a whole number from" in page


@pytest.mark.parametrize("word", ["path", "self", "query", "changes", "tenant_", "visit"])
@pytest.mark.parametrize(("address", "status"), [("/", 200), ("/jobs", 200), ("/nowhere", 404)])
def test_any_word_may_stand_in_an_address(shop: House, address: str, status: int, word: str) -> None:
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
        ("/jobs/bulk?state=failed", {"act": "retry", "scope": "all", "sure": "1", "done": "--1"}),
    ],
)
def test_a_field_that_cannot_be_read_is_said_beside_the_form(
    shop: House, path: str, fields: dict[str, str]
) -> None:
    answer = shop.person().post(path, **fields)
    assert answer.status_code == 422, answer.text
    assert "nested too deep" in answer.text or "give a whole number" in answer.text


@pytest.mark.parametrize("text", ["+00005x", "0000500", "5.0"])
def test_a_priority_is_read_whole_or_not_at_all(shop: House, text: str) -> None:
    job = post(shop, "send", to="ann")
    answer = shop.person().post(f"/jobs/{job}/again", args='{"to": "ann"}', priority=text)
    assert answer.status_code == 422
    assert "give a whole number from -100 to 100" in answer.text


@pytest.mark.parametrize("weight", ["1000", "0.001", "2.5", "1"])
def test_a_weight_that_is_sent_back_as_it_is_shown_stays_the_same(shop: House, weight: str) -> None:
    person = shop.person()
    assert person.post("/tenants/weight", name="acme", weight=weight).status_code == 303
    page = person.open("/tenants")
    (shown,) = (dict(form.fields) for form in forms(page) if form.action.endswith("/tenants/weight"))
    assert shown["weight"] == weight
    assert person.post("/tenants/weight", **shown).status_code == 303
    (setting,) = shop.app.control.settings()
    assert setting.value == {"weight": float(weight)}


def test_a_reason_that_is_very_long_is_cut_wherever_it_is_given(shop: House) -> None:
    person, long = shop.person(), "x" * 9_000
    person.post("/tenants/pause", name="acme", reason=long)
    assert [len(pause.reason or "") for pause in shop.app.control.pauses()] == [2_000]
    job = post(shop)
    person.post("/jobs/bulk", act="cancel", id=job, sure="1", reason=long)
    assert len(shop.app.jobs.get(job, tenant="acme").reason or "") < 3_000


@pytest.mark.parametrize("path", ["/jobs/{}/delete", "/jobs/{}/again", "/jobs/bulk?state=failed"])
def test_where_one_may_only_look_no_form_is_shown_that_could_not_be_sent(path: str) -> None:
    with house(read_only=True) as shop:
        job = asked_for(shop.app, "fail", words="no")
        shop.drain()
        assert "for looking only" in shop.person().open(path.format(job), status=403)


def asked_for(app: App, task: str, **args: Any) -> str:
    """A job that a program enqueued; its id."""
    bound: BoundTask[Any, Any] = BoundTask(app._client, app.registry.get(task))
    return str(bound.enqueue(**args).id)
