"""The HTTP API except jobs: tasks, schedules, workers, settings, keys and more."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.interfaces.rest.kit import Site, problem

from tidemill.clock import SystemClock
from tidemill.domain.cluster import Worker
from tidemill.domain.depths import DepthSample
from tidemill.domain.job import JobRow
from tidemill.domain.retention import archive_document
from tidemill.domain.worker_reports import ProcessFigures, SlotCounts, SupervisorReport, WorkerReport
from tidemill.errors import StoreUnavailable
from tidemill.ids import new_id
from tidemill.rest.api import all_routes
from tidemill.rest.models import Document


def fits(path: str, document: Any, method: str = "GET") -> Any:
    """Check a document against the response model of its route, and return it."""
    (act,) = [act for act in all_routes() if (act.method, act.path) == (method, path)]
    assert issubclass(act.answer, Document)
    act.answer.model_validate_json(json.dumps(document))
    return document


# Tasks and queues ------------------------------------------------------------------------------------------------------


def test_tasks_are_listed_with_their_arguments_and_counts(shop: Site) -> None:
    found = fits("/api/tasks", shop.get("/api/tasks?limit=2"))
    assert [task["name"] for task in found["items"]] == ["fail", "look"]
    rest = shop.get(f"/api/tasks?cursor={found['next']}")
    assert [task["name"] for task in rest["items"]] == ["once", "send", "talk"]
    shop.create()
    send = fits("/api/tasks/{name}", shop.get("/api/tasks/send"))
    assert send["description"] == "Send one letter."
    assert send["arguments"]["required"] == ["to"]
    assert send["counts"] == {"pending": 1}
    assert shop.get("/api/tasks/send", tenant="other")["counts"] == {}
    problem(shop.call("GET", "/api/tasks/nobody"), 404, "task_not_found")


def test_options_of_a_task_are_overridden_and_reset(shop: Site) -> None:
    admin: dict[str, Any] = {"tenant": "*", "role": "admin"}
    changed = shop.call(
        "PATCH", "/api/tasks/send", {"max_attempts": 9, "timeout": 5, "max_concurrent": 2}, **admin
    )
    task = fits("/api/tasks/{name}", changed.json(), "PATCH")
    assert task["overrides"] == {"max_attempts": 9, "timeout": 5.0, "max_concurrent": 2}
    changed = shop.call("PATCH", "/api/tasks/send", {"unset": ["timeout", "max_concurrent"]}, **admin)
    assert changed.json()["overrides"] == {"max_attempts": 9}
    assert changed.json()["paused"] is None
    both = shop.call("PATCH", "/api/tasks/send", {"timeout": 1, "unset": ["timeout"]}, **admin)
    problem(both, 422, "bad_settings")
    problem(shop.call("PATCH", "/api/tasks/send", {"unset": ["queue"]}, **admin), 422, "invalid_request")
    problem(shop.call("PATCH", "/api/tasks/nobody", {"timeout": 1}, **admin), 404, "task_not_found")


def test_tenants_are_listed_and_configured(shop: Site) -> None:
    admin: dict[str, Any] = {"tenant": "*", "role": "super_admin"}
    shop.create()
    set_ = shop.call("PATCH", "/api/tenants/blue", {"weight": 2.5, "max_priority": 10}, **admin).json()
    assert fits("/api/tenants/{name}", set_, "PATCH") == {"tenant": "blue", "weight": 2.5, "max_priority": 10}
    kept = shop.call("PATCH", "/api/tenants/blue", {"max_priority": None}, **admin).json()
    assert kept == {"tenant": "blue", "weight": 2.5, "max_priority": None}
    rows = {row["tenant"]: row for row in fits("/api/tenants", shop.get("/api/tenants", tenant="*"))["items"]}
    assert rows["blue"]["weight"] == 2.5
    assert sum(row["pending"] for row in rows.values()) == 1
    assert shop.call("DELETE", "/api/tenants/blue", **admin).status_code == 204
    assert "blue" not in [row["tenant"] for row in shop.get("/api/tenants", tenant="*")["items"]]
    problem(shop.call("PATCH", "/api/tenants/blue", {"weight": 0}, **admin), 422, "invalid_request")
    problem(shop.call("PATCH", "/api/tenants/blue", {"weight": 1}, tenant="*"), 403, "forbidden")
    problem(shop.call("GET", "/api/tenants"), 403, "wrong_tenant")


def test_limits_are_listed_set_and_removed(shop: Site) -> None:
    admin: dict[str, Any] = {"tenant": "*", "role": "admin"}
    limit = shop.call(
        "PUT", "/api/limits", {"name": "queue/mail", "max": 3, "per": 60, "burst": 2}, **admin
    ).json()
    fits("/api/limits", limit, "PUT")
    assert (limit["kind"], limit["max"], limit["per"], limit["burst"], limit["pinned"]) == (
        "rate",
        3,
        60.0,
        2,
        True,
    )
    listed = fits("/api/limits", shop.get("/api/limits", tenant="*"))["items"]
    assert "queue/mail" in [item["name"] for item in listed]
    (one,) = shop.get("/api/limits?name=queue/mail", tenant="*")["items"]
    assert one["name"] == "queue/mail"
    assert shop.call("DELETE", "/api/limits?name=queue/mail", **admin).status_code == 204
    problem(shop.call("GET", "/api/limits?name=queue/mail", tenant="*"), 404, "limit_not_found")
    problem(shop.call("PUT", "/api/limits", {"name": "mial", "max": 1}, **admin), 422, "bad_settings")
    problem(
        shop.call("POST", "/api/limits/reset-breaker", {"name": "nothing"}, tenant="*"),
        404,
        "limit_not_found",
    )


def test_a_full_queue_answers_429_and_names_a_time_to_retry(shop: Site) -> None:
    job: dict[str, Any] = {"task": "send", "args": {"to": "ada"}}
    body = {**job, "key": "nightly", "trigger": "0 2 * * *"}
    assert shop.call("POST", "/api/schedules", body, role="admin").status_code == 201
    shop.app.limits.set("depth/queue/mail", 1)
    shop.create()
    for path, given in {
        "/api/jobs": job,
        "/api/jobs/create": job,
        "/api/flows": {"name": "x", "nodes": [{"name": "one", **job}]},
        "/api/batches": {"name": "x", "jobs": [job]},
    }.items():
        answer = shop.call("POST", path, given)
        assert answer.status_code == 429, (path, answer.text)
        assert "queue mail is full" in problem(answer, 429, "queue_full")["detail"]
        assert answer.headers["retry-after"] == "1"
    # The fires of a schedule are not refused.
    assert shop.call("POST", "/api/schedules/nightly/trigger").status_code == 201


def test_a_lease_is_released(shop: Site) -> None:
    admin: dict[str, Any] = {"tenant": "*", "role": "admin"}
    holder = shop.app.store.register(Worker(new_id(), "w1"), lease=timedelta(hours=1))
    shop.app.store.acquire("duties", holder.id, ttl=timedelta(hours=1))
    freed = shop.call("POST", "/api/leases/duties/release", **admin).json()
    assert fits("/api/leases/{name}/release", freed, "POST") == {"name": "duties", "released": True}
    assert shop.call("POST", "/api/leases/duties/release", **admin).json()["released"] is False
    problem(shop.call("POST", "/api/leases/none/release", **admin), 404, "lease_not_found")


def test_missing_fires_of_a_schedule_are_created(shop: Site) -> None:
    body = {"key": "hourly", "task": "send", "trigger": "0 * * * *", "args": {"to": "ada"}}
    made = shop.call("POST", "/api/schedules", body, role="admin").json()
    path = f"/api/schedules/{made['id']}/backfill"
    range_ = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T03:00:00Z"}
    planned = shop.call("POST", path, {**range_, "dry_run": True}).json()
    assert len(fits("/api/schedules/{id}/backfill", planned, "POST")["fires"]) == 4
    done = shop.call("POST", path, {**range_, "limit": 3}).json()
    assert (len(done["fires"]), done["existing"], done["more"]) == (3, 0, True)
    rest = shop.call("POST", path, range_).json()
    assert (len(rest["fires"]), rest["existing"], rest["more"]) == (1, 3, False)


def test_a_tenant_and_the_whole_store_are_paused_and_resumed(shop: Site) -> None:
    job = shop.create()

    def ran() -> bool:
        shop.app.testing().drain()
        return bool(shop.get(f"/api/jobs/{job['id']}")["status"] == "completed")

    paused = shop.call(
        "POST", "/api/pauses", {"kind": "tenant", "name": "acme", "reason": "unpaid"}, tenant="*"
    ).json()
    assert (paused["kind"], paused["name"], paused["reason"]) == ("tenant", "acme", "unpaid")
    everything = shop.call("POST", "/api/pauses", {"kind": "all"}, tenant="*", role="admin").json()
    assert (everything["kind"], everything["name"]) == ("all", "")
    listed = fits("/api/pauses", shop.get("/api/pauses", tenant="*"))["items"]
    assert {(each["kind"], each["name"]) for each in listed} == {("tenant", "acme"), ("all", "")}
    assert not ran()
    assert shop.call("DELETE", "/api/pauses?kind=tenant&name=acme", tenant="*").status_code == 204
    assert not ran()
    problem(shop.call("DELETE", "/api/pauses?kind=all", tenant="*"), 403, "forbidden")
    assert shop.call("DELETE", "/api/pauses?kind=all", tenant="*", role="admin").status_code == 204
    assert shop.get("/api/pauses", tenant="*")["items"] == []
    assert ran()

    problem(shop.call("POST", "/api/pauses", {"kind": "all"}, tenant="*"), 403, "forbidden")
    problem(
        shop.call("POST", "/api/pauses", {"kind": "all", "name": "x"}, tenant="*", role="admin"),
        422,
        "bad_settings",
    )
    problem(shop.call("POST", "/api/pauses", {"kind": "tenant"}, tenant="*"), 422, "bad_settings")
    problem(
        shop.call("POST", "/api/pauses", {"kind": "job", "name": "x"}, tenant="*"), 422, "invalid_request"
    )
    problem(shop.call("POST", "/api/pauses", {"kind": "queue", "name": "mail"}), 403, "wrong_tenant")


def test_tasks_and_queues_are_paused_and_resumed(shop: Site) -> None:
    paused = shop.call("POST", "/api/tasks/send/pause", {"reason": "storm"}, tenant="*").json()
    assert (paused["paused"]["reason"], paused["paused"]["kind"]) == ("storm", "task")
    assert paused["paused"]["paused_by"].startswith("key:")
    assert shop.get("/api/tasks/send")["paused"]["reason"] is None  # only operators see the reason
    assert shop.call("POST", "/api/tasks/send/resume", tenant="*").json()["paused"] is None
    patched = shop.call("PATCH", "/api/tasks/send", {"paused": True}, tenant="*", role="admin")
    assert patched.json()["paused"] is not None
    assert (
        shop.call("PATCH", "/api/tasks/send", {"paused": False}, tenant="*", role="admin").json()["paused"]
        is None
    )
    problem(shop.call("POST", "/api/tasks/nobody/pause", tenant="*"), 404, "task_not_found")

    shop.create()
    queue = shop.call("POST", "/api/queues/mail/pause", {"reason": "full"}, tenant="*").json()
    assert queue["paused"]["reason"] == "full"
    seen = {each["name"]: each for each in fits("/api/queues", shop.get("/api/queues", tenant="*"))["items"]}
    assert seen["mail"]["pending"] == 1
    assert seen["mail"]["paused"]["reason"] == "full"
    assert shop.call("POST", "/api/queues/mail/resume", tenant="*").json() == {"name": "mail", "paused": None}
    assert shop.call("POST", "/api/queues/@node/pause", tenant="*").status_code == 422


# Definitions and schedules ---------------------------------------------------------------------------------------------


def test_a_definition_is_created_changed_triggered_and_deleted(shop: Site) -> None:
    def call(method: str, path: str, body: Any = None) -> Any:
        return shop.call(method, path, body, role="admin")

    made = call(
        "POST", "/api/definitions", {"key": "report", "task": "send", "args": {"to": "ann"}, "queue": "slow"}
    )
    assert made.status_code == 201
    assert made.headers["location"] == "/api/definitions/report"
    document = fits("/api/definitions", made.json(), "POST")
    assert (document["version"], document["settings"], document["args"]) == (
        1,
        {"queue": "slow", "max_concurrent": 1},
        {"to": "ann"},
    )
    problem(
        call("POST", "/api/definitions", {"key": "report", "task": "send", "args": {"to": "x"}}),
        409,
        "definition_exists",
    )
    problem(call("POST", "/api/definitions", {"key": "r", "task": "nobody"}), 422, "task_not_found")
    problem(call("POST", "/api/definitions", {"key": "r", "task": "send"}), 422, "bad_arguments")

    changed = call("PUT", "/api/definitions/report", {"args": {"to": "bob"}, "version": 1})
    assert (changed.json()["version"], changed.json()["args"]) == (2, {"to": "bob"})
    problem(
        call("PUT", "/api/definitions/report", {"args": {"to": "eve"}, "version": 1}),
        409,
        "definition_exists",
    )
    patched = call(
        "PATCH", "/api/definitions/report", {"owner": "ann", "enabled": False, "priority": 5}
    ).json()
    assert (patched["owner"], patched["enabled"], patched["args"]) == ("ann", False, {"to": "bob"})
    assert patched["settings"] == {"queue": "slow", "priority": 5, "max_concurrent": 1}
    assert [each["key"] for each in shop.get("/api/definitions")["items"]] == ["report"]

    problem(shop.call("POST", "/api/definitions/report/trigger"), 409, "definition_disabled")
    job = shop.call("POST", "/api/definitions/report/trigger", {"args": {"size": 2}, "force": True})
    assert job.status_code == 201
    assert (job.json()["definition_id"], job.json()["definition_version"]) == (document["id"], 3)
    listed = shop.get("/api/jobs?definition=report&definition_version=3")["items"]
    assert [each["id"] for each in listed] == [job.json()["id"]]
    assert shop.get("/api/jobs?definition=report&definition_version=1")["items"] == []
    problem(shop.call("GET", "/api/jobs?definition=nothing"), 422, "bad_filter")
    assert (job.json()["args"], job.json()["queue"]) == ({"to": "bob", "size": 2}, "slow")
    assert shop.get(job.headers["location"])["priority"] == 5
    assert call("DELETE", "/api/definitions/report").status_code == 204
    problem(call("GET", "/api/definitions/report"), 404, "definition_not_found")


def test_a_definition_that_refuses_a_second_job_answers_409(shop: Site) -> None:
    body = {"key": "single", "task": "send", "args": {"to": "ann"}, "on_busy": "refuse"}
    made = shop.call("POST", "/api/definitions", body, role="admin").json()
    assert made["settings"] == {"max_concurrent": 1, "on_busy": "refuse"}
    first = shop.call("POST", "/api/definitions/single/trigger")
    assert first.status_code == 201
    refused = problem(shop.call("POST", "/api/definitions/single/trigger"), 409, "definition_busy")
    assert first.json()["id"] in refused["detail"]


def test_a_paused_schedule_with_a_manual_trigger_answers_409(shop: Site) -> None:
    body = {"key": "hand", "task": "send", "args": {"to": "ann"}, "trigger": {"kind": "manual"}}
    made = shop.call("POST", "/api/schedules", body, role="admin").json()
    shop.call("POST", "/api/schedules/hand/pause")
    problem(shop.call("POST", "/api/schedules/hand/trigger"), 409, "schedule_paused")
    job = shop.call("POST", "/api/schedules/hand/trigger", {"force": True})
    assert job.status_code == 201
    assert job.json()["schedule_id"] == made["id"]
    fire = job.json()["fire_at"].replace("+", "%2B")
    for query in ("schedule=hand", f"schedule={made['id']}", f"schedule=hand&fire_at={fire}"):
        assert [each["id"] for each in shop.get(f"/api/jobs?{query}")["items"]] == [job.json()["id"]]


def test_a_schedule_of_every_runner_is_created_and_previewed(shop: Site) -> None:
    body = {
        "key": "caches",
        "task": "send",
        "args": {"to": "ann"},
        "trigger": "0 2 * * *",
        "scope": "process",
    }
    made = shop.call("POST", "/api/schedules", body, role="admin")
    assert (made.status_code, made.json()["scope"]) == (201, "process")
    assert len(shop.get("/api/schedules/caches/preview?n=3")["fires"]) == 3
    problem(
        shop.call("POST", "/api/schedules", {**body, "key": "k", "scope": "planet"}, role="admin"),
        422,
        "invalid_request",
    )


def test_a_schedule_is_created_changed_paused_triggered_and_deleted(shop: Site) -> None:
    def call(method: str, path: str, body: Any = None) -> Any:
        return shop.call(method, path, body, role="admin")

    body = {
        "key": "nightly",
        "task": "send",
        "trigger": "0 2 * * *",
        "args": {"to": "ann"},
        "timezone": "Europe/Berlin",
    }
    made = call("POST", "/api/schedules", {**body, "misfire": {"all": 5}, "priority": 3})
    assert made.status_code == 201, made.text
    document = fits("/api/schedules", made.json(), "POST")
    id = document["id"]
    assert made.headers["location"] == f"/api/schedules/{id}"
    assert (document["misfire"], document["options"], document["enabled"]) == (
        {"all": 5},
        {"priority": 3},
        True,
    )
    problem(call("POST", "/api/schedules", body), 409, "schedule_exists")
    assert shop.get("/api/schedules/nightly")["id"] == id

    fires = fits(
        "/api/schedules/{id}/preview", shop.get(f"/api/schedules/{id}/preview?n=3&after=2030-01-01T00:00:00Z")
    )
    assert [datetime.fromisoformat(at).hour for at in fires["fires"]] == [2, 2, 2]
    assert fires["fires"][0].startswith("2030-01-01T02:00:00+01:00")

    changed = call(
        "PUT", f"/api/schedules/{id}", {"trigger": {"kind": "every", "seconds": 300}, "args": {"to": "bob"}}
    )
    assert changed.status_code == 200, changed.text
    assert (changed.json()["trigger"]["kind"], changed.json()["args"], changed.json()["timezone"]) == (
        "every",
        {"to": "bob"},
        "UTC",
    )
    paused = shop.call("POST", f"/api/schedules/{id}/pause", {"reason": "holiday"}).json()
    assert (paused["enabled"], paused["note"], paused["next_fire_at"]) == (False, "holiday", None)
    assert [each["key"] for each in shop.get("/api/schedules?enabled=false&task=send")["items"]] == [
        "nightly"
    ]
    assert shop.get("/api/schedules?enabled=true")["items"] == []
    assert shop.call("POST", f"/api/schedules/{id}/resume").json()["enabled"] is True
    job = shop.call("POST", f"/api/schedules/{id}/trigger")
    assert (job.status_code, job.json()["args"]) == (201, {"to": "bob"})
    assert call("DELETE", f"/api/schedules/{id}").status_code == 204
    problem(call("GET", f"/api/schedules/{id}"), 404, "schedule_not_found")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"trigger": "every day"}, "bad_schedule"),
        ({"trigger": {"kind": "whenever"}}, "bad_schedule"),
        ({"trigger": {"kind": "every"}}, "bad_schedule"),
        ({"trigger": {"kind": "every", "seconds": "x"}}, "bad_schedule"),
        ({"trigger": 5}, "invalid_request"),
        ({"timezone": "Mars/Olympus"}, "bad_schedule"),
        ({"misfire": "always"}, "invalid_request"),
        ({"misfire": {"all": 0}}, "bad_schedule"),
        ({"overlap": "often"}, "invalid_request"),
        ({"calendar": {"days": 1}}, "bad_schedule"),
        ({"exclude": {"x": 1}}, "bad_schedule"),
        ({"task": "nobody"}, "task_not_found"),
        ({"task": None}, "bad_schedule"),
        ({"args": {"to": 1}}, "bad_arguments"),
        ({"queue": "@node"}, "bad_schedule"),
    ],
)
def test_an_invalid_schedule_is_rejected(shop: Site, change: dict[str, Any], code: str) -> None:
    body = {"key": "k", "task": "send", "trigger": "0 2 * * *", "args": {"to": "ann"}}
    problem(shop.call("POST", "/api/schedules", body | change, role="admin"), 422, code)
    assert shop.get("/api/schedules")["items"] == []


def test_deleting_a_definition_deletes_its_schedules(shop: Site) -> None:
    shop.call(
        "POST", "/api/definitions", {"key": "report", "task": "send", "args": {"to": "ann"}}, role="admin"
    )
    body = {"key": "k", "definition": "report", "trigger": "0 2 * * *"}
    made = shop.call("POST", "/api/schedules", body, role="admin")
    assert made.status_code == 201, made.text
    assert made.json()["definition_id"] is not None
    shop.call("DELETE", "/api/definitions/report", role="admin")
    assert shop.get("/api/schedules")["items"] == []


def test_a_cursor_continues_a_list_of_schedules(shop: Site) -> None:
    for key in ("c", "a", "b"):
        body = {"key": key, "task": "send", "trigger": "0 2 * * *", "args": {"to": "x"}}
        shop.call("POST", "/api/schedules", body, role="admin")
    first = shop.get("/api/schedules?limit=2")
    rest = shop.get(f"/api/schedules?limit=2&cursor={first['next']}")
    assert [each["key"] for each in (*first["items"], *rest["items"])] == ["a", "b", "c"]
    assert rest["next"] is None
    problem(shop.call("GET", "/api/schedules?cursor=!"), 422, "bad_filter")


# Workers and settings --------------------------------------------------------------------------------------------------


def test_workers_are_paused_resumed_and_scaled(shop: Site) -> None:
    supervisor = SupervisorReport("h-1", 1, 2, ProcessFigures(4096, 0.5))
    report = WorkerReport(SlotCounts(4, 2, 0), ProcessFigures(8192), supervisor)
    worker = Worker(id=new_id(), name="w1", host="h", pid=2, supervisor=new_id(), place=1, report=report)
    shop.app.store.register(worker, lease=timedelta(minutes=5))

    (found,) = fits("/api/workers", shop.get("/api/workers", tenant="*"))["items"]
    assert (found["memory"], found["cpu"], found["place"]) == (8192, None, 1)
    assert found["slots"] == {"concurrency": 4, "threads": 2, "children": 0}
    assert (found["supervisor"]["name"], found["supervisor"]["processes"]) == ("h-1", 2)
    for verb, paused in (("pause", True), ("pause", True), ("resume", False)):
        answer = shop.call("POST", f"/api/workers/{worker.id}/{verb}", tenant="*", role="operator")
        assert (answer.status_code, answer.json()["paused"]) == (202, paused)
    path = f"/api/workers/{worker.id}/scale"
    answer = shop.call("POST", path, tenant="*", role="admin", json={"processes": 3})
    slots = {"concurrency": 4, "threads": 2, "children": 0}
    assert (answer.status_code, answer.json()) == (202, {"processes": 3, "slots": slots})
    for numbers in ({"processes": 1000}, {"children": 1}, {"threads": 0}):
        assert shop.call("POST", path, tenant="*", role="admin", json=numbers).status_code == 422
    assert shop.call("POST", path, tenant="*", role="operator", json={"threads": 3}).status_code == 403


def test_the_depth_of_queues_over_time_is_listed(shop: Site) -> None:
    shop.app.store.put_depths([DepthSample("mail", 7, 2, timedelta(seconds=9))])
    report = fits("/api/stats/depth_history", shop.get("/api/stats/depth_history?queue=mail", tenant="*"))
    row = report["rows"][-1]
    assert (row["queue"], row["pending"], row["scheduled"], row["oldest"]) == ("mail", 7, 2, 9.0)
    assert len(report["rows"]) == 60
    assert shop.get("/api/stats/depth_history?queue=none", tenant="*")["rows"] == []


def test_workers_are_listed_and_drained(shop: Site) -> None:
    worker = Worker(id=new_id(), name="w1", host="h", pid=1, queues=(), tasks=(), concurrency=4)
    shop.app.store.register(worker, lease=timedelta(minutes=5))
    shop.app.store.acquire("duties", worker.id, ttl=timedelta(minutes=5))

    (found,) = fits("/api/workers", shop.get("/api/workers", tenant="*"))["items"]
    assert (found["id"], found["liveness"], found["state"]) == (str(worker.id), "alive", "active")
    answer = shop.call("POST", f"/api/workers/{worker.id}/drain", tenant="*", role="admin")
    assert (answer.status_code, answer.json()["state"]) == (202, "draining")
    missing = UUID(int=1)
    problem(
        shop.call("POST", f"/api/workers/{missing}/drain", tenant="*", role="admin"), 404, "worker_not_found"
    )
    (lease,) = fits("/api/leases", shop.get("/api/leases", tenant="*"))["items"]
    assert (lease["name"], lease["held"]) == ("duties", True)


def test_settings_are_stored_all_or_none(shop: Site) -> None:
    def put(settings: dict[str, Any]) -> Any:
        return shop.call("PUT", "/api/worker/config", {"settings": settings}, tenant="*", role="super_admin")

    assert put({"worker_enabled": False}).status_code == 200
    refused = put({"other.setting": 1, "worker_enabled": "maybe"})
    assert refused.status_code == 422, refused.text
    found = fits("/api/worker/config", shop.get("/api/worker/config", tenant="*", role="super_admin"))
    assert [(each["key"], each["value"]) for each in found["settings"]] == [("worker_enabled", False)]
    assert put({"worker_enabled": None}).json() == {"settings": []}


def test_a_tick_runs_due_jobs(shop: Site) -> None:
    id = shop.create()["id"]
    for path in ("/api/worker/tick", "/api/jobs/trigger"):
        answer = shop.call("POST", path, {"budget": 20}, tenant="*", role="admin")
        assert answer.status_code == 200, answer.text
        fits(path, answer.json(), "POST")
    assert shop.get(f"/api/jobs/{id}")["status"] == "completed"
    assert shop.call("POST", "/api/worker/tick", {"budget": 0}, tenant="*", role="admin").status_code == 422


# Archive, audit and keys -----------------------------------------------------------------------------------------------


def test_archived_jobs_are_found_and_read_whole(shop: Site) -> None:
    ids = [shop.create(args={"to": f"person {number}", "password": "hunter2"})["id"] for number in range(3)]
    shop.drain()
    store = shop.app.store
    jobs: list[JobRow] = store.get([UUID(id) for id in ids], tenant="acme")
    documents = [
        archive_document(job, store.executions([job.id], tenant="acme"), [], tier="archive", policy="old")
        for job in jobs
    ]
    store.put_archive(documents)

    page = fits("/api/archive/jobs", shop.get("/api/archive/jobs?limit=2&sort=oldest&status=completed"))
    rest = shop.get(f"/api/archive/jobs?limit=2&sort=oldest&status=completed&cursor={page['next']}")
    assert [each["id"] for each in (*page["items"], *rest["items"])] == ids
    first = page["items"][0]
    assert (first["sound"], first["tier"], first["policy"]) == (True, "archive", "old")
    assert "person 0" in first["document"]["job"]["args"]
    assert shop.get("/api/archive/jobs", tenant="other")["items"] == []
    assert "hunter2" not in shop.call("GET", "/api/archive/jobs", role="viewer").text
    assert shop.get("/api/archive/jobs?task=fail")["items"] == []
    assert shop.app.archive.get(ids[0], tenant="acme").id == UUID(ids[0])


def test_the_audit_log_records_who_did_what(shop: Site) -> None:
    id = shop.create()["id"]
    shop.call("POST", f"/api/jobs/{id}/cancel", {"reason": "no"})
    shop.call("POST", "/api/tasks/send/pause", tenant="*")

    found = fits("/api/audit", shop.get(f"/api/audit?subject=job:{id}", role="admin"))
    (entry,) = found["items"]
    assert entry["action"] == "job.cancelled"
    assert entry["who"].endswith("(operator of acme)")
    everything = shop.get("/api/audit", role="admin", tenant="*")["items"]
    numbers = [each["number"] for each in everything]
    assert numbers == sorted(numbers, reverse=True)
    oldest = shop.get("/api/audit?sort=oldest&limit=1", role="admin", tenant="*")
    following = shop.get(f"/api/audit?sort=oldest&limit=1&cursor={oldest['next']}", role="admin", tenant="*")
    assert following["items"][0]["number"] > oldest["items"][0]["number"]
    newest = shop.get("/api/audit?limit=1", role="admin", tenant="*")
    before = shop.get(f"/api/audit?limit=1&cursor={newest['next']}", role="admin", tenant="*")
    assert before["items"][0]["number"] < newest["items"][0]["number"]


def test_a_key_is_created_used_and_revoked(shop: Site) -> None:
    def call(method: str, path: str, body: Any = None) -> Any:
        return shop.call(method, path, body, role="super_admin")

    made = call("POST", "/api/keys", {"name": "deploy", "role": "viewer", "expires": 3600})
    assert made.status_code == 201
    document = fits("/api/keys", made.json(), "POST")
    assert (document["tenant"], document["state"]) == ("acme", "active")
    headers = {"authorization": f"Bearer {document['secret']}"}
    assert shop.client.request("GET", "/api/jobs", headers=headers).status_code == 200
    listed = fits("/api/keys", call("GET", "/api/keys").json())
    assert document["id"] in {key["id"] for key in listed["items"]}
    assert document["secret"].partition(".")[2] not in json.dumps(listed)
    assert call("DELETE", f"/api/keys/{document['id']}").status_code == 204
    assert shop.client.request("GET", "/api/jobs", headers=headers).status_code == 401
    assert document["id"] not in {key["id"] for key in call("GET", "/api/keys").json()["items"]}
    assert document["id"] in {key["id"] for key in call("GET", "/api/keys?all=true").json()["items"]}
    problem(call("DELETE", "/api/keys/none"), 404, "key_not_found")
    assert call("POST", "/api/keys", {"name": "old", "expires": "2001-01-01T00:00:00Z"}).status_code == 422


# Health ----------------------------------------------------------------------------------------------------------------


def test_health_checks_need_no_key_and_expose_no_details(shop: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fits("/livez", shop.client.request("GET", "/livez").json()) == {"status": "ok"}
    assert fits("/readyz", shop.client.request("GET", "/readyz").json())["status"] == "ok"
    assert fits("/healthz", shop.client.request("GET", "/healthz").json())["ready"]["store"]["code"] is None

    def fails() -> None:
        raise StoreUnavailable("db.internal does not answer")

    monkeypatch.setattr(shop.app.store, "check", fails)
    clock = SystemClock()
    deadline = clock.monotonic() + 60
    while (answer := shop.client.request("GET", "/readyz")).status_code == 200:
        assert clock.monotonic() < deadline  # a check result is reused for one second
    assert answer.status_code == 503
    assert answer.json() == {
        "status": "unavailable",
        "store": {"status": "unavailable", "code": "store_unavailable"},
    }
    assert shop.client.request("GET", "/livez").status_code == 200
    assert shop.client.request("GET", "/healthz").status_code == 503


@pytest.mark.parametrize(
    ("path", "body", "instead"),
    [
        ("/api/jobs", {"task": "send", "args": {"to": "x"}, "tier": "cold"}, "archive policy"),
        (
            "/api/definitions",
            {"key": "d", "task": "send", "args": {"to": "x"}, "tier": "cold"},
            "archive policy",
        ),
    ],
)
def test_a_withdrawn_field_names_its_replacement(
    shop: Site, path: str, body: dict[str, Any], instead: str
) -> None:
    found = problem(shop.call("POST", path, body, role="admin"), 422, "invalid_request")
    assert instead in found["detail"]


def test_a_schedule_after_a_definition_tells_what_it_waits_for(shop: Site) -> None:
    trigger = {"kind": "after", "definitions": ["orders"]}
    body = {"key": "load", "task": "send", "args": {"to": "ada"}, "trigger": trigger}
    made = shop.call("POST", "/api/schedules", body, role="admin").json()
    assert (made["words"], made["overlap"], made["next_fire_at"]) == ("After orders completed", "queue", None)
    found = shop.get(f"/api/schedules/{made['id']}/why", role="viewer")
    assert found == {"schedule": "load", "waits": "waits for orders, which does not exist yet"}
