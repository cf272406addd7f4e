"""Authorization of every route, for each role, kind of key, and without a key."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.interfaces.rest.kit import Browser, Site, declare, problem, site

from tidemill import App
from tidemill.domain.access import Identity, Role
from tidemill.errors import BadSettings
from tidemill.rest import ApiSettings, create_api
from tidemill.rest.api import all_routes
from tidemill.web.app import check_guarded
from tidemill.web.guard import address_of

ROLES = tuple(role.value for role in Role)


STREAMS = {route.path for route in all_routes() if route.stream}
"""The routes that respond with events and do not end."""


class Line(NamedTuple):
    """One line of the reviewed access table."""

    method: str
    path: str
    role: str
    whose: str


def table() -> list[Line]:
    lines = (Path(__file__).parent / "table.txt").read_text(encoding="utf-8").splitlines()
    return [Line(*line.split()) for line in lines if line.strip() and not line.startswith("#")]


def test_every_route_is_in_the_table_with_its_role_and_its_keys() -> None:
    declared = {
        Line(
            act.method,
            act.path,
            "-" if act.role is None else act.role.value,
            "everybody" if act.role is None else "all" if act.everywhere else "tenant",
        )
        for act in all_routes()
    }
    assert declared == set(table())


def test_a_route_without_a_declared_role_is_rejected() -> None:
    with App("memory://") as app:
        api = create_api(app)
        check_guarded(api)

        async def back_door(request: Request) -> Response:
            return Response()

        api.routes.append(Route("/api/back-door", back_door))
        with pytest.raises(BadSettings, match=r"back-door.* does not say which role"):
            check_guarded(api)


def knock(shop: Site, line: Line, **rest: Any) -> Any:
    """Call a route with unknown names and an invalid body, so that the request changes nothing."""
    path = line.path.replace("{id}", str(uuid.uuid4())).replace("{key}", "none").replace("{name}", "none")
    # HEAD has the same authorization as GET and returns at once.
    stream = line.method == "GET" and line.path in STREAMS
    if line.method in ("POST", "PUT", "PATCH"):
        rest["content"] = b'{"surely": "unknown"}'
        rest.setdefault("headers", {})["content-type"] = "application/json"
    return shop.client.request("HEAD" if stream else line.method, path, **rest)


@pytest.mark.parametrize("line", table(), ids=lambda line: f"{line.method} {line.path}")
def test_every_route_follows_the_table(shop: Site, line: Line) -> None:
    open_to_all = line.whose == "everybody"
    nobody = knock(shop, line)
    assert (nobody.status_code == 401) is not open_to_all
    if not open_to_all:
        assert nobody.headers["www-authenticate"].startswith("Bearer")
    for bad in ("Bearer tm_00000000." + "A" * 43, "Bearer x", "Bearer ", "Basic YTpi", "x"):
        assert (knock(shop, line, headers={"authorization": bad}).status_code == 401) is not open_to_all
    for number, role in enumerate(ROLES):
        for tenant in ("acme", "*"):
            enough = open_to_all or (
                number >= ROLES.index(line.role) and (line.whose == "tenant" or tenant == "*")
            )
            headers = {"authorization": f"Bearer {shop.key(role, tenant)}"}
            status = knock(shop, line, headers=headers).status_code
            assert (status not in (401, 403)) is enough, (role, tenant, status)
            assert status < 500


def test_a_key_in_the_url_is_not_accepted(shop: Site) -> None:
    answer = shop.client.request("GET", f"/api/jobs?key={shop.key()}")
    problem(answer, 401, "unauthenticated")


def test_a_revoked_key_is_not_accepted(shop: Site) -> None:
    made = shop.app.keys.create("short", role="viewer", tenant="acme")
    headers = {"authorization": f"Bearer {made.secret}"}
    assert shop.client.request("GET", "/api/jobs", headers=headers).status_code == 200
    shop.app.keys.revoke(made.key.id)
    problem(shop.client.request("GET", "/api/jobs", headers=headers), 401, "unauthenticated")


def test_an_application_can_authenticate_requests_itself() -> None:
    async def staff(request: Any) -> Identity | None:
        name = request.headers.get("x-staff")
        return None if name is None else Identity(name, Role.VIEWER, "acme")

    with App("memory://") as app:
        browser = Browser(create_api(app, auth=staff))
        try:
            assert browser.request("GET", "/api/jobs", headers={"x-staff": "ann"}).status_code == 200
            assert browser.request("POST", "/api/jobs", headers={"x-staff": "ann"}).status_code == 403
            assert browser.request("GET", "/api/jobs").status_code == 401
        finally:
            browser.close()


def test_creating_jobs_too_fast_gets_429_with_retry_after() -> None:
    with site(create_rate=0.01, create_burst=2) as shop:
        body = {"task": "send", "args": {"to": "ada"}}
        for _ in range(2):
            assert shop.call("POST", "/api/jobs", body).status_code == 201
        answer = shop.call("POST", "/api/jobs", body)
        problem(answer, 429, "too_many_requests")
        assert 90 <= int(answer.headers["retry-after"]) <= 100
        assert (
            shop.call("POST", "/api/jobs", body, tenant="other").status_code == 201
        )  # another key has its own bucket
        assert shop.call("GET", "/api/jobs").status_code == 200


def test_too_many_wrong_keys_of_one_address_get_429_while_valid_keys_still_work() -> None:
    with site(login_rate=0.01, login_burst=3) as shop:
        late = shop.key("viewer", "other")
        wrong = {"authorization": f"Bearer tm_0000000a.{'x' * 43}"}
        for _ in range(3):
            problem(shop.client.request("GET", "/api/jobs", headers=wrong), 401, "unauthenticated")
        answer = shop.client.request("GET", "/api/jobs", headers={"authorization": "Bearer more"})
        problem(answer, 429, "too_many_wrong_keys")
        assert 90 <= int(answer.headers["retry-after"]) <= 100
        # A valid key that this address uses for the first time must still work: a proxy may share the address among
        # clients.
        right = {"authorization": f"Bearer {late}"}
        assert shop.client.request("GET", "/api/jobs", headers=right).status_code == 200
        problem(shop.client.request("GET", "/api/jobs"), 401, "unauthenticated")
        problem(shop.client.request("GET", "/api/jobs", headers=wrong), 429, "too_many_wrong_keys")


def test_a_cached_key_that_was_revoked_counts_as_wrong() -> None:
    with site(login_rate=0.01, login_burst=2) as shop:
        made = shop.app.keys.create("short", role="viewer", tenant="acme")
        headers = {"authorization": f"Bearer {made.secret}"}
        assert shop.client.request("GET", "/api/jobs", headers=headers).status_code == 200
        shop.app.keys.revoke(made.key.id)
        seen = [shop.client.request("GET", "/api/jobs", headers=headers).status_code for _ in range(3)]
        assert seen == [401, 401, 429]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("203.0.113.7", "203.0.113.8", False),
    ],
)
def test_an_ipv6_network_of_64_bits_counts_as_one_address(one: str, other: str, same: bool) -> None:
    found = [address_of(Request({"type": "http", "client": (host, 1)})) for host in (one, other)]
    assert (found[0] == found[1]) is same


def test_anonymous_requests_may_create_jobs_only_where_that_is_enabled() -> None:
    body = {"task": "send", "args": {"to": "ada", "password": "x"}, "tags": ["form"]}
    with site(allow_anonymous_create=True, create_rate=0.001, create_burst=4) as shop:
        answer = shop.client.request("POST", "/api/jobs", json=body)
        assert answer.status_code == 201
        assert set(answer.json()) == {
            "id", "task", "status", "tenant", "queue", "run_at", "created_at", "correlation_id",
        }  # fmt: skip
        assert answer.json()["tenant"] == "default"
        wrong = {"authorization": "Bearer tm_00000000." + "A" * 43}
        problem(shop.client.request("POST", "/api/jobs", json=body, headers=wrong), 401, "unauthenticated")
        extras: list[dict[str, Any]] = [{"tenant": "acme"}, {"unique": {}}, {"priority": 9}]
        for more in extras:
            problem(shop.client.request("POST", "/api/jobs", json=body | more), 403, "forbidden")
        problem(shop.client.request("POST", "/api/jobs", json=body), 429, "too_many_requests")
        problem(shop.client.request("GET", "/api/jobs"), 401, "unauthenticated")


def test_a_prefix_applies_to_every_path_and_the_api_can_be_mounted() -> None:
    async def everybody(_: Any) -> Identity:
        return Identity("test", Role.SUPER_ADMIN, "*")

    with App("memory://") as app:
        declare(app)
        outer = FastAPI()
        outer.mount("/inner", create_api(app, prefix="/v1", auth=everybody))
        browser = Browser(outer)
        try:
            body = {"task": "send", "args": {"to": "ada"}}
            made = browser.request("POST", "/inner/v1/api/jobs", json=body)
            assert made.headers["location"] == f"/inner/v1/api/jobs/{made.json()['id']}"
            assert browser.request("GET", made.headers["location"]).status_code == 200
            assert browser.request("GET", "/inner/api/jobs").status_code == 404
            document = browser.request("GET", "/inner/v1/api/openapi.json").json()
            assert document["servers"] == [{"url": "/inner"}]
            assert "/v1/api/jobs" in document["paths"]
        finally:
            browser.close()
        with pytest.raises(BadSettings, match="prefix"):
            create_api(app, prefix="v1/")


def test_settings_of_zero_are_rejected() -> None:
    with pytest.raises(BadSettings, match="max_body"):
        ApiSettings(max_body=0)


def test_an_identity_named_anonymous_has_only_the_permissions_of_its_role() -> None:
    async def auth(_: Request) -> Identity | None:
        return Identity("anonymous", Role.VIEWER, "*")

    with App("memory://") as app:
        declare(app)
        client = Browser(create_api(app, auth=auth))
        try:
            assert client.request("GET", "/api/jobs").status_code == 200
            for path, body in (
                ("/api/keys", {"name": "mine", "role": "super_admin"}),
                ("/api/jobs", {"task": "send", "args": {"to": "ann"}}),
                ("/api/jobs/bulk", {"action": "delete", "filter": {"task": ["send"]}}),
            ):
                problem(client.request("POST", path, json=body), 403, "forbidden")
        finally:
            client.close()
        assert app.keys.list() == []


def test_a_read_only_server_rejects_anonymous_jobs_too() -> None:
    with site(allow_anonymous_create=True, read_only=True) as shop:
        answer = shop.client.request("POST", "/api/jobs", json={"task": "send", "args": {"to": "ann"}})
        problem(answer, 403, "read_only")
        assert shop.app.jobs.count(tenant="default") == 0
