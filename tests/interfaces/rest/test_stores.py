"""Tests of the HTTP API for an app with several stores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interfaces.rest.kit import Site, site


@pytest.fixture
def shop() -> Iterator[Site]:
    stores = {"default": "memory://", "reports": "memory://", "archive": "memory://"}
    with site(stranger=False, stores=stores) as made:
        made.app.task(name="placed", store="reports")(lambda: None)
        yield made


def test_a_request_addresses_the_store_that_its_query_or_header_names(shop: Site) -> None:
    here = shop.call("POST", "/api/jobs", {"task": "send", "args": {"to": "ada"}})
    there = shop.call("POST", "/api/jobs?store=reports", {"task": "send", "args": {"to": "bob"}})
    assert [answer.headers["tidemill-store"] for answer in (here, there)] == ["default", "reports"]
    assert [row["id"] for row in shop.call("GET", "/api/jobs").json()["items"]] == [here.json()["id"]]
    listed = shop.call("GET", "/api/jobs", headers={"Tidemill-Store": "reports"})
    assert [row["id"] for row in listed.json()["items"]] == [there.json()["id"]]
    assert shop.app.at_store("reports").jobs.count(tenant="acme") == 1


def test_a_job_is_found_in_whatever_store_it_is(shop: Site) -> None:
    made = shop.call("POST", "/api/jobs", {"task": "placed"})
    assert made.headers["tidemill-store"] == "reports"
    address = f"/api/jobs/{made.json()['id']}"
    found = shop.call("GET", address)
    assert (found.status_code, found.headers["tidemill-store"]) == (200, "reports")
    assert "No living worker serves the store 'reports'" in shop.call("GET", f"{address}/why").text
    assert shop.call("GET", f"{address}?store=default").status_code == 404
    assert shop.call("POST", f"{address}/cancel", {}).json()["status"] == "cancelled"


def test_pauses_and_schedules_belong_to_one_store(shop: Site) -> None:
    admin = {"role": "admin", "tenant": "*"}
    paused = shop.call("POST", "/api/queues/mail/pause?store=reports", {}, **admin)
    assert paused.status_code == 200, paused.text
    pauses = {
        name: len(shop.call("GET", f"/api/pauses?store={name}", **admin).json()["items"])
        for name in ("default", "reports")
    }
    assert pauses == {"default": 0, "reports": 1}


def test_the_stores_are_listed_with_their_workers(shop: Site) -> None:
    shop.call("POST", "/api/jobs", {"task": "placed"})
    rows = shop.call("GET", "/api/stores", role="viewer", tenant="*").json()["items"]
    assert [(row["name"], row["default"], row["live"], row["waiting"]) for row in rows] == [
        ("default", True, True, 0),
        ("reports", False, True, 1),
        ("archive", False, False, 0),
    ]
    assert {row["status"] for row in rows} == {"ok"}
    assert shop.call("GET", "/api/stores", role="viewer", tenant="acme").status_code == 403


def test_an_unknown_store_is_a_bad_request(shop: Site) -> None:
    answer = shop.call("GET", "/api/jobs?store=nowhere")
    assert answer.status_code in (400, 404, 422)
    assert "there is no store named 'nowhere'" in answer.json()["detail"]


def test_metrics_of_all_stores_have_a_label(shop: Site) -> None:
    text = shop.call("GET", "/metrics", role="viewer", tenant="*").text
    assert 'tidemill_store_up{store="reports"} 1' in text
