"""Isolation of tenants over HTTP."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.interfaces.rest.kit import Site, problem, site

from tidemill.rest.api import all_routes


class Estate:
    """The data of tenant acme."""

    def __init__(self, shop: Site) -> None:
        self.shop = shop
        self.job = shop.create(args={"to": "acme-person"}, correlation_id="acme-story", tags=["acme-tag"])[
            "id"
        ]
        self.failed = shop.create("fail", args={"words": "acme-words"}, parent_id=self.job)["id"]
        self.review = shop.create("look", args={"what": "acme-thing"})["id"]
        shop.drain()
        schedule = shop.call(
            "POST",
            "/api/schedules",
            {"key": "acme-nightly", "task": "send", "trigger": "0 2 * * *", "args": {"to": "acme-person"}},
            role="admin",
        )
        assert schedule.status_code == 201, schedule.text
        self.schedule = schedule.json()["id"]
        definition = shop.call(
            "POST",
            "/api/definitions",
            {"key": "acme-report", "task": "send", "args": {"to": "acme-person"}},
            role="admin",
        )
        assert definition.status_code == 201, definition.text
        self.definition = definition.json()["id"]
        nodes = [
            {"name": "first", "task": "fail", "args": {"words": "acme-words"}},
            {"name": "second", "task": "send", "args": {"to": "acme-person"}, "after": ["first"]},
        ]
        flow = shop.call("POST", "/api/flows", {"name": "acme-flow", "nodes": nodes}, role="admin")
        assert flow.status_code == 201, flow.text
        self.flow = flow.json()["id"]
        with shop.app.tenant("acme"), shop.app.batch("acme-batch") as batch:
            shop.app.bound_task("send").enqueue(to="acme-person")
        self.batch = str(batch.id)
        shop.drain()
        (group,) = shop.app.errors.list(tenant="acme")
        self.error = group.fingerprint
        self.key = shop.call("POST", "/api/keys", {"name": "acme-key"}, role="super_admin").json()["id"]

    def paths(self, path: str) -> list[str]:
        """A route's paths with acme's ids."""
        if "/jobs/{id}" in path or "/explain/{id}" in path:
            return [path.replace("{id}", id) for id in (self.job, self.failed, self.review)]
        if "/flows/{id}" in path:
            return [path.replace("{id}", self.flow)]
        if "/errors/{fingerprint}" in path:
            return [path.replace("{fingerprint}", self.error)]
        if "/batches/{id}" in path:
            return [path.replace("{id}", self.batch)]
        if "/schedules/{id}" in path:
            return [path.replace("{id}", id) for id in (self.schedule, "acme-nightly")]
        if "/keys/{id}" in path:
            return [path.replace("{id}", self.key)]
        return [path.replace("{key}", "acme-report").replace("{name}", "send")]

    def signs(self) -> list[str]:
        """Texts that only acme's keys may see."""
        return [
            self.job,
            self.failed,
            self.review,
            self.schedule,
            self.definition,
            self.key,
            self.flow,
            self.batch,
            "acme",
        ]


@pytest.fixture
def estate() -> Iterator[Estate]:
    with site() as shop:
        yield Estate(shop)


READS = sorted(
    {act.path for act in all_routes() if act.method == "GET" and not act.stream and not act.everywhere}
)

NOT_FOR_VIEWERS = {"/api/jobs/{id}/args", "/api/jobs/{id}/value", "/api/jobs/{id}/steps"}
"""Downloads are not masked. The role is checked before the job is read, so 403 says nothing about the job."""


@pytest.mark.parametrize("path", READS)
def test_no_response_to_another_tenant_contains_data_of_the_first(estate: Estate, path: str) -> None:
    for address, role in itertools.product(estate.paths(path), ("viewer", "super_admin")):
        answer = estate.shop.call("GET", address, tenant="other", role=role)
        if "{" in path and "tasks" not in path:
            refused = role == "viewer" and path in NOT_FOR_VIEWERS
            assert answer.status_code == (403 if refused else 404), answer.text
        asked = [part for part in address.split("/") if part]
        for sign in estate.signs():
            if not any(sign in part for part in asked):
                assert sign not in answer.text, address


def test_a_tenant_sees_its_own_data(estate: Estate) -> None:
    seen = "".join(
        estate.shop.call("GET", address, role="super_admin").text
        for path in READS
        for address in estate.paths(path)
    )
    assert [sign for sign in estate.signs() if sign not in seen] == []


POSTED: dict[str, dict[str, object]] = {
    "backfill": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:00:00Z"},
    "reschedule": {"run_at": "2999-01-01T00:00:00Z"},
    "skip": {"node": "first"},
    "answer": {"answer": True},
    "signal": {"name": "go"},
    "signals": {"name": "go"},
}
"""Bodies of the POST routes that need one, by the last part of their path."""

CHANGES = sorted(
    {(act.method, act.path) for act in all_routes() if act.mutates and "{" in act.path and not act.everywhere}
)


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_another_tenant_cannot_change_data_of_the_first(estate: Estate, method: str, path: str) -> None:
    bodies = {
        "PUT": {"trigger": "0 3 * * *"} if "schedules" in path else {"args": {"to": "x"}},
        "PATCH": {"priority": 1} if "jobs" in path else {"owner": "x"},
        "POST": POSTED.get(path.rpartition("/")[2]),
    }
    for address in estate.paths(path):
        before = {each: estate.shop.call("GET", each, role="super_admin").text for each in _kept(estate)}
        answer = estate.shop.call(method, address, bodies.get(method), tenant="other", role="super_admin")
        if (method, path) == (
            "PUT",
            "/api/definitions/{key}",
        ):  # keys are per tenant, and a new definition needs a task
            assert answer.status_code == 422, answer.text
        else:
            assert answer.status_code == 404, answer.text
        assert before == {each: estate.shop.call("GET", each, role="super_admin").text for each in before}


def _kept(estate: Estate) -> list[str]:
    return [
        *(f"/api/jobs/{id}" for id in (estate.job, estate.failed, estate.review)),
        f"/api/schedules/{estate.schedule}",
        f"/api/flows/{estate.flow}",
        f"/api/batches/{estate.batch}",
        "/api/definitions/acme-report",
        "/api/keys",
    ]


def test_a_key_of_one_tenant_cannot_select_another_tenant(estate: Estate) -> None:
    shop = estate.shop
    assert shop.call("GET", "/api/jobs?tenant=acme").status_code == 200
    problem(shop.call("GET", "/api/jobs?tenant=acme", tenant="other"), 403, "wrong_tenant")
    for path, body in (
        ("/api/jobs", {"task": "send", "args": {"to": "x"}}),
        ("/api/definitions", {"key": "k", "task": "send", "args": {"to": "x"}}),
        ("/api/schedules", {"key": "k", "task": "send", "trigger": "0 2 * * *", "args": {"to": "x"}}),
        ("/api/keys", {"name": "k"}),
    ):
        asked = {**body, "tenant": "acme"}
        problem(shop.call("POST", path, asked, tenant="other", role="super_admin"), 403, "wrong_tenant")


def test_bulk_actions_stay_in_their_tenant(estate: Estate) -> None:
    for action in ("cancel", "retry", "delete"):
        body = {"action": action, "filter": {"ids": [estate.failed, estate.job, estate.review]}}
        answer = estate.shop.call("POST", "/api/jobs/bulk", body, tenant="other", role="admin")
        assert answer.json() == {"done": 0, "skipped": 0, "more": False}


def test_restoring_and_erasing_stay_in_their_tenant(estate: Estate) -> None:
    ids = [estate.failed, estate.job]
    before = [estate.shop.call("GET", f"/api/jobs/{id}", role="super_admin").text for id in ids]
    restored = estate.shop.call("POST", "/api/archive/restore", {"ids": ids}, tenant="other", role="admin")
    assert restored.json() == {"restored": [], "live": [], "missing": ids, "damaged": [], "retried": []}
    body = {"ids": ids, "dry_run": False}
    erased = estate.shop.call("POST", "/api/archive/erase", body, tenant="other", role="admin")
    assert erased.json()["jobs"] == 0
    problem(
        estate.shop.call("POST", "/api/archive/erase?tenant=acme", body, tenant="other", role="admin"),
        403,
        "wrong_tenant",
    )
    assert before == [estate.shop.call("GET", f"/api/jobs/{id}", role="super_admin").text for id in ids]


def test_a_key_of_all_tenants_reads_all_and_writes_for_the_selected_tenant() -> None:
    with site(stranger=False) as shop:
        mine, theirs = (shop.create(tenant=tenant)["id"] for tenant in ("acme", "other"))
        ids = {job["id"] for job in shop.get("/api/jobs", tenant="*")["items"]}
        assert ids == {mine, theirs}
        assert [job["id"] for job in shop.get("/api/jobs?tenant=acme", tenant="*")["items"]] == [mine]
        problem(shop.call("GET", f"/api/jobs/{mine}?tenant=other", tenant="*"), 404, "job_not_found")
        body = {"task": "send", "args": {"to": "x"}}
        assert shop.call("POST", "/api/jobs", body, tenant="*").json()["tenant"] == "default"
        assert (
            shop.call("POST", "/api/jobs", {**body, "tenant": "acme"}, tenant="*").json()["tenant"] == "acme"
        )
        assert shop.call("POST", "/api/jobs?tenant=other", body, tenant="*").json()["tenant"] == "other"
