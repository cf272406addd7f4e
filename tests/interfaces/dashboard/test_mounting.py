"""The site under another path: links, files, cookies and redirects stay inside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from jinja2 import Environment
from litestar import Litestar, asgi
from litestar.types import Receive, Scope, Send
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from starlette.types import ASGIApp
from tests.interfaces.dashboard.kit import forms, house
from tests.interfaces.rest.kit import Browser, declare

from tidemill import App
from tidemill.dashboard import create_site
from tidemill.domain.access import Identity, Role
from tidemill.errors import BadSettings
from tidemill.rest import ApiSettings


def mounted(app: App, **how: Any) -> FastAPI:
    outside = FastAPI(openapi_url=None)
    outside.mount("/ops", create_site(app, **how))
    return outside


def prefixed(app: App, **how: Any) -> Starlette:
    return create_site(app, prefix="/ops", **how)


def both(app: App, **how: Any) -> FastAPI:
    outside = FastAPI(openapi_url=None)
    outside.mount("/deep", create_site(app, prefix="/ops", **how))
    return outside


def in_starlette(app: App, **how: Any) -> Starlette:
    return Starlette(routes=[Mount("/ops", create_site(app, **how))])


def in_litestar(app: App, **how: Any) -> Litestar:
    inside = create_site(app, **how)

    @asgi("/ops", is_mount=True, copy_scope=True)
    async def ops(scope: Scope, receive: Receive, send: Send) -> None:
        await inside(scope, receive, send)  # type: ignore[arg-type]

    return Litestar([ops], openapi_config=None)


def in_litestar_prefixed(app: App, **how: Any) -> Litestar:
    return in_litestar(app, prefix="/ops", **how)


def wrapped(app: App, **how: Any) -> ASGIApp:
    inside = create_site(app, **how)

    async def outside(scope: Any, receive: Any, send: Any) -> None:
        assert scope["path"].startswith("/ops")
        await inside({**scope, "path": scope["path"][4:] or "/"}, receive, send)

    return outside


def wrapped_with_root_path(app: App, **how: Any) -> ASGIApp:
    inside = create_site(app, **how)

    async def outside(scope: Any, receive: Any, send: Any) -> None:
        scope = {**scope, "path": scope["path"][4:] or "/", "root_path": "/ops"}
        del scope["raw_path"]  # optional in the ASGI specification
        await inside(scope, receive, send)

    return outside


MOUNTS = [
    (mounted, "/ops"),
    (prefixed, "/ops"),
    (both, "/deep/ops"),
    (in_starlette, "/ops"),
    (in_litestar, "/ops"),
    (in_litestar_prefixed, "/ops"),
    (wrapped, "/ops"),
    (wrapped_with_root_path, "/ops"),
]


@pytest.fixture(params=MOUNTS, ids=[make.__name__ for make, _ in MOUNTS])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[App, Browser, str]]:
    make, base = request.param
    with App("memory://") as app:
        declare(app)
        browser = Browser(make(app))
        try:
            yield app, browser, base
        finally:
            browser.close()


def test_every_link_on_a_page_stays_inside_the_mount(place: tuple[App, Browser, str]) -> None:
    app, browser, base = place
    secret = app.keys.create("ann", role="super_admin").secret
    away = browser.request("GET", f"{base}/settings?key=x")
    assert (away.status_code, away.headers["location"]) == (303, f"{base}/sign-in?next=%2Fsettings%3Fkey%3Dx")
    form = browser.request("GET", away.headers["location"])
    assert f'action="{base}/sign-in"' in form.text
    inside = browser.request("POST", f"{base}/sign-in", data={"key": secret, "next": "/settings?key=x"})
    assert (inside.status_code, inside.headers["location"]) == (303, f"{base}/settings?key=x")
    assert f"Path={base};" in inside.headers["set-cookie"] + ";"
    seen = set()
    for path in ("/", "/workers", "/tenants", "/audit", "/settings"):
        page = browser.request("GET", base + path)
        assert page.status_code == 200, path
        found = re.findall(r'(?:href|src|action)="([^"#][^"]*)"', page.text)
        assert found
        assert all(each.startswith(f"{base}/") or each == base for each in found), (path, found)
        seen |= set(found)
        live = re.search(r'name="live" content="([^"]+)"', page.text)
        assert live is not None
        assert browser.request("HEAD", live[1]).headers["content-type"].startswith("text/event-stream")
    for each in seen:
        if "/static/" in each:
            answer = browser.request("GET", each.replace("&amp;", "&"))
            assert answer.status_code == 200, each
            assert "immutable" in answer.headers["cache-control"]


def test_a_form_is_sent_and_answered_inside_the_mount(place: tuple[App, Browser, str]) -> None:
    app, browser, base = place
    secret = app.keys.create("ann", role="super_admin").secret
    browser.request("POST", f"{base}/sign-in", data={"key": secret})
    page = browser.request("GET", f"{base}/settings").text
    (form,) = [form for form in forms(page) if form.action.endswith("/settings/set")]
    fields = {**dict(form.fields), "key": "colour", "value": "mauve"}
    answer = browser.request("POST", form.action, data=fields)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{base}/settings")
    assert "colour is set" in browser.request("GET", f"{base}/settings").text
    theme = next(form for form in forms(page) if form.action.endswith("/theme"))
    answer = browser.request("POST", theme.action, data={**dict(theme.fields), "theme": "dark"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{base}/settings")
    out = next(form for form in forms(page) if form.action.endswith("/sign-out"))
    answer = browser.request("POST", out.action, data=dict(out.fields))
    assert (answer.status_code, answer.headers["location"]) == (303, f"{base}/sign-in")
    assert browser.request("GET", f"{base}/").status_code == 303


def test_the_api_and_not_found_pages_work_inside_the_mount(place: tuple[App, Browser, str]) -> None:
    app, browser, base = place
    secret = app.keys.create("ann", role="viewer").secret
    headers = {"authorization": f"Bearer {secret}"}
    assert browser.request("GET", f"{base}/api/jobs", headers=headers).status_code == 200
    assert browser.request("GET", f"{base}/livez").status_code == 200
    nothing = browser.request("GET", f"{base}/api/nothing", headers=headers)
    assert (nothing.status_code, nothing.headers["content-type"]) == (404, "application/problem+json")
    assert "There is no page at /nothing" in browser.request("GET", f"{base}/nothing").text


def test_the_path_of_the_mount_itself_redirects_inside(place: tuple[App, Browser, str]) -> None:
    _, browser, base = place
    answer = browser.request("GET", base, follow_redirects=True)
    assert (answer.status_code, answer.url.path) == (200, f"{base}/sign-in")


def test_a_double_slash_redirects_to_no_other_host() -> None:
    with App("memory://") as app:
        for make in (in_litestar, wrapped):
            browser = Browser(make(app))
            try:
                answer = browser.request("GET", "http://shop.example//ops/jobs")
                assert not answer.headers.get("location", "").startswith("//")
            finally:
                browser.close()


def test_an_application_can_authenticate_users_itself() -> None:
    async def staff(request: Request) -> Identity | None:
        name = request.headers.get("x-staff")
        return None if name is None else Identity(f"staff:{name}", Role.OPERATOR, "acme")

    with App("memory://") as app:
        browser = Browser(mounted(app, auth=staff))
        try:
            page = browser.request("GET", "/ops/", headers={"x-staff": "ann"})
            assert page.status_code == 200
            assert "staff:ann, tenant acme" in page.text
            assert "Sign out" not in page.text
            stranger = browser.request("GET", "/ops/")
            assert stranger.status_code == 401
            assert "Sign in to the application first." in stranger.text
        finally:
            browser.close()


def test_sessions_survive_a_restart_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def stays(*sites: Starlette) -> bool:
        browsers = [Browser(site) for site in sites]
        try:
            answer = browsers[0].request("POST", "/sign-in", data={"key": secret})
            cookie = answer.headers["set-cookie"].partition(";")[0]
            return browsers[1].request("GET", "/", headers={"cookie": cookie}).status_code == 200
        finally:
            for browser in browsers:
                browser.close()

    with App("memory://") as app:
        secret = app.keys.create("ann", role="viewer").secret
        assert stays(create_site(app), create_site(app)), "the store holds the sessions"
        settings = ApiSettings(session_secret="a secret of the settings")
        assert stays(create_site(app, settings=settings), create_site(app, settings=settings))
        monkeypatch.setenv("TIDEMILL_SESSION_SECRET", "a secret of the environment")
        assert stays(create_site(app), create_site(app))
        monkeypatch.setenv("TIDEMILL_SESSION_SECRET", "short")
        with pytest.raises(BadSettings, match="5 characters"):
            create_site(app)


def test_a_second_site_of_a_process_compiles_no_template_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str | None] = []
    compile_template = Environment.compile

    def record(self: Environment, source: Any, name: str | None = None, *rest: Any, **more: Any) -> Any:
        compiled.append(name)
        return compile_template(self, source, name, *rest, **more)

    monkeypatch.setattr(Environment, "compile", record)
    pages = []
    for _ in range(2):
        compiled.clear()
        with house() as shop:
            pages.append(shop.person("super_admin", "acme").open("/tasks"))
    assert compiled == []
    assert all("send" in page for page in pages)
