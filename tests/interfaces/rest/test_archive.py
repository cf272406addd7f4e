"""Archiving over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.interfaces.rest.kit import Site, problem
from tests.interfaces.rest.served import place
from tests.interfaces.rest.test_resources import fits

from tidemill.domain.archive_totals import LEASE
from tidemill.ids import new_id
from tidemill.rest.job_models import JobDocument

PATH = "/api/archive/run"


def run(shop: Site, body: Any = None, **who: str) -> Any:
    return shop.call("POST", PATH, body, **{"role": "admin", "tenant": "*", **who})


@pytest.fixture
def ended(alone: Site) -> Site:
    """A site where each tenant has two ended jobs."""
    for tenant in ("acme", "other"):
        alone.create(tenant=tenant)
        alone.create("fail", tenant=tenant, args={"words": "no"})
    alone.drain()
    return alone


def test_a_run_archives_due_jobs_and_reports_the_counts_per_policy(ended: Site) -> None:
    nothing = fits(PATH, run(ended).json(), "POST")  # no job is thirty days old
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


def test_an_archived_job_is_read_like_any_other_job(ended: Site) -> None:
    run(ended, {"older_than": 0})
    assert ended.get("/api/jobs")["items"] == []
    kept = next(job for job in ended.get("/api/archive/jobs")["items"] if job["task"] == "send")
    path = f"/api/jobs/{kept['id']}"
    job = ended.get(f"{path}?logs=true")
    JobDocument.model_validate(job)
    assert (job["status"], job["value"]) == ("completed", "sent to ada")
    assert job["archived_at"] == kept["archived_at"]
    assert [line["message"] for line in job["logs"]] == ["sent"]
    assert ended.get(f"{path}/progress")["status"] == "completed"
    assert [each["status"] for each in ended.get(f"{path}/executions")["items"]] == ["succeeded"]
    page = ended.get(f"{path}/logs?limit=1")
    assert [line["message"] for line in page["items"]] == ["sent"]
    assert ended.get(f"{path}/logs?cursor={page['next']}")["items"] == []
    assert [each["code"] for each in ended.get(f"{path}/why")["items"]] == ["ended", "archived"]
    assert ended.get(f"{path}/children")["items"] == []
    viewed = ended.call("GET", f"{path}?logs=true", role="viewer").json()
    assert viewed["logs"][0]["details"]["token"] == "***"
    problem(ended.call("GET", path, tenant="other"), 404, "job_not_found")
    for verb in ("cancel", "retry", "run-now", "rerun", "approve", "reject"):
        refused = problem(ended.call("POST", f"{path}/{verb}"), 409, "illegal_transition")
        assert "it was archived" in refused["detail"]
    refused = problem(ended.call("DELETE", path, role="admin"), 409, "illegal_transition")
    assert "restore it first" in refused["detail"]


def test_the_event_stream_of_an_archived_job_ends_at_once() -> None:
    with place() as served:
        _, made = served.request("POST", "/api/jobs", {"task": "send", "args": {"to": "ada"}})
        served.app.testing().drain()
        assert served.app.archive.run(older_than=timedelta(0)).archived == 1
        (event,) = served.follow(f"/api/jobs/{made['id']}/events").events()
    assert (event.name, event.data["status"]) == ("end", "completed")
    assert event.data["archived_at"] is not None


def test_the_audit_log_records_who_archived_jobs(ended: Site) -> None:
    assert run(ended, {"older_than": 0}).status_code == 200
    found = ended.get("/api/audit?action=jobs.archived", role="admin", tenant="*")["items"]
    assert [(each["subject"], each["after"]["done"]) for each in found] == [("jobs", 2), ("jobs", 2)]
    assert all(each["who"].endswith("(admin of all)") for each in found)
    # The entry names jobs of every tenant, so only keys for all tenants see it.
    for tenant in ("acme", "other"):
        assert ended.get("/api/audit?action=jobs.archived", role="admin", tenant=tenant)["items"] == []


def test_only_admins_of_all_tenants_may_archive(shop: Site) -> None:
    problem(run(shop, role="operator"), 403, "forbidden")
    problem(run(shop, tenant="acme"), 403, "wrong_tenant")
    problem(run(shop, tenant="acme", role="super_admin"), 403, "wrong_tenant")


@pytest.mark.parametrize(
    "body",
    [{"limit": 0}, {"limit": 50_001}, {"budget": 0}, {"budget": 301}, {"older_than": -1}, {"tier": "x"}],
)
def test_a_run_with_limits_out_of_range_is_rejected(shop: Site, body: Any) -> None:
    problem(run(shop, body), 422, "invalid_request")


def test_a_second_archive_run_at_the_same_time_gets_409(shop: Site) -> None:
    store, holder = shop.app.store, new_id()
    lease = store.acquire(LEASE, holder, ttl=timedelta(minutes=5))
    assert lease is not None
    problem(run(shop), 409, "archive_running")
    store.release(LEASE, holder, lease.term)
    assert run(shop).status_code == 200


def test_retention_is_shown_with_its_policies_and_runs(ended: Site) -> None:
    status = fits("/api/archive", ended.get("/api/archive", tenant="*"))
    assert (status["enabled"], status["interval"], status["runs"]) == (True, 3600.0, [])
    run(ended, {"older_than": 0})
    status = fits("/api/archive", ended.get("/api/archive", tenant="*"))
    assert [each["archived"] for each in status["runs"]] == [4]
    assert {each["name"]: each["archived"] for each in status["policies"] if each["archived"]} == {
        "completed": 2,
        "failed": 2,
    }
    assert ended.call("GET", "/api/archive", tenant="acme").status_code == 403


def test_the_policy_of_a_job_is_explained(ended: Site) -> None:
    (job,) = [each for each in ended.get("/api/jobs")["items"] if each["task"] == "fail"]
    path = f"/api/archive/explain/{job['id']}"
    choice = fits("/api/archive/explain/{id}", ended.get(path))
    assert (choice["policy"], choice["tier"], choice["to_tier"]) == ("failed", "live", "archive")
    assert [each["policy"] for each in choice["considered"] if each["applies"]] == ["failed"]
    assert choice["text"][-1].startswith("it moves to tier archive of store archive on ")
    problem(ended.call("GET", path, tenant="other"), 404, "job_not_found")
    run(ended, {"older_than": 0})
    assert ended.get(path)["tier"] == "archive"


def test_archived_jobs_are_listed_with_live_ones_on_request(ended: Site) -> None:
    run(ended, {"older_than": 0})
    live = ended.create(tenant="acme")["id"]
    assert [job["id"] for job in ended.get("/api/jobs")["items"]] == [live]
    everything = ended.get("/api/jobs?tiers=all")["items"]
    assert [job["tier"] for job in everything] == [None, "archive", "archive"]
    assert {job["tenant"] for job in everything} == {"acme"}
    problem(ended.call("GET", "/api/jobs?tiers=tables&tiers=warm"), 422, "bad_filter")


def test_an_archived_job_is_restored_over_http(ended: Site) -> None:
    run(ended, {"older_than": 0})
    ids = [job["id"] for job in ended.get("/api/archive/jobs", tenant="*")["items"]]
    path = "/api/archive/restore"
    assert ended.call("POST", path, {"ids": ids}, role="operator").status_code == 403
    done = fits(path, ended.call("POST", path, {"ids": ids}, role="admin").json(), "POST")
    assert (len(done["restored"]), len(done["missing"])) == (2, 2)  # those of the other tenant are not found
    assert len(ended.get("/api/jobs")["items"]) == 2


def test_jobs_are_erased_over_http_by_an_admin_of_their_tenant(ended: Site) -> None:
    run(ended, {"older_than": 0})
    ids = [job["id"] for job in ended.get("/api/archive/jobs", tenant="*")["items"]]
    path = "/api/archive/erase"
    assert ended.call("POST", path, {"ids": ids}, role="operator").status_code == 403
    problem(ended.call("POST", path, {}, role="admin"), 422, "bad_filter")
    planned = fits(path, ended.call("POST", path, {"ids": ids}, role="admin").json(), "POST")
    assert planned == {"jobs": 2, "tiers": {"archive": 2}, "dry_run": True}
    done = ended.call("POST", path, {"whole_tenant": True, "dry_run": False}, role="admin").json()
    assert (done["jobs"], done["dry_run"]) == (2, False)
    left = ended.get("/api/archive/jobs", tenant="*")["items"]
    assert {job["tenant"] for job in left} == {"other"}
