"""Jobs over HTTP: creation, queries and actions."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.interfaces.rest.estate import STRANGER
from tests.interfaces.rest.kit import Site, problem, site

from tidemill import Context
from tidemill.rest.job_models import ExecutionDocument, JobDocument, LogDocument, ProgressDocument
from tidemill.tasks.middleware import HookStep


def test_creating_a_job_returns_its_location_and_its_document(shop: Site) -> None:
    answer = shop.call("POST", "/api/jobs", {"task": "send", "args": {"to": "ada", "size": 3}})

    assert answer.status_code == 201
    found = answer.json()
    assert answer.headers["location"] == f"/api/jobs/{found['id']}"
    assert (found["task"], found["status"], found["tenant"], found["queue"]) == (
        "send",
        "pending",
        "acme",
        "mail",
    )
    assert found["args"] == {"to": "ada", "size": 3}
    stored = shop.get(f"/api/jobs/{found['id']}")
    written = {"created_at", "run_at"}  # set by the store
    assert {name: stored[name] for name in stored.keys() - written} == {
        name: found[name] for name in found.keys() - written
    }
    JobDocument.model_validate_json(answer.content)


def test_the_webhook_path_creates_jobs_too(shop: Site) -> None:
    answer = shop.call("POST", "/api/jobs/create", {"task": "send", "args": {"to": "ada"}})
    assert answer.status_code == 201
    assert shop.get(f"/api/jobs/{answer.json()['id']}")["status"] == "pending"


def test_prefer_respond_async_gets_202(shop: Site) -> None:
    answer = shop.call(
        "POST", "/api/jobs", {"task": "send", "args": {"to": "ada"}}, headers={"prefer": "respond-async"}
    )
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "respond-async"
    assert answer.headers["location"].endswith(answer.json()["id"])


def test_every_enqueue_option_can_be_set(shop: Site) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    found = shop.create(
        queue="slow",
        priority=7,
        run_after=at.isoformat(),
        expires=7200,
        timeout=None,
        retry={"kind": "fixed", "max_attempts": 2, "wait": 5},
        correlation_id="order-1",
        tags=["a", "b"],
        metadata={"customer": "acme"},
        reference=["user", "42"],
        unique={"by": ["to"], "within": 60},
    )

    assert (found["status"], found["queue"], found["priority"]) == ("scheduled", "slow", 7)
    assert datetime.fromisoformat(found["run_at"]) == at
    assert found["expires_at"] is not None
    assert (found["timeout"], found["max_attempts"]) == (None, 2)
    assert (found["correlation_id"], found["tags"], found["metadata"]) == (
        "order-1",
        ["a", "b"],
        {"customer": "acme"},
    )
    assert found["reference"] == ["user", "42"]
    again = shop.call(
        "POST",
        "/api/jobs",
        {"task": "send", "args": {"to": "ada"}, "unique": {"by": ["to"], "on_conflict": "raise"}},
    )
    problem(again, 409, "job_exists")


def test_a_reference_may_be_one_string(shop: Site) -> None:
    found = shop.create(reference="user:42:7")
    assert found["reference"] == ["user", "42:7"]
    act = {"action": "cancel", "filter": {"reference": "user:42:7"}}
    assert shop.call("POST", "/api/jobs/bulk", act).json()["done"] == 1
    for wrong in ("user", ":42", "user:", ["user"], 42):
        problem(
            shop.call("POST", "/api/jobs", {"task": "send", "args": {"to": "a"}, "reference": wrong}),
            422,
            "invalid_request",
        )


def test_a_delay_counts_from_now(shop: Site) -> None:
    found = shop.create(delay=3600)
    assert found["status"] == "scheduled"
    wait = datetime.fromisoformat(found["run_at"]) - datetime.now(UTC)
    assert timedelta(minutes=50) < wait <= timedelta(hours=1)


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"task": "nobody"}, "task_not_found", "task"),
        ({"task": "os:system", "args": {"command": "true"}}, "task_not_found", "task"),
        ({"task": "send", "args": {}}, "bad_arguments", "to"),
        ({"task": "send", "args": {"to": 1}}, "bad_arguments", "to"),
        ({"task": "send", "args": {"to": "a", "more": 1}}, "bad_arguments", "more"),
        ({"task": "send", "args": {"to": "a"}, "priority": "3"}, "invalid_request", "priority"),
        ({"task": "send", "args": {"to": "a"}, "priority": False}, "invalid_request", "priority"),
        ({"task": "send", "args": {"to": "a"}, "priority": 101}, "invalid_request", "priority"),
        ({"task": "send", "args": {"to": "a"}, "delay": -1}, "invalid_request", "delay"),
        (
            {"task": "send", "args": {"to": "a"}, "run_after": "2030-01-01T00:00"},
            "invalid_request",
            "run_after",
        ),
        ({"task": "send", "args": {"to": "a"}, "colour": "red"}, "invalid_request", "colour"),
        ({"task": "send", "args": {"to": "a"}, "retry": {"kind": "never"}}, "bad_settings", "retry"),
        ({"task": "send", "args": {"to": "a"}, "retry": {"kind": "fixed", "x": 1}}, "bad_settings", "retry"),
        ({"args": {}}, "invalid_request", "task"),
        ([], "invalid_request", ""),
    ],
)
def test_an_invalid_request_names_the_field_and_stores_nothing(
    shop: Site, body: object, code: str, field: str
) -> None:
    found = problem(shop.call("POST", "/api/jobs", body), 422, code)
    assert field in str(found)
    assert shop.get("/api/jobs")["items"] == []


def test_arguments_beyond_the_row_are_downloaded_separately(shop: Site) -> None:
    made = shop.call("POST", "/api/jobs", {"task": "send", "args": {"to": "x" * 300_000}}).json()
    assert made["args"] is None
    assert made["args_blob"]["size"] == 300_009
    answer = shop.call("GET", f"/api/jobs/{made['id']}/args")
    assert answer.status_code == 200
    assert answer.headers["content-length"] == "300009"
    assert answer.json() == {"to": "x" * 300_000}
    problem(shop.call("GET", f"/api/jobs/{made['id']}/value"), 404, "no_value")


def test_a_body_beyond_the_size_limit_gets_413(shop: Site) -> None:
    answer = shop.call("POST", "/api/jobs", {"task": "send", "args": {"to": "x" * 1_100_000}})
    problem(answer, 413, "payload_too_large")


def test_jobs_are_filtered_by_their_attributes(shop: Site) -> None:
    one = shop.create(args={"to": "a"}, tags=["x"], metadata={"customer": "9"}, reference=["user", "1"])
    two = shop.create("fail", args={"words": "no"}, correlation_id="story")
    child = shop.create(args={"to": "c"}, parent_id=one["id"])

    def ids(query: str) -> list[str]:
        return [job["id"] for job in shop.get(f"/api/jobs?{query}")["items"]]

    assert ids("") == [child["id"], two["id"], one["id"]]
    assert ids("sort=oldest") == [one["id"], two["id"], child["id"]]
    assert ids("task=fail") == [two["id"]]
    assert ids("task=fail&task=send&limit=2") == [child["id"], two["id"]]
    assert ids("queue=mail&tag=x") == [one["id"]]
    assert ids("correlation_id=story") == [two["id"]]
    assert ids("metadata=customer%3D9") == [one["id"]]
    assert ids("reference=user:1") == [one["id"]]
    assert ids("arg=to=c") == [child["id"]]
    assert ids("arg=to=c&took_over=99") == []
    assert ids(f"parent_id={one['id']}") == [child["id"]]
    assert ids("created_before=2001-01-01T00:00:00Z") == []
    assert ids("status=pending&status=failed&task=fail") == [two["id"]]
    assert [job["id"] for job in shop.get(f"/api/jobs/{one['id']}/children")["items"]] == [child["id"]]


def test_a_cursor_continues_a_list_after_its_last_page(shop: Site) -> None:
    made = [shop.create(args={"to": str(number)})["id"] for number in range(5)]
    seen: list[str] = []
    cursor = None
    while True:
        page = shop.get("/api/jobs?limit=2&sort=oldest" + (f"&cursor={cursor}" if cursor else ""))
        seen += [job["id"] for job in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == made


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=501", "limit=-1", "limit=x", "status=lost", "colour=red", "sort=up", "sort=newest&sort=oldest",
     "created_after=yesterday", "cursor=abc", "parent_id=1", "reference=user", "metadata=x", "tenant=*"],
)  # fmt: skip
def test_an_invalid_query_is_rejected(shop: Site, query: str) -> None:
    answer = shop.call("GET", f"/api/jobs?{query}")
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_progress_logs_and_executions_of_a_job_can_be_read(shop: Site) -> None:
    id = shop.create()["id"]
    shop.drain()

    done = shop.get(f"/api/jobs/{id}?logs=true")
    assert (done["status"], done["value"], done["progress"]) == ("completed", "sent to ada", 1.0)
    assert [line["message"] for line in done["logs"]] == ["sent"]
    for line in shop.get(f"/api/jobs/{id}/logs")["items"]:
        LogDocument.model_validate_json(json.dumps(line))
    progress = shop.get(f"/api/jobs/{id}/progress")
    assert (progress["status"], progress["progress"], progress["attempt"]) == ("completed", 1.0, 1)
    assert progress["progress_percent"] == 100
    assert done["created_at"] <= progress["updated_at"] <= done["finished_at"]
    ProgressDocument.model_validate_json(json.dumps(progress))
    (execution,) = shop.get(f"/api/jobs/{id}/executions")["items"]
    assert (execution["status"], execution["attempt"]) == ("succeeded", 1)
    ExecutionDocument.model_validate_json(json.dumps(execution))
    (why,) = shop.get(f"/api/jobs/{id}/why")["items"]
    assert why["code"] == "ended"


def test_log_lines_are_filtered_by_level(shop: Site) -> None:
    @shop.app.task(name="say")
    def say(ctx: Context) -> None:
        for level in ("debug", "info", "warning", "error"):
            ctx.log(f"a {level}", level)

    id = shop.create("say", args={})["id"]
    shop.drain()

    def told(query: str) -> list[str]:
        return [line["message"] for line in shop.get(f"/api/jobs/{id}/logs{query}")["items"]]

    assert told("?level=error") == ["a error"]
    assert told("?level=warning") == ["a warning", "a error"]
    assert told("?level=debug") == told("")
    assert told("?level=warning&limit=1") == ["a warning"]
    assert shop.call("GET", f"/api/jobs/{id}/logs?level=loud").status_code == 422


def test_executions_are_listed_newest_first(shop: Site) -> None:
    id = shop.create("fail", args={"words": "no"})["id"]
    shop.drain()
    shop.call("POST", f"/api/jobs/{id}/retry")
    shop.drain()
    assert [each["number"] for each in shop.get(f"/api/jobs/{id}/executions")["items"]] == [2, 1]


def test_a_cursor_continues_the_log_lines_after_the_last_page(shop: Site) -> None:
    id = shop.create("talk", args={"lines": 2})["id"]
    shop.drain()
    first = shop.get(f"/api/jobs/{id}/logs?limit=1")
    second = shop.get(f"/api/jobs/{id}/logs?limit=1&cursor={first['next']}")
    assert [each["message"] for each in (*first["items"], *second["items"])] == ["line 0", "line 1"]
    assert shop.get(f"/api/jobs/{id}/logs?limit=1&cursor={second['next']}") == {"items": [], "next": None}
    problem(shop.call("GET", f"/api/jobs/{id}/logs?cursor=-1"), 422, "bad_filter")


def test_a_waiting_job_is_cancelled_with_a_reason(shop: Site) -> None:
    id = shop.create()["id"]
    answer = shop.call("POST", f"/api/jobs/{id}/cancel", {"reason": "not needed"})
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["reason"]) == ("cancelled", "not needed")
    problem(shop.call("POST", f"/api/jobs/{id}/cancel"), 409, "illegal_transition")


def test_a_job_is_cancelled_together_with_its_children(shop: Site) -> None:
    id = shop.create(args={"to": "ann"})["id"]
    child = shop.create(args={"to": "bob"}, parent_id=id)["id"]
    answer = shop.call("POST", f"/api/jobs/{id}/cancel", {"reason": "enough", "children": True})
    assert answer.json()["status"] == "cancelled"
    assert shop.get(f"/api/jobs/{child}")["reason"] == "enough"


def test_a_waiting_job_can_move_to_another_queue_and_priority(shop: Site) -> None:
    id = shop.create(args={"to": "ann"})["id"]
    answer = shop.call("PATCH", f"/api/jobs/{id}", {"queue": "fast", "priority": 7})
    assert (answer.status_code, answer.json()["queue"], answer.json()["priority"]) == (200, "fast", 7)
    problem(shop.call("PATCH", f"/api/jobs/{id}", {}), 422, "usage_error")
    problem(shop.call("PATCH", f"/api/jobs/{id}", {"priority": 101}), 422, "invalid_request")
    problem(shop.call("PATCH", f"/api/jobs/{id}", {"priority": 1}, role="viewer"), 403, "forbidden")
    body = {"action": "change", "filter": {"queue": ["fast"]}, "priority": -5, "queue": "slow"}
    assert shop.call("POST", "/api/jobs/bulk", body).json() == {"done": 1, "skipped": 0, "more": False}
    found = shop.get(f"/api/jobs/{id}")
    assert (found["queue"], found["priority"]) == ("slow", -5)
    body = {"action": "change", "filter": {"queue": ["slow"]}}
    problem(shop.call("POST", "/api/jobs/bulk", body), 422, "usage_error")
    body = {"action": "cancel", "filter": {"queue": ["slow"]}, "priority": 1}
    problem(shop.call("POST", "/api/jobs/bulk", body), 422, "bad_filter")
    shop.call("POST", f"/api/jobs/{id}/cancel")
    problem(shop.call("PATCH", f"/api/jobs/{id}", {"priority": 1}), 409, "illegal_transition")


def test_an_ended_job_can_be_retried_and_deleted(shop: Site) -> None:
    id = shop.create("fail", args={"words": "no"})["id"]
    problem(shop.call("DELETE", f"/api/jobs/{id}", role="admin"), 409, "illegal_transition")
    shop.drain()
    assert shop.call("POST", f"/api/jobs/{id}/retry").json()["status"] == "pending"
    shop.drain()
    assert shop.call("DELETE", f"/api/jobs/{id}", role="admin").status_code == 204
    problem(shop.call("GET", f"/api/jobs/{id}"), 404, "job_not_found")


def test_a_job_in_review_can_be_approved_and_rejected(shop: Site) -> None:
    yes, no = (shop.create("look", args={"what": word})["id"] for word in ("a", "b"))
    shop.drain()
    assert shop.get(f"/api/jobs/{yes}")["output"] == {"what": "a"}
    assert shop.call("POST", f"/api/jobs/{yes}/approve", {"comment": "fine"}).json()["status"] == "completed"
    assert shop.call("POST", f"/api/jobs/{no}/reject").json()["status"] == "failed"
    problem(shop.call("POST", f"/api/jobs/{no}/approve"), 409, "illegal_transition")


def test_bulk_actions_cancel_retry_and_delete_jobs(shop: Site) -> None:
    for number in range(5):
        shop.create(args={"to": str(number)})
    shop.create(args={"to": "x"}, tenant="other")

    def bulk(role: str = "admin", **body: object) -> dict[str, object]:
        answer = shop.call("POST", "/api/jobs/bulk", body, role=role)
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()
        return found

    assert bulk(action="cancel", filter={"task": ["send"]}, limit=3, reason="flood") == {
        "done": 3,
        "skipped": 0,
        "more": True,
    }
    assert bulk(action="cancel", filter={"task": ["send"]})["done"] == 2
    assert bulk(action="retry", filter={"status": ["cancelled"]})["done"] == 5
    assert bulk(action="retry", filter={"status": ["pending"]}) == {"done": 0, "skipped": 0, "more": False}
    shop.drain()
    assert bulk(action="delete", filter={"status": ["completed"]})["done"] == 5
    assert {job["tenant"] for job in shop.get("/api/jobs", tenant="*")["items"]} == {"other", STRANGER}
    problem(shop.call("POST", "/api/jobs/bulk", {"action": "cancel", "filter": {}}), 422, "bad_filter")
    for empty in ({"tag": ""}, {"correlation_id": ""}):
        problem(shop.call("POST", "/api/jobs/bulk", {"action": "cancel", "filter": empty}), 422, "bad_filter")
    last = shop.app.audit.list(tenant="acme", action="jobs.deleted", newest=True)[0].entry
    assert last.after is not None
    assert last.after["filter"] == {"status": ["completed"]}
    problem(
        shop.call("POST", "/api/jobs/bulk", {"action": "delete", "filter": {"task": ["send"]}}),
        403,
        "forbidden",
    )


@pytest.mark.parametrize("verb", ["", "/progress", "/executions", "/logs", "/children", "/why", "/events"])
def test_an_unknown_job_is_not_found(shop: Site, verb: str) -> None:
    problem(shop.call("GET", f"/api/jobs/{uuid.uuid4()}{verb}"), 404, "job_not_found")
    problem(shop.call("GET", f"/api/jobs/nonsense{verb}"), 404, "not_found")


def test_headers_of_a_job_are_shown_and_enqueue_hooks_run(shop: Site) -> None:
    @contextmanager
    def stamp(step: HookStep) -> Iterator[None]:
        step.headers |= {"trace": "1", "api_key": "hush"}
        yield

    shop.app.around(enqueue=stamp)
    id = shop.create()["id"]
    assert shop.get(f"/api/jobs/{id}")["headers"] == {"trace": "1", "api_key": "hush"}
    seen = shop.call("GET", f"/api/jobs/{id}", role="viewer").json()
    assert seen["headers"] == {"trace": "1", "api_key": "***"}


def test_secrets_are_masked_for_a_viewer_and_not_for_an_operator(shop: Site) -> None:
    id = shop.create(args={"to": "ada", "password": "hunter2"}, metadata={"api_key": "k1", "colour": "red"})[
        "id"
    ]
    shop.drain()

    seen = shop.get(f"/api/jobs/{id}?logs=true", role="viewer")
    assert seen["args"] == {"to": "ada", "password": "***"}
    assert seen["metadata"] == {"api_key": "***", "colour": "red"}
    assert seen["logs"][0]["details"] == {"to": "ada", "token": "***"}
    for path in ("/api/jobs", f"/api/jobs/{id}", f"/api/jobs/{id}/logs"):
        text = shop.call("GET", path, role="viewer").text
        assert not any(secret in text for secret in ("hunter2", "k1", "t0ps3cret"))
    assert shop.get(f"/api/jobs/{id}")["args"]["password"] == "hunter2"


def test_jobs_work_with_a_sqlite_store(tmp_path: Path) -> None:
    with site(f"sqlite:///{tmp_path}/jobs.db") as shop:
        id = shop.create()["id"]
        shop.drain()
        assert shop.get(f"/api/jobs/{id}")["value"] == "sent to ada"
        assert len(shop.get("/api/jobs")["items"]) == 1


def test_jobs_work_with_a_postgresql_store(fresh_postgres_url: str) -> None:
    with site(fresh_postgres_url) as shop:
        id = shop.create()["id"]
        shop.drain()
        assert shop.get(f"/api/jobs/{id}?logs=true")["value"] == "sent to ada"
        assert len(shop.get("/api/jobs")["items"]) == 1


def test_a_text_search_does_not_let_a_viewer_find_secrets(shop: Site) -> None:
    id = shop.create(args={"to": "Ada Lovelace", "password": "hunter2"}, tags=["north"])["id"]
    shop.create(args={"to": "grace"})

    def found(text: str, role: str) -> list[str]:
        page = shop.call("GET", "/api/jobs", role=role, params={"text": text}).json()
        return [job["id"] for job in page["items"]]

    for role in ("viewer", "operator"):
        assert found("NORTH", role) == found(id[-12:], role) == [id]
        assert found("nobody", role) == []
    assert found("lovelace", "operator") == found("hunter2", "operator") == [id]
    assert found("lovelace", "viewer") == found("hunter2", "viewer") == []
    problem(shop.call("GET", "/api/jobs?text=" + "x" * 201), 422, "invalid_request")
    body = {"action": "cancel", "filter": {"text": "lovelace"}}
    assert shop.call("POST", "/api/jobs/bulk", body).json() == {"done": 1, "skipped": 0, "more": False}
