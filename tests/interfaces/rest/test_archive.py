"""Archiving over HTTP: bounded, by admins of all tenants, one at a time, and written down."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.interfaces.rest.kit import Site, problem
from tests.interfaces.rest.test_resources import fits

from tidemill.domain.archival import LEASE
from tidemill.ids import new_id

PATH = "/api/archive/run"


def run(shop: Site, body: Any = None, **who: str) -> Any:
    return shop.call("POST", PATH, body, **{"role": "admin", "tenant": "*", **who})


@pytest.fixture
def ended(alone: Site) -> Site:
    """Two jobs of each tenant that ended."""
    for tenant in ("acme", "other"):
        alone.create(tenant=tenant)
        alone.create("fail", tenant=tenant, args={"words": "no"})
    alone.drain()
    return alone


def test_what_is_due_is_archived_and_the_answer_says_what(ended: Site) -> None:
    nothing = fits(PATH, run(ended).json(), "POST")  # nothing is thirty days old
    assert (nothing["archived"], nothing["more"]) == (0, False)
    done = fits(PATH, run(ended, {"older_than": 0, "limit": 3, "budget": 60}).json(), "POST")
    assert (done["archived"], done["failed"], done["more"]) == (3, 0, True)
    assert {each["policy"]: each["statuses"] for each in done["policies"] if each["archived"]} == {
        "completed": {"completed": 2},
        "failed": {"failed": 1},
    }
    assert ended.get("/api/jobs", tenant="*")["items"][0]["status"] == "failed"
    assert len(ended.get("/api/archive/jobs", tenant="*")["items"]) == 3
    rows = ended.get("/api/stats/archival", tenant="*")["rows"]
    assert {row["policy"]: row["archived"] for row in rows} == {"completed": 2, "failed": 1}
    metrics = ended.call("GET", "/metrics", tenant="*", role="viewer").text
    assert 'tidemill_jobs_archived_total{policy="failed",status="failed",tier="archive"} 1' in metrics


def test_it_is_written_down_who_archived(ended: Site) -> None:
    assert run(ended, {"older_than": 0}).status_code == 200
    found = ended.get("/api/audit?action=jobs.archived", role="admin", tenant="*")["items"]
    assert [(each["subject"], each["after"]["done"]) for each in found] == [("jobs", 2), ("jobs", 2)]
    assert all(each["who"].endswith("(admin of all)") for each in found)
    # It names jobs of every tenant, so it is for those who see all of them.
    for tenant in ("acme", "other"):
        assert ended.get("/api/audit?action=jobs.archived", role="admin", tenant=tenant)["items"] == []


def test_only_admins_of_all_tenants_archive(shop: Site) -> None:
    problem(run(shop, role="operator"), 403, "forbidden")
    problem(run(shop, tenant="acme"), 403, "wrong_tenant")
    problem(run(shop, tenant="acme", role="super_admin"), 403, "wrong_tenant")


@pytest.mark.parametrize(
    "body",
    [{"limit": 0}, {"limit": 50_001}, {"budget": 0}, {"budget": 301}, {"older_than": -1}, {"tier": "x"}],
)
def test_a_run_beyond_its_bounds_is_refused(shop: Site, body: Any) -> None:
    problem(run(shop, body), 422, "invalid_request")


def test_two_runs_at_once_are_one(shop: Site) -> None:
    store, holder = shop.app.store, new_id()
    lease = store.acquire(LEASE, holder, ttl=timedelta(minutes=5))
    assert lease is not None
    problem(run(shop), 409, "archive_running")
    store.release(LEASE, holder, lease.term)
    assert run(shop).status_code == 200
