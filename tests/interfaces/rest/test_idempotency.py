"""Idempotency-Key: a repeated request creates no second job."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
from tests.interfaces.rest.kit import Browser, Site, declare, problem, site

from tidemill import App
from tidemill.domain.access import Identity, Role
from tidemill.rest import create_api

BODY = {"task": "send", "args": {"to": "ada"}}
KEY = {"idempotency-key": "order-4711"}


def test_the_same_key_returns_the_same_job(shop: Site) -> None:
    first = shop.call("POST", "/api/jobs", BODY, headers=KEY)
    again = shop.call("POST", "/api/jobs", BODY, headers=KEY)

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["location"] == first.headers["location"]
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert len(shop.get("/api/jobs")["items"]) == 1


def test_a_key_still_applies_after_its_job_has_ended(shop: Site) -> None:
    first = shop.call("POST", "/api/jobs", BODY, headers=KEY).json()
    shop.drain()
    again = shop.call("POST", "/api/jobs", BODY, headers=KEY)
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    assert again.json()["status"] == "completed"


def test_each_tenant_has_its_own_keys(shop: Site) -> None:
    mine = shop.call("POST", "/api/jobs", BODY, headers=KEY).json()
    theirs = shop.call("POST", "/api/jobs", BODY, headers=KEY, tenant="other")
    assert theirs.status_code == 201
    assert theirs.json()["id"] != mine["id"]


@pytest.mark.parametrize(
    "change",
    [{"args": {"to": "bob"}}, {"task": "talk", "args": {"lines": 1}}, {"priority": 3}, {"queue": "x"}, {"timeout": 5},
     {"metadata": {"a": 1}}, {"tags": ["x"]}, {"reference": ["user", "1"]},
     {"retry": {"kind": "fixed", "max_attempts": 2}}],
)  # fmt: skip
def test_a_key_reused_for_a_different_request_is_rejected(shop: Site, change: dict[str, object]) -> None:
    first = shop.call("POST", "/api/jobs", BODY, headers=KEY).json()
    found = problem(shop.call("POST", "/api/jobs", BODY | change, headers=KEY), 409, "idempotency_key_reused")
    assert found["job_id"] == first["id"]
    assert len(shop.get("/api/jobs")["items"]) == 1


def test_a_key_cannot_be_combined_with_a_uniqueness_rule(shop: Site) -> None:
    once = {"task": "once", "args": {"number": 1}}
    problem(shop.call("POST", "/api/jobs", once, headers=KEY), 422, "idempotency_not_possible")
    problem(
        shop.call("POST", "/api/jobs", BODY | {"unique": {}}, headers=KEY), 422, "idempotency_not_possible"
    )


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_an_empty_or_overlong_key_is_rejected(shop: Site, key: str) -> None:
    problem(
        shop.call("POST", "/api/jobs", BODY, headers={"idempotency-key": key}), 422, "bad_idempotency_key"
    )


def test_concurrent_requests_with_one_key_create_one_job(shop: Site) -> None:
    rest = {"json": BODY, "headers": {**KEY, "authorization": f"Bearer {shop.key()}"}}
    answers = shop.client.together(*[("POST", "/api/jobs", rest)] * 20)
    assert sorted({answer.status_code for answer in answers}) == [200, 201]
    assert len({answer.json()["id"] for answer in answers}) == 1


def test_two_servers_on_one_store_create_one_job(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    found: list[tuple[int, str]] = []

    async def everybody(_: object) -> Identity:
        return Identity("test", Role.OPERATOR, "acme")

    gate = threading.Barrier(2)

    def server() -> None:
        with App(url) as app:
            declare(app)
            with contextlib.closing(Browser(create_api(app, auth=everybody))) as browser:
                gate.wait(30)
                answer = browser.request("POST", "/api/jobs", json=BODY, headers=KEY)
                found.append((answer.status_code, answer.json()["id"]))

    with site(url):  # creates the tables before the servers race
        threads = [threading.Thread(target=server) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(status for status, _ in found) == [200, 201]
    assert len({id for _, id in found}) == 1
