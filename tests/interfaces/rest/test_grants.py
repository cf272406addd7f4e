"""Permissions of every route for each role, tenant and grant, compared with a reviewed table."""

from __future__ import annotations

import contextlib
import re
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.interfaces.rest.kit import Site, declare, problem, site

from tidemill import App
from tidemill.client.core import client_of
from tidemill.dashboard.site import all_pages
from tidemill.domain.access import Role
from tidemill.domain.permissions import ACTS
from tidemill.rest.api import all_routes
from tidemill.rest.routes import ApiOperation
from tidemill.web.acts import ROUTES

GRANTS = {
    "everything": "*",
    "reading": "*.read",
    "one task": "jobs.*,tasks.* task=look",
    "one queue": "jobs.*,queues.* queue=mail",
    "one definition": "definitions.*,schedules.* definition=nightly",
    "no arguments": "jobs.*,-jobs.arguments",
}
"""The grants of the table, by name."""


class Line(NamedTuple):
    """One line of the table: an act, its role, and which grants include it on some object."""

    act: str
    role: str
    second: str
    grants: frozenset[str]


def table() -> list[Line]:
    text = (Path(__file__).parent / "grants.txt").read_text(encoding="utf-8")
    lines = [line.split(None, 3) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [
        Line(act, role, second, frozenset(part.strip() for part in rest.split(";") if part.strip() != "-"))
        for act, role, second, rest in lines
    ]


def test_every_act_is_in_the_table_with_its_roles_and_grants() -> None:
    from tidemill.domain.permissions import Grant

    declared = {
        Line(
            act,
            rule.role.value,
            "-" if rule.second is None else rule.second.value,
            frozenset(
                name for name, text in GRANTS.items() if rule.ungranted or Grant.parse(text).names(act)
            ),
        )
        for act, rule in ACTS.items()
    }
    assert declared == set(table())
    assert len(table()) == len(ACTS)


def test_every_route_and_page_has_an_act_and_every_act_of_a_route_exists() -> None:
    served = {
        f"{route.method} {route.path}" for route in [*all_routes(), *all_pages()] if route.role is not None
    }
    assert served == set(ROUTES)
    # Hands send jobs.work over a broker and not over HTTP.
    assert {route.act for route in ROUTES.values()} == set(ACTS) - {"jobs.work"}


@pytest.fixture(scope="module")
def shop() -> Iterator[Site]:
    # The leak check would report a pool that grows during a test: the API has one thread, and the client all of its own.
    with site(threads=1) as made:
        furnish(made)
        start_all_threads(client_of(made.app).executor())
        yield made


def start_all_threads(pool: ThreadPoolExecutor) -> None:
    """Start every thread of a pool, which otherwise adds one when a call comes before the last thread is idle again."""
    together = threading.Barrier(pool._max_workers)
    for call in [pool.submit(together.wait, 60) for _ in range(together.parties)]:
        call.result()


def furnish(shop: Site) -> None:
    """Give tenant acme one object of each kind."""
    for task, args in (("send", {"to": "ada", "password": "hunter2"}), ("look", {"what": "x"})):
        for tenant in ("acme", "other"):
            shop.create(task, tenant=tenant, args=args, metadata={"customer": "c-17"})
    for key in ("nightly", "hourly"):
        body: dict[str, Any] = {"key": key, "task": "send", "args": {"to": "ada"}}
        assert shop.call("POST", "/api/definitions", body, role="admin").status_code == 201
        body = {**body, "trigger": "0 2 * * *"}
        assert shop.call("POST", "/api/schedules", body, role="admin").status_code == 201, body


def secret(shop: Site, role: str, tenant: str, grant: str) -> str:
    name = f"{role} {tenant} {grant}"
    if (name, "") not in shop._secrets:
        made = shop.app.keys.create(
            name, role=role, tenant=None if tenant == "*" else tenant, grants=[GRANTS[grant]]
        )
        shop._secrets[name, ""] = made.secret
    return shop._secrets[name, ""]


def ask(shop: Site, key: str, method: str, path: str, body: Any = None) -> Any:
    rest = {} if body is None else {"json": body}
    return shop.client.request(method, path, headers={"authorization": f"Bearer {key}"}, **rest)


def knock(shop: Site, key: str, route: ApiOperation, tenant: str | None = None) -> Any:
    """Call a route with unknown names and an invalid body, so that the request changes nothing."""
    method = "HEAD" if route.stream else route.method  # a stream does not end
    path = re.sub(r"\{id\}", str(uuid.uuid4()), route.path)
    path = path.replace("{key}", "nightly").replace("{name}", "look" if "/tasks/" in path else "mail")
    body = {"surely": "unknown"} if method in ("POST", "PUT", "PATCH") else None
    return ask(shop, key, method, path if tenant is None else f"{path}?tenant={tenant}", body)


LIMITED = {"one task": "task", "one queue": "queue", "one definition": "definition"}


def is_included(grant: str, act: str, by: str, lines: dict[str, Line]) -> bool:
    """Whether the table includes an act on the object that ``knock`` names."""
    rule = ACTS[act]
    if rule.ungranted:
        return True
    if grant not in lines[act].grants:
        return False
    # A grant with a pattern includes no act on everything.
    return grant not in LIMITED or by in ("job", "list", "later") or by == LIMITED[grant]


@pytest.mark.parametrize("grant", GRANTS)
@pytest.mark.parametrize("role", [role.value for role in Role])
def test_every_route_follows_the_table_for_each_role_tenant_and_grant(
    shop: Site, role: str, grant: str
) -> None:
    lines = {line.act: line for line in table()}
    for route in all_routes():
        if route.role is None:
            continue
        for tenant in ("acme", "*"):
            answer = knock(shop, secret(shop, role, tenant, grant), route)
            act, by = route.act
            has_role = Role(role).allows(Role(lines[act].role)) and (
                not ACTS[act].everywhere or tenant == "*"
            )
            expected = has_role and is_included(grant, act, by, lines)
            told = (route.method, route.path, role, tenant, grant, answer.status_code, answer.text[:200])
            assert answer.status_code < 500, told
            if expected:
                # Where the route needs a further act for its body, it comes after the validation.
                assert answer.status_code != 403 or route.path in ("/api/access/explain",), told
            else:
                # A job, schedule or definition that does not exist is not found before the grant is compared.
                assert answer.status_code == 403, told


@pytest.mark.parametrize("role", [role.value for role in Role])
def test_every_route_follows_the_table_for_a_role_in_each_of_several_tenants(shop: Site, role: str) -> None:
    lines = {line.act: line for line in table()}
    made = shop.app.keys.create(f"{role} in acme", roles={"acme": role, "third": "viewer"})
    for route in all_routes():
        if route.role is None:
            continue
        act, by = route.act
        for tenant, own in ((None, role), ("acme", role), ("third", "viewer"), ("other", None)):
            answer = knock(shop, made.secret, route, tenant)
            has_role = own is not None and Role(own).allows(Role(lines[act].role))
            expected = has_role and not ACTS[act].everywhere
            told = (route.method, route.path, role, tenant, answer.status_code, answer.text[:200])
            assert answer.status_code < 500, told
            # A tenant is compared where it is used: where an object of it does not exist, that comes first.
            refused = answer.status_code == 403
            assert not refused or not expected or by == "", told
            assert refused or expected or (own is None and answer.status_code in (404, 422)), told


def test_no_answer_to_a_tenant_contains_an_id_of_another(shop: Site) -> None:
    foreign = {str(job.id) for job in shop.app.jobs.list(tenant="other").items}
    assert len(foreign) == 2
    for grant in GRANTS:
        key = secret(shop, "super_admin", "acme", grant)
        for route in all_routes():
            if route.method != "GET" or route.role is None or route.stream:
                continue
            for id in foreign:
                path = route.path.replace("{id}", id).replace("{key}", "nightly").replace("{name}", "look")
                answer = ask(shop, key, "GET", path)
                assert id not in answer.text.replace(f"{id}", "", 1) or answer.status_code == 404, (
                    path,
                    answer.text,
                )
                if "{id}" in route.path and answer.status_code == 200:
                    pytest.fail(f"{path} answered about a job of another tenant")


# Objects


@contextlib.contextmanager
def with_grants(*grants: str, role: str = "admin", **key: Any) -> Iterator[tuple[Site, str]]:
    with site(stranger=False) as shop:
        made = shop.app.keys.create("limited", role=role, tenant="acme", grants=grants, **key)
        yield shop, made.secret


def test_a_list_leaves_out_jobs_that_no_grant_includes() -> None:
    with with_grants("jobs.* task=look", "jobs.read queue=slow") as (shop, key):
        own, other = shop.create("look", args={"what": "x"}), shop.create()
        queued = shop.create(queue="slow")
        found = ask(shop, key, "GET", "/api/jobs").json()["items"]
        assert {job["id"] for job in found} == {own["id"], queued["id"]}
        assert ask(shop, key, "GET", f"/api/jobs/{own['id']}").status_code == 200
        problem(ask(shop, key, "GET", f"/api/jobs/{other['id']}"), 404, "job_not_found")
        problem(ask(shop, key, "POST", f"/api/jobs/{other['id']}/cancel"), 404, "job_not_found")
        told = problem(ask(shop, key, "POST", f"/api/jobs/{queued['id']}/cancel"), 403, "not_granted")
        assert told["act"] == "jobs.cancel"
        assert "no grant includes jobs.cancel on task send, queue slow" in told["detail"]
        assert ask(shop, key, "POST", f"/api/jobs/{own['id']}/cancel").status_code == 200


def test_a_grant_decides_which_jobs_may_be_enqueued() -> None:
    with with_grants("jobs.run task=lo* queue=default,slow") as (shop, key):
        body = {"task": "look", "args": {"what": "x"}}
        assert ask(shop, key, "POST", "/api/jobs", body).status_code == 201
        assert ask(shop, key, "POST", "/api/jobs", {**body, "queue": "slow"}).status_code == 201
        problem(ask(shop, key, "POST", "/api/jobs", {**body, "queue": "mail"}), 403, "not_granted")
        problem(
            ask(shop, key, "POST", "/api/jobs", {"task": "send", "args": {"to": "a"}}), 403, "not_granted"
        )
        problem(ask(shop, key, "POST", "/api/flows", {"name": "x"}), 403, "not_granted")


def test_a_job_cannot_be_moved_out_of_the_granted_queue() -> None:
    with with_grants("jobs.* queue=mail") as (shop, key):
        job = shop.create(delay=600)
        problem(ask(shop, key, "PATCH", f"/api/jobs/{job['id']}", {"queue": "vip"}), 403, "not_granted")
        assert ask(shop, key, "PATCH", f"/api/jobs/{job['id']}", {"priority": 3}).status_code == 200


def test_children_of_other_tasks_are_not_cancelled_through_a_granted_job() -> None:
    with with_grants("jobs.* task=send") as (shop, key):
        job = shop.create()
        path = f"/api/jobs/{job['id']}/cancel"
        problem(ask(shop, key, "POST", path, {"children": True}), 403, "not_granted")
        assert ask(shop, key, "POST", path, {"children": False}).status_code == 200


def test_bulk_actions_need_a_grant_on_everything() -> None:
    body = {"action": "cancel", "filter": {"task": ["send"]}}
    with with_grants("jobs.* task=send") as (shop, key):
        problem(ask(shop, key, "POST", "/api/jobs/bulk", body), 403, "not_granted")
    with with_grants("jobs.*,-jobs.delete") as (shop, key):
        assert ask(shop, key, "POST", "/api/jobs/bulk", body).status_code == 200
        problem(ask(shop, key, "POST", "/api/jobs/bulk", {**body, "action": "delete"}), 403, "not_granted")


@pytest.mark.parametrize("role", ["viewer", "super_admin"])
def test_a_grant_without_arguments_hides_them_everywhere(role: str) -> None:
    with with_grants("*,-jobs.arguments", role=role) as (shop, key):
        job = shop.create(args={"to": "CANARY-arg"}, metadata={"customer": "CANARY-meta"})
        shop.drain()
        failed = shop.create("fail", args={"words": "CANARY-error"})
        shop.drain()
        for id in (job["id"], failed["id"]):
            for route in all_routes():
                if (
                    route.method == "GET"
                    and route.role is not None
                    and not route.stream
                    and route.tag == "jobs"
                ):
                    answer = ask(shop, key, "GET", route.path.replace("{id}", id))
                    assert "CANARY" not in answer.text, (route.path, answer.text)
        found = ask(shop, key, "GET", f"/api/jobs/{job['id']}").json()
        assert found["args"] == {"***": "***"}
        assert found["metadata"] == {"customer": "***"}
        assert ask(shop, key, "GET", "/api/jobs?text=CANARY-arg").json()["items"] == []
        problem(ask(shop, key, "GET", "/api/jobs?metadata=customer=CANARY-meta"), 403, "masked_value")


def test_a_grant_without_arguments_hides_the_errors_of_a_flow() -> None:
    with with_grants("*,-jobs.arguments", role="viewer") as (shop, key):
        node = {"name": "bad", "task": "fail", "args": {"words": "CANARY-error"}}
        flow = shop.call("POST", "/api/flows", {"name": "letters", "nodes": [node]}).json()["id"]
        shop.drain()
        for path in ("", "/nodes", "/graph", "/timeline", "/why", "/why?node=bad"):
            answer = ask(shop, key, "GET", f"/api/flows/{flow}{path}")
            assert answer.status_code == 200
            assert "CANARY" not in answer.text, (path, answer.text)
        reasons = ask(shop, key, "GET", f"/api/flows/{flow}/why").json()["items"]
        assert [(reason["node"], reason["code"]) for reason in reasons] == [
            (None, "failed"),
            ("bad", "ended"),
        ]


def test_definitions_and_schedules_follow_their_pattern() -> None:
    with site(stranger=False) as shop:
        furnish(shop)
        _check_definitions(shop, secret(shop, "admin", "acme", "one definition"))


def _check_definitions(shop: Site, key: str) -> None:
    for kind in ("definitions", "schedules"):
        assert [found["key"] for found in ask(shop, key, "GET", f"/api/{kind}").json()["items"]] == [
            "nightly"
        ]
        assert ask(shop, key, "GET", f"/api/{kind}/nightly").status_code == 200
        problem(ask(shop, key, "GET", f"/api/{kind}/hourly"), 403, "not_granted")
        problem(ask(shop, key, "POST", f"/api/{kind}/hourly/trigger"), 403, "not_granted")
        assert ask(shop, key, "POST", f"/api/{kind}/nightly/trigger").status_code == 201


def test_tasks_and_queues_follow_their_pattern(shop: Site) -> None:
    key = secret(shop, "operator", "*", "one task")
    assert [found["name"] for found in ask(shop, key, "GET", "/api/tasks").json()["items"]] == ["look"]
    problem(ask(shop, key, "GET", "/api/tasks/send"), 403, "not_granted")
    key = secret(shop, "operator", "*", "one queue")
    assert [found["name"] for found in ask(shop, key, "GET", "/api/queues").json()["items"]] == ["mail"]
    problem(ask(shop, key, "POST", "/api/queues/default/pause"), 403, "not_granted")


def test_a_key_with_grants_creates_only_keys_with_the_same_grants() -> None:
    grants = ["keys.*", "jobs.read task=send"]
    with with_grants(*grants, role="super_admin", environment="staging") as (shop, key):
        made = ask(shop, key, "POST", "/api/keys", {"name": "second", "role": "super_admin"}).json()
        assert (made["grants"], made["environment"]) == (grants, "staging")
        wider = {"name": "third", "role": "super_admin", "grants": ["*"]}
        problem(ask(shop, key, "POST", "/api/keys", wider), 403, "not_granted")


# Roles per tenant, and environments


def test_a_key_has_a_role_in_each_of_several_tenants() -> None:
    with site(stranger=False) as shop:
        made = shop.app.keys.create("both", roles={"acme": "admin", "other": "viewer"})
        own, foreign = shop.create(tenant="acme"), shop.create(tenant="other")
        for tenant, id in (("acme", own["id"]), ("other", foreign["id"])):
            found = ask(shop, made.secret, "GET", f"/api/jobs?tenant={tenant}").json()["items"]
            assert [job["id"] for job in found] == [id]
        assert ask(shop, made.secret, "GET", f"/api/jobs/{foreign['id']}").status_code == 404
        problem(
            ask(shop, made.secret, "POST", f"/api/jobs/{foreign['id']}/cancel?tenant=other"), 403, "forbidden"
        )
        assert ask(shop, made.secret, "POST", f"/api/jobs/{own['id']}/cancel?tenant=acme").status_code == 200
        problem(ask(shop, made.secret, "GET", "/api/jobs?tenant=third"), 403, "wrong_tenant")


@contextlib.contextmanager
def production() -> Iterator[Site]:
    from tests.interfaces.rest.kit import Browser

    from tidemill.rest import create_api

    with App("memory://", environment="production") as app:
        declare(app)
        with contextlib.closing(Browser(create_api(app))) as client:
            yield Site(app, client)


def test_destructive_acts_need_a_second_role_in_production() -> None:
    with production() as shop:
        job = shop.create()
        shop.drain()
        path = f"/api/jobs/{job['id']}"
        told = problem(shop.call("DELETE", path, role="admin"), 403, "second_role")
        assert (
            "in the environment production, jobs.delete also requires the role super_admin" in told["detail"]
        )
        body = {"action": "delete", "filter": {"task": ["send"]}}
        problem(shop.call("POST", "/api/jobs/bulk", body, role="admin"), 403, "second_role")
        problem(shop.call("POST", "/api/archive/run", role="admin", tenant="*"), 403, "second_role")
        assert shop.call("DELETE", path, role="super_admin").status_code == 204


def test_a_key_for_staging_is_refused_in_production() -> None:
    with production() as shop:
        made = shop.app.keys.create("stage", role="super_admin", environment="staging")
        told = problem(ask(shop, made.secret, "GET", "/api/jobs"), 403, "wrong_environment")
        assert told["detail"] == "this identity is for the environment staging, and this is production"


# Explanations and the audit


def test_a_caller_can_ask_why_an_act_is_refused() -> None:
    with with_grants("jobs.run task=look", role="operator") as (shop, key):
        own = ask(shop, key, "GET", "/api/access").json()
        assert own["grants"] == ["jobs.run task=look"]
        assert "jobs.run" in own["acts"]
        assert "jobs.cancel" not in own["acts"]
        told = ask(shop, key, "GET", "/api/access/explain?act=jobs.run&task=look").json()
        assert told["allowed"]
        told = ask(shop, key, "GET", "/api/access/explain?act=jobs.run&task=send").json()
        assert (told["allowed"], told["code"]) == (False, "not_granted")
        id = shop.app.keys.list()[0].id
        problem(ask(shop, key, "GET", f"/api/access/explain?act=jobs.run&key={id}"), 403, "forbidden")
        admin = shop.key("super_admin")
        told = ask(shop, admin, "GET", f"/api/access/explain?act=jobs.run&task=send&key={id}").json()
        assert not told["allowed"]
        foreign = shop.key("super_admin", "other")
        problem(ask(shop, foreign, "GET", f"/api/access/explain?act=jobs.run&key={id}"), 404, "key_not_found")
        problem(ask(shop, key, "GET", "/api/access/explain?act=jobs.fly"), 422, "bad_settings")


def test_a_refusal_is_recorded_once_a_minute() -> None:
    with with_grants("jobs.read", role="operator") as (shop, key):
        for _ in range(5):
            problem(ask(shop, key, "GET", "/api/flows"), 403, "not_granted")
        (entry,) = [record.entry for record in shop.app.audit.list(tenant="acme", action="access.refused")]
        assert entry.subject == "act:flows.read"
        assert entry.who.endswith("(limited)")


def test_sessions_can_be_listed_and_ended_over_http() -> None:
    with site(stranger=False) as shop:
        for who in ("ann", "ann", "bob"):
            shop.app.sessions.begin(who, timedelta(hours=1))
        found = shop.get("/api/sessions", role="super_admin", tenant="*")["items"]
        assert [session["who"] for session in found] == ["ann", "ann", "bob"]
        assert len(shop.get("/api/sessions?who=bob", role="super_admin", tenant="*")["items"]) == 1
        body = {"who": "ann"}
        ended = shop.call("POST", "/api/sessions/end", body, role="super_admin", tenant="*").json()["items"]
        assert len(ended) == 2
        path = f"/api/sessions/{found[2]['id']}"
        assert shop.call("DELETE", path, role="super_admin", tenant="*").status_code == 204
        assert shop.get("/api/sessions", role="super_admin", tenant="*")["items"] == []
        problem(shop.call("DELETE", path + "x", role="super_admin", tenant="*"), 404, "key_not_found")
