"""Flows and batches over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from tests.interfaces.rest.kit import Site, problem

NODES = [
    {"name": "first", "task": "send", "args": {"to": "ada"}},
    {"name": "second", "task": "send", "args": {"to": {"$ref": ["first"]}}},
    {"name": "third", "task": "fail", "args": {"words": "no"}, "after": ["second"]},
    {"name": "fourth", "task": "send", "args": {"to": "bob"}, "after": ["third"]},
]


def start(shop: Site, **body: Any) -> dict[str, Any]:
    answer = shop.call("POST", "/api/flows", {"name": "letters", "nodes": NODES, **body})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    assert answer.headers["location"].endswith(f"/api/flows/{found['id']}")
    return found


def test_a_flow_of_named_tasks_is_started_and_followed(shop: Site) -> None:
    flow = start(shop, key="k")
    assert start(shop, key="k")["id"] == flow["id"]
    shop.drain()
    found = shop.get(f"/api/flows/{flow['id']}")
    assert (found["status"], found["total"], found["pending"], found["failed"]) == ("failed", 4, 0, 1)
    nodes = {node["node"]: node["status"] for node in shop.get(f"/api/flows/{flow['id']}/nodes")["items"]}
    assert nodes == {"first": "completed", "second": "completed", "third": "failed", "fourth": "skipped"}
    graph = shop.get(f"/api/flows/{flow['id']}/graph")
    assert len(graph["nodes"]) == 4
    assert len(graph["edges"]) == 3
    assert [item["id"] for item in shop.get("/api/flows?status=failed&name=letters")["items"]] == [flow["id"]]
    assert shop.get("/api/flows?status=running")["items"] == []


def test_pages_of_flows_and_nodes(shop: Site) -> None:
    ids = [start(shop)["id"] for _ in range(3)]
    first = shop.get("/api/flows?limit=2")
    rest = shop.get(f"/api/flows?limit=2&cursor={first['next']}")
    assert [item["id"] for item in first["items"] + rest["items"]] == ids[::-1]
    page = shop.get(f"/api/flows/{ids[0]}/nodes?limit=3")
    assert len(page["items"]) == 3
    assert len(shop.get(f"/api/flows/{ids[0]}/nodes?limit=3&cursor={page['next']}")["items"]) == 1


def test_a_node_is_signalled_and_a_flow_explained(shop: Site) -> None:
    flow = start(shop)
    reasons = shop.get(f"/api/flows/{flow['id']}/why")["items"]
    assert [(item["node"], item["code"]) for item in reasons] == [
        ("first", "no_workers"),
        (None, "waits_for_nodes"),
    ]
    (one, *_) = shop.get(f"/api/flows/{flow['id']}/why?node=second")["items"]
    assert (one["node"], one["code"]) == ("second", "waits_for_jobs")
    where = f"/api/flows/{flow['id']}/nodes/first/signals"
    assert shop.call("POST", where, {"name": "go", "payload": 1, "key": "k"}).status_code == 201
    again = shop.call("POST", where, {"name": "go", "key": "k"})
    assert (again.status_code, again.json()) == (200, {"accepted": False})
    (signal,) = shop.get(f"/api/jobs/{reasons[0]['id']}/signals", role="admin")["items"]
    assert (signal["name"], signal["payload"]) == ("go", 1)
    problem(
        shop.call("POST", f"/api/flows/{flow['id']}/nodes/nothing/signals", {"name": "go"}),
        422,
        "usage_error",
    )
    assert shop.call("POST", where, {"name": "go"}, role="viewer").status_code == 403
    assert shop.call("POST", where, {"name": "go"}, tenant="other").status_code == 404


def test_a_node_whose_name_has_a_slash_is_signalled(shop: Site) -> None:
    send = shop.app.bound_task("send")
    with shop.app.tenant("acme"):
        inner, outer = shop.app.flow("inner"), shop.app.flow("outer")
        inner.add(send, to="ada").named("first")
        outer.include(inner, prefix="de")
        run = outer.start()
    for name in ("de/first", "de%2Ffirst"):
        where = f"/api/flows/{run.id}/nodes/{name}/signals"
        assert shop.call("POST", where, {"name": "go"}).status_code == 201


def test_a_text_that_is_no_cursor_is_an_invalid_filter(shop: Site) -> None:
    for kind in ("flows", "batches"):
        problem(shop.call("GET", f"/api/{kind}?cursor={'0' * 60}"), 422, "bad_filter")


def test_people_retry_skip_and_cancel(shop: Site) -> None:
    flow = start(shop)
    shop.drain()
    answer = shop.call("POST", f"/api/flows/{flow['id']}/skip", {"node": "third"})
    assert answer.status_code == 200, answer.text
    shop.drain()
    assert shop.get(f"/api/flows/{flow['id']}")["status"] == "completed"
    problem(shop.call("POST", f"/api/flows/{flow['id']}/cancel"), 409, "illegal_transition")
    other = start(shop)
    shop.drain()
    assert shop.call("POST", f"/api/flows/{other['id']}/retry", {"node": "third"}).json()["round"] == 2
    cancelled = shop.call("POST", f"/api/flows/{other['id']}/cancel", {"reason": "enough"}).json()
    assert cancelled["cancel_reason"] == "enough"


def test_another_tenants_flow_is_not_found(shop: Site) -> None:
    flow = start(shop)
    problem(shop.call("GET", f"/api/flows/{flow['id']}", tenant="other"), 404, "flow_not_found")
    assert shop.get("/api/flows", tenant="other")["items"] == []


def test_a_graph_that_cannot_run_is_refused(shop: Site) -> None:
    nodes = [{"name": "a", "task": "send", "args": {"to": {"$ref": ["b"]}}}]
    problem(shop.call("POST", "/api/flows", {"name": "x", "nodes": nodes}), 422, "bad_flow")
    nodes = [{"name": "a", "task": "send", "args": {"to": "ada"}, "after": ["b"]}]
    problem(shop.call("POST", "/api/flows", {"name": "x", "nodes": nodes}), 422, "bad_flow")


@pytest.mark.parametrize("reference", [[["one"]], [{"node": "one"}], [1], [None], ["two"], ["one", {"a": 1}]])
def test_a_reference_that_names_no_earlier_node_is_refused(shop: Site, reference: list[object]) -> None:
    nodes = [
        {"name": "one", "task": "send", "args": {"to": "ada"}},
        {"name": "two", "task": "send", "args": {"to": {"$ref": reference}}},
    ]
    assert shop.call("POST", "/api/flows", {"name": "broken", "nodes": nodes}).status_code == 422
    assert shop.get("/api/flows")["items"] == []


def test_batches_are_listed_cancelled_and_retried(shop: Site) -> None:
    with shop.app.tenant("acme"), shop.app.batch("mail", description="letters") as batch:
        shop.app.enqueue("send", to="ada")
        shop.app.enqueue("fail", words="no")
    shop.drain()
    found = shop.get(f"/api/batches/{batch.id}")
    assert (found["status"], found["total"], found["failed"]) == ("failed", 2, 1)
    assert [item["id"] for item in shop.get("/api/batches?name=mail")["items"]] == [str(batch.id)]
    assert shop.call("POST", f"/api/batches/{batch.id}/retry").json()["status"] == "running"
    assert (
        shop.call("POST", f"/api/batches/{batch.id}/cancel", {"reason": "no"}).json()["cancel_reason"] == "no"
    )
    problem(shop.call("GET", f"/api/batches/{batch.id}", tenant="other"), 404, "flow_not_found")


def test_the_timeline_has_the_jobs_that_have_begun_in_order(shop: Site) -> None:
    flow = start(shop)
    assert shop.get(f"/api/flows/{flow['id']}/timeline")["items"] == []
    shop.drain()
    rows = shop.get(f"/api/flows/{flow['id']}/timeline")["items"]
    assert [(row["node"], row["status"]) for row in rows] == [
        ("first", "completed"),
        ("second", "completed"),
        ("third", "failed"),
    ]
    assert all(row["seconds"] >= 0 and row["started_at"] <= row["finished_at"] for row in rows)
    assert len(shop.get(f"/api/flows/{flow['id']}/timeline?limit=1")["items"]) == 1
    problem(
        shop.call("GET", "/api/flows/01a1edf6-0000-7000-8000-000000000000/timeline"), 404, "flow_not_found"
    )


def test_jobs_are_filtered_by_their_flow(shop: Site) -> None:
    flow, other = start(shop), start(shop)
    ids = {node["id"] for node in shop.get(f"/api/flows/{flow['id']}/nodes")["items"]}
    assert {job["id"] for job in shop.get(f"/api/jobs?flow={flow['id']}")["items"]} == ids
    assert len(shop.get(f"/api/jobs?flow={flow['id']}&status=pending")["items"]) == 1
    assert ids.isdisjoint(job["id"] for job in shop.get(f"/api/jobs?flow={other['id']}")["items"])
    problem(shop.call("GET", "/api/jobs?flow=x"), 422, "invalid_request")


def test_a_batch_of_named_tasks_is_started_and_followed(shop: Site) -> None:
    jobs = [{"task": "send", "args": {"to": "ada"}}, {"task": "fail", "args": {"words": "no"}}]
    answer = shop.call("POST", "/api/batches", {"name": "letters", "description": "two", "jobs": jobs})
    assert answer.status_code == 201, answer.text
    batch = answer.json()
    assert answer.headers["location"].endswith(f"/api/batches/{batch['id']}")
    assert (batch["total"], batch["description"], batch["status"]) == (2, "two", "running")
    shop.drain()
    assert shop.get(f"/api/batches/{batch['id']}")["status"] == "failed"
    page = shop.get(f"/api/batches/{batch['id']}/jobs?limit=1")
    rest = shop.get(f"/api/batches/{batch['id']}/jobs?limit=1&cursor={page['next']}")
    assert [row["task"] for row in [*page["items"], *rest["items"]]] == ["send", "fail"]
    assert len(shop.get(f"/api/batches/{batch['id']}/timeline")["items"]) == 2
    assert len(shop.get(f"/api/jobs?flow={batch['id']}")["items"]) == 2


def test_a_batch_with_a_wrong_job_is_not_started(shop: Site) -> None:
    for job in ({"task": "nobody"}, {"task": "send", "args": {"from": 1}}):
        answer = shop.call("POST", "/api/batches", {"name": "letters", "jobs": [job]})
        assert answer.status_code in (404, 422), answer.text
    assert shop.get("/api/batches")["items"] == []


def test_an_archived_flow_is_shown_by_the_same_routes(shop: Site) -> None:
    flow = start(shop)
    shop.drain()
    before = shop.get(f"/api/flows/{flow['id']}/graph")
    shop.app.archive.run(older_than=0)
    found = shop.get(f"/api/flows/{flow['id']}")
    assert (found["status"], found["tier"], found["total"]) == ("failed", "archive", 4)
    assert found["archived_at"] is not None
    assert shop.get(f"/api/flows/{flow['id']}/graph") == before
    assert len(shop.get(f"/api/flows/{flow['id']}/nodes")["items"]) == 4
    assert len(shop.get(f"/api/flows/{flow['id']}/timeline")["items"]) == 3
    assert shop.get("/api/flows")["items"] == []
    assert [item["id"] for item in shop.get("/api/flows?archived=true")["items"]] == [flow["id"]]
    assert len(shop.get(f"/api/jobs?flow={flow['id']}&tiers=all")["items"]) == 4
    problem(shop.call("POST", f"/api/flows/{flow['id']}/retry"), 409, "illegal_transition")
