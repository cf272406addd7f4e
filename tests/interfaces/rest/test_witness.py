"""Isolation of two tenants: no response to one contains data of the other.

Further tests check that the witness detects leaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel
from tests.interfaces.rest.estate import STRANGER, Estate, furnish
from tests.interfaces.rest.kit import Site, site
from tests.interfaces.rest.served import place
from tests.interfaces.rest.witness import Witness

from tidemill import Context
from tidemill.rest.api import all_routes
from tidemill.rest.routes import ApiOperation

OURS = "our-own-tenant"

ROUTES = [act for act in all_routes() if not act.stream]

BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/api/jobs"): {"task": "send", "args": {"to": "x"}},
    ("POST", "/api/jobs/create"): {"task": "send", "args": {"to": "x"}},
    ("POST", "/api/jobs/bulk"): {"action": "retry", "filter": {"task": ["send", "fail"]}},
    ("POST", "/api/jobs/{id}/reschedule"): {"run_at": "2999-01-01T00:00:00Z"},
    ("PATCH", "/api/jobs/{id}"): {"priority": 1},
    ("PATCH", "/api/tasks/{name}"): {"paused": False},
    ("POST", "/api/schedules/{id}/backfill"): {
        "start": "2026-01-01T00:00:00Z",
        "end": "2026-01-01T01:00:00Z",
    },
    ("POST", "/api/batches"): {"name": "made-here", "jobs": [{"task": "send", "args": {"to": "x"}}]},
    ("POST", "/api/definitions"): {"key": "made-here", "task": "send", "args": {"to": "x"}},
    ("PUT", "/api/definitions/{key}"): {"args": {"to": "x"}},
    ("PATCH", "/api/definitions/{key}"): {"owner": "x"},
    ("POST", "/api/schedules"): {
        "key": "made-here",
        "task": "send",
        "trigger": "0 2 * * *",
        "args": {"to": "x"},
    },
    ("PUT", "/api/schedules/{id}"): {"trigger": "0 3 * * *", "args": {"to": "x"}},
    ("PUT", "/api/worker/config"): {"settings": {"worker_enabled": True}},
    ("POST", "/api/keys"): {"name": "made-here"},
    ("POST", "/api/flows"): {
        "name": "made-here",
        "nodes": [{"name": "one", "task": "send", "args": {"to": "x"}}],
    },
    ("POST", "/api/flows/{id}/skip"): {"node": "first", "result": "nothing"},
    ("POST", "/api/jobs/{id}/signal"): {"name": "go"},
    ("POST", "/api/jobs/{id}/signals"): {"name": "go"},
    ("POST", "/api/jobs/{id}/answer"): {"answer": {"granted": True}},
    ("POST", "/api/events"): {"name": "made-here"},
}
"""Request bodies of the routes that need one."""


def body_of(act: ApiOperation, estate: Estate) -> Any:
    """The body of a request. Bodies for the archive name a job of this estate."""
    if act.path == "/api/archive/restore":
        return {"ids": [estate.archived]}
    if act.path == "/api/archive/erase":
        return {"ids": [estate.archived], "dry_run": False}
    return BODIES.get((act.method, act.path))


class Decision(BaseModel):
    """The answer to a question of a job."""

    granted: bool


def decide(ctx: Context, about: str) -> bool:
    answer = ctx.ask(Decision)
    return answer is not None and answer.granted


class Two:
    """A site with the same data for two tenants: ours and a stranger's."""

    def __init__(self, shop: Site) -> None:
        self.shop = shop
        shop.app.task(name="decide")(decide)
        self.ours, self.theirs = (furnish(shop.app, tenant) for tenant in (OURS, STRANGER))
        self.ours, self.theirs = self.work()

    def work(self) -> tuple[Estate, Estate]:
        """Create jobs of both tenants that succeed, fail and wait for review; return both estates with the ids."""
        found = []
        for estate in (self.ours, self.theirs):
            ids = list(estate.jobs[:2])
            for task, args in (
                ("send", {"to": f"{estate.mark}-letter"}),
                ("fail", {"words": f"{estate.mark}-trouble"}),
                ("look", {"what": f"{estate.mark}-thing"}),
                ("send", {"to": f"{estate.mark}-later"}),
            ):
                body = {
                    "delay": 3600 if args.get("to", "").endswith("-later") else 0,
                    "task": task,
                    "args": args,
                    "tags": [f"{estate.mark}-tag"],
                    "parent_id": estate.jobs[0],
                }
                answer = self.ask(estate, "POST", "/api/jobs", body)
                assert answer.status_code == 201
                ids.append(answer.json()["id"])
            flow, batch, asking = self.wait_for_more(estate)
            found.append(replace(estate, jobs=(*ids, asking), flow=flow, batch=batch))
        self.shop.drain()
        return found[0], found[1]

    def wait_for_more(self, estate: Estate) -> tuple[str, str, str]:
        """Create a flow and a batch with failing jobs, and a job with a question; return their ids."""
        app, trouble = self.shop.app, {"words": f"{estate.mark}-trouble"}
        nodes = [
            {"name": "first", "task": "fail", "args": trouble},
            {"name": "second", "task": "send", "args": {"to": f"{estate.mark}-letter"}, "after": ["first"]},
            {"name": "third", "task": "look", "args": {"what": f"{estate.mark}-thing"}},
        ]
        flow = self.ask(estate, "POST", "/api/flows", {"name": f"{estate.mark}-flow", "nodes": nodes})
        assert flow.status_code == 201, flow.text
        with app.tenant(estate.tenant):
            with app.batch(f"{estate.mark}-batch") as batch:
                app.bound_task("fail").enqueue(**trouble)
                app.bound_task("look").enqueue(what=f"{estate.mark}-thing")
            asking = app.bound_task("decide").enqueue(about=f"{estate.mark}-question")
        return flow.json()["id"], str(batch.id), str(asking.id)

    def ask(self, who: Estate, method: str, path: str, body: Any = None) -> Any:
        headers = {"authorization": f"Bearer {who.secret}"}
        return self.shop.client.request(method, path, headers=headers, json=body)

    @property
    def witness(self) -> Witness:
        assert self.shop.client.witness is not None
        return self.shop.client.witness


@pytest.fixture
def two() -> Iterator[Two]:
    with site(stranger=False) as shop:
        yield Two(shop)


def questions(act: ApiOperation, estate: Estate) -> Iterator[str]:
    """URLs of a route that name objects of this estate in the path and in the query."""
    for address in estate.addresses(act.path):
        yield address
        for name, value in (
            ("tenant", estate.tenant),
            ("tag", f"{estate.mark}-tag"),
            ("correlation_id", f"{estate.mark}-story"),
            ("reference", f"{estate.mark}-kind:{estate.mark}-id"),
            ("metadata", f"{estate.mark}-name={estate.mark}-value"),
            ("parent_id", estate.jobs[0]),
            ("subject", f"job:{estate.jobs[1]}"),
            ("ids", estate.archived),
            ("act", "jobs.run"),
        ):
            if name in act.query.model_fields:
                yield f"{address}?{name}={value}"


def test_no_route_shows_one_tenant_data_of_the_other(two: Two) -> None:
    asked = set()
    # Read before changing: deleted objects can no longer leak.
    for act in sorted(ROUTES, key=lambda act: (act.mutates, act.method == "DELETE")):
        decisions = (
            "/approve",
            "/reject",
            "/rerun",
            "/run-now",
            "/reschedule",
            "/retry",
            "/skip",
            "/answer",
            "/cancel",
        )
        if act.path.endswith(decisions) or (act.path == "/api/jobs/{id}" and act.mutates):
            two.ours, two.theirs = two.work()  # new jobs in review and ended jobs
        for estate in (two.theirs, two.ours):
            for address in questions(act, estate):
                answer = two.ask(two.ours, act.method, address, body_of(act, estate))
                assert answer.status_code < 500, (act, answer.text)
                if answer.status_code < 300:
                    asked.add((act.method, act.path))
    two.witness.check()
    # Every route open to a tenant has succeeded at least once, so each had the chance to leak.
    # A webhook has no tenant's key; its answer contains no data.
    silent = (
        {(act.method, act.path) for act in ROUTES if not act.everywhere}
        - asked
        - {("POST", "/api/hooks/{name}")}
    )
    assert silent == set()


def test_the_owner_sees_the_same_data(two: Two) -> None:
    seen = ""
    for act in ROUTES:
        if act.method == "GET":
            seen += "".join(two.ask(two.theirs, "GET", each).text for each in two.theirs.addresses(act.path))
    for sign in (
        *two.theirs.jobs, two.theirs.archived, two.theirs.schedule, two.theirs.definition, two.theirs.key,
        *(f"{two.theirs.mark}-{word}" for word in ("tag", "name", "value", "story", "kind", "id", "person", "trouble",
                                                   "thing", "owner", "key", "policy", "letter", "reason")),
    ):  # fmt: skip
        assert sign in seen, sign
    two.witness.check()


def test_event_streams_of_one_tenant_contain_nothing_of_the_other() -> None:
    with place() as where:
        ours, theirs = (furnish(where.app, tenant) for tenant in (OURS, STRANGER))
        for estate, other in ((ours, theirs), (theirs, ours)):
            refused = where.follow(f"/api/jobs/{other.jobs[0]}/events", estate.secret)
            assert refused.answer.status == 404
            body = {"task": "send", "args": {"to": f"{estate.mark}-letter"}}
            status, job = where.request("POST", "/api/jobs", body, key=estate.secret)
            assert status == 201, job
            changes = where.follow("/api/events", estate.secret).events()
            events = where.follow(f"/api/jobs/{job['id']}/events", estate.secret).events()
            assert next(events).data["id"] == job["id"]
            where.app.testing().drain()
            assert list(events)[-1].name == "end"
            assert next(changes).data["kinds"]
        assert len(where.witness) == 2  # streams are recorded when they are closed
    assert len(where.witness) == 8


@pytest.mark.parametrize(
    "sign",
    [
        lambda estate: estate.jobs[0],
        lambda estate: estate.archived,
        lambda estate: estate.schedule,
        lambda estate: estate.definition,
        lambda estate: estate.key,
        lambda estate: f"{estate.mark}-story",
        lambda estate: f"{estate.mark}-tag",
        lambda estate: f"{estate.mark}-value",
        lambda estate: f"{estate.mark}-password",
        lambda estate: estate.tenant,
    ],
)
@pytest.mark.parametrize(
    "place", ['{{"items": ["{0}"]}}', "location: /api/jobs/{0}\n\n", "event: job\ndata: {0}\n\n"]
)
def test_a_leak_is_detected(two: Two, sign: Any, place: str) -> None:
    witness = Witness(two.shop.app)
    text = place.format(sign(two.theirs))
    bearer = f"Bearer {two.ours.secret}"
    witness.hear(bearer, "GET /api/jobs\n", text)
    with pytest.raises(AssertionError, match="was told"):
        witness.check()


def test_data_shown_to_its_owner_or_named_in_the_request_is_no_leak(two: Two) -> None:
    witness = Witness(two.shop.app)
    id = two.theirs.jobs[0]
    witness.hear(f"Bearer {two.theirs.secret}", "GET /api/jobs", f'{{"id": "{id}"}}')
    witness.hear(f"Bearer {two.ours.secret}", f"GET /api/jobs/{id}", f"there is no job {id}")
    witness.hear(f"Bearer {two.shop.key('viewer', '*')}", "GET /api/jobs", id)
    witness.check()


def test_data_of_a_deleted_object_is_still_a_leak(two: Two) -> None:
    witness = Witness(two.shop.app)
    witness.hear(
        f"Bearer {two.theirs.secret}", "POST /api/jobs", '{"id":"0198aaaa-0000-7000-8000-00000000beef"}'
    )
    witness.hear(f"Bearer {two.ours.secret}", "GET /api/jobs", "0198aaaa-0000-7000-8000-00000000beef")
    with pytest.raises(AssertionError, match="was told"):
        witness.check()


def test_a_response_to_a_wrong_or_missing_key_must_contain_no_tenant_data(two: Two) -> None:
    for authorization in (None, "Bearer nonsense", f"Bearer tm_{two.theirs.key}.{'x' * 43}"):
        witness = Witness(two.shop.app)
        witness.hear(authorization, "GET /api/jobs", two.theirs.jobs[0])
        with pytest.raises(AssertionError, match="was told"):
            witness.check()
