"""Isolation of two tenants: no response to one contains data of the other.

Further tests check that the witness detects leaks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.interfaces.rest.estate import (
    STRANGER,
    Estate,
    add_work,
    body_of,
    declare_decision,
    furnish,
    with_error,
)
from tests.interfaces.rest.kit import Site, site
from tests.interfaces.rest.served import place
from tests.interfaces.rest.witness import Witness

from tidemill.rest.api import all_routes
from tidemill.rest.routes import ApiOperation

OURS = "our-own-tenant"

ROUTES = [act for act in all_routes() if not act.stream]


class Two:
    """A site with the same data for two tenants: ours and a stranger's."""

    def __init__(self, shop: Site) -> None:
        self.shop = shop
        declare_decision(shop.app)
        self.ours, self.theirs = (furnish(shop.app, tenant) for tenant in (OURS, STRANGER))
        self.ours, self.theirs = self.work()

    def work(self) -> tuple[Estate, Estate]:
        """Create jobs of both tenants that succeed, fail and wait for review; return both estates with the ids."""
        ours, theirs = (
            add_work(self.shop.app, estate, partial(self.ask, estate)) for estate in (self.ours, self.theirs)
        )
        self.shop.drain()
        return with_error(self.shop.app, ours), with_error(self.shop.app, theirs)

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


PUBLIC = {("POST", "hooks/{name}"), ("GET", "callbacks/{token}"), ("POST", "callbacks/{token}")}


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
    # Webhooks and callback URLs have no tenant's key; their answers contain no data.
    silent = (
        {(act.method, act.path) for act in ROUTES if not act.everywhere}
        - asked
        - {(method, f"/api/{path}") for method, path in PUBLIC}
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


def test_a_reader_of_several_tenants_may_see_the_data_of_each_and_no_more(two: Two) -> None:
    made = two.shop.app.keys.create("both", roles={OURS: "viewer", "third": "viewer"})
    witness = Witness(two.shop.app)
    witness.hear(f"Bearer {made.secret}", "GET /api/jobs", two.ours.jobs[0])
    witness.check()
    witness.hear(f"Bearer {made.secret}", "GET /api/jobs", two.theirs.jobs[0])
    with pytest.raises(AssertionError, match="was told"):
        witness.check()


UNRECORDED = {
    "test_revoking.py": "two server processes and one key",
    "test_server.py": "servers without tenants",
    "test_shutdown.py": "servers in processes of their own",
    "test_wire.py": "broken requests",
}
"""Modules with a client of their own, and why."""


def test_every_module_of_this_folder_records_its_responses() -> None:
    own_client = re.compile(r"http\.client|urllib\.request|TestClient|httpx\.(?:Async)?Client|socket\.create")
    found = {
        path.name
        for path in Path(__file__).parent.glob("test_*.py")
        if path.name != Path(__file__).name and own_client.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(UNRECORDED)
