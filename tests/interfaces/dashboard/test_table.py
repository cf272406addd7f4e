"""Authorization of every page and form, for every role and kind of key."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from tests.interfaces.dashboard.crowd import claim, join, lead, post
from tests.interfaces.dashboard.kit import House, Person, forms, house
from tests.interfaces.rest.kit import Browser
from tests.interfaces.rest.test_grants import GRANTS, LIMITED, is_included
from tests.interfaces.rest.test_grants import table as grants_table

from tidemill.dashboard.site import all_pages
from tidemill.domain.access import Role

ROLES = tuple(role.value for role in Role)


class Line(NamedTuple):
    """One line of the reviewed access table."""

    method: str
    path: str
    role: str
    whose: str


def table() -> list[Line]:
    lines = (Path(__file__).parent / "table.txt").read_text(encoding="utf-8").splitlines()
    return [Line(*line.split()) for line in lines if line.strip() and not line.startswith("#")]


CLOSED = [line for line in table() if line.whose != "everybody"]


def test_every_page_is_in_the_table_with_its_role_and_its_keys() -> None:
    declared = {
        Line(
            page.method,
            page.path,
            "-" if page.role is None else page.role.value,
            "everybody" if page.role is None else "all" if page.everywhere else "tenant",
        )
        for page in all_pages()
    }
    assert declared == set(table())
    assert len(table()) == len(set(table()))


def address(line: Line) -> str:
    """The path of a page about an object that does not exist."""
    return re.sub(
        r"\{(\w+)(?::\w+)?\}", lambda found: str(uuid.uuid4()) if found[1] == "id" else "none", line.path
    )


def knock(person: Person, line: Line, csrf: str) -> httpx.Response:
    """Open a page, or send a form without valid fields, so that the request changes nothing."""
    if line.method == "GET":  # HEAD has the same authorization as GET and opens no stream
        return person.ask("HEAD" if line.path.endswith("/live") else "GET", address(line))
    return person.ask(line.method, address(line), data={"csrf": csrf, "surely": "unknown"})


def csrf_of(person: Person) -> str:
    found = re.search(r'name="csrf" content="(\w+)"', person.open("/"))
    assert found is not None
    return found[1]


@pytest.mark.parametrize("tenant", ["acme", "*"])
@pytest.mark.parametrize("role", ROLES)
def test_every_page_follows_the_table(shop: House, role: str, tenant: str) -> None:
    person = shop.person(role, tenant)
    csrf = csrf_of(person)
    for line in CLOSED:
        enough = ROLES.index(role) >= ROLES.index(line.role) and (line.whose == "tenant" or tenant == "*")
        answer = knock(person, line, csrf)
        told = (line.method, line.path, role, tenant, answer.status_code)
        assert (answer.status_code not in (401, 403)) is enough, told
        assert answer.status_code < 500, told
        assert not answer.headers.get("location", "").startswith("/sign-in"), told
        if line.method == "POST" and enough:  # a form without a CSRF token is rejected
            assert person.ask("POST", address(line), data={"surely": "unknown"}).status_code == 403, told


@pytest.mark.parametrize(
    ("grant", "tenant"), [*((grant, "acme") for grant in GRANTS), ("everything", "*"), ("one task", "*")]
)
def test_every_page_follows_the_table_of_grants(shop: House, grant: str, tenant: str) -> None:
    lines = {line.act: line for line in grants_table()}
    made = shop.app.keys.create(
        grant, role="super_admin", tenant=None if tenant == "*" else tenant, grants=[GRANTS[grant]]
    )
    browser = Browser(shop.site_app)
    try:
        assert browser.request("POST", "/sign-in", data={"key": made.secret}).status_code == 303
        browser.bearer = f"Bearer {made.secret}"
        for page in all_pages():
            if page.role is None:
                continue
            act, by = page.act
            included = is_included(grant, act, by, lines)
            expected = included and (tenant == "*" or not page.everywhere)
            # A page about an object of this name, or about one that does not exist.
            path = re.sub(r"\{id(:\w+)?\}", str(uuid.uuid4()), page.path)
            path = re.sub(r"\{key(:\w+)?\}", "nightly", path)
            path = re.sub(r"\{\w+(:\w+)?\}", "look" if "/tasks/" in path else "mail", path)
            if page.method == "GET":
                answer = browser.request("HEAD" if path.endswith("/live") else "GET", path)
            else:
                csrf = csrf_text(browser)
                answer = browser.request(page.method, path, data={"csrf": csrf, "surely": "unknown"})
            told = (page.method, page.path, grant, tenant, answer.status_code, answer.text[:300])
            assert answer.status_code < 500, told
            refused = answer.status_code == 403
            # A page about an object that does not exist cannot compare it with a pattern.
            is_lost = expected and grant in LIMITED and by in ("job", "later")
            assert refused is not expected or is_lost, told
    finally:
        browser.close()


def csrf_text(browser: Browser) -> str:
    """The token of the forms of this session; a page that every caller may see shows it."""
    found = re.search(r'name="csrf" content="(\w+)"', browser.request("GET", "/no-such-page").text)
    assert found is not None
    return found[1]


def test_anonymous_users_are_sent_to_the_sign_in(shop: House) -> None:
    browser = Browser(shop.site_app)
    try:
        for line in CLOSED:
            answer = browser.request(line.method, address(line))
            if line.method == "GET":
                assert answer.status_code == 303, line
                assert answer.headers["location"].startswith("/sign-in"), line
            else:
                assert answer.status_code == 401, line
        for line in table():
            if line.whose == "everybody":
                assert browser.request(line.method, line.path, data={}).status_code < 500, line
    finally:
        browser.close()


def test_a_read_only_site_accepts_no_forms_and_shows_no_buttons() -> None:
    with house(read_only=True) as shop:
        person = shop.person("super_admin", "*")
        csrf = csrf_of(person)
        for line in CLOSED:
            answer = knock(person, line, csrf)
            if line.method == "POST":
                assert answer.status_code == 403, line
                assert "read-only" in answer.text, line
            else:
                sends = [form.action for form in forms(answer.text) if form.method == "post"]
                assert {action.rpartition("/")[2] for action in sends} <= {"theme", "sign-out", "view"}, line
        worker = join(shop, "grinder")
        for question in (f"/workers/{worker.id}/drain", "/tenants/pause?name=acme"):
            assert "read-only" in person.open(question, 403)
        created = person.ask(
            "POST",
            "/api/jobs",
            json={"task": "send", "args": {"to": "ada"}},
            headers={"authorization": f"Bearer {shop.key('super_admin', '*')}"},
        )
        assert (created.status_code, created.json()["code"]) == (403, "read_only")
        assert person.send("/", "/theme", theme="dark")  # the theme is still allowed


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_every_page_opens_on_every_store(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    where = f"sqlite:///{tmp_path}/jobs.db"
    url = where if kind == "sqlite" else request.getfixturevalue("fresh_postgres_url")
    with house(url) as shop:
        worker = join(shop, "grinder")
        lead(shop, worker, ticked_at=shop.app.clock.now())
        job = post(shop)
        shop.drain()
        post(shop)
        claim(shop, worker)
        post(shop)
        shop.app.control.pause("tenant", "acme")
        person = shop.person("super_admin", "*")
        for line in CLOSED:
            if line.method == "GET" and line.path != "/live":
                id = str(worker.id) if line.path.startswith("/workers") else job
                path = line.path.replace("{id}", id)
                for tenant in ("", "?tenant=acme"):
                    answer = person.ask("GET", re.sub(r"\{\w+(?::\w+)?\}", "none", path) + tenant)
                    assert answer.status_code in (200, 303, 404, 422), (line, answer.status_code)
        for path in ("/", "/workers", f"/workers/{worker.id}", "/tenants", "/audit", "/settings"):
            page = person.open(path)
            assert "grinder" in page or path in ("/tenants", "/audit", "/settings")
