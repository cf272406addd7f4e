"""FastAPI and Starlette sites with an embedded worker, a mounted dashboard and the app as a dependency."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient

from tidemill import App, Identity, Role
from tidemill.contrib.fastapi import TidemillDep, get_app, lifespan, mount
from tidemill.engine.app_factories import apps_in
from tidemill.errors import BadSettings, UsageError

PATIENCE = 30.0


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://") as made:

        @made.task
        def double(number: int) -> int:
            return 2 * number

        yield made


def test_a_route_gets_the_app_and_the_embedded_worker_runs_its_jobs(app: App) -> None:
    site = FastAPI(lifespan=lifespan(app, worker={"concurrency": 1, "threads": 1, "children": 0}))

    @site.post("/numbers/{number}")
    async def numbers(number: int, jobs: TidemillDep) -> int:
        job = await jobs.aenqueue("double", number=number)
        return int(await job.aresult(PATIENCE))

    for _ in range(2):  # a lifespan may be entered again, as tests do
        with TestClient(site) as client:
            assert client.post("/numbers/21").json() == 42


def test_sigterm_does_not_end_a_process_whose_worker_finishes_its_jobs(app: App) -> None:
    seen: list[Any] = []

    @asynccontextmanager
    async def own(site: Starlette) -> AsyncIterator[None]:
        yield
        seen.append(signal.getsignal(signal.SIGTERM))

    async def run() -> None:
        site = Starlette()
        async with lifespan(app, worker={"concurrency": 1, "threads": 1, "children": 0}, then=own)(site):
            seen.append(signal.getsignal(signal.SIGTERM))
        seen.append(signal.getsignal(signal.SIGTERM))

    def server(number: int, frame: object) -> None:
        """Handler of a server, which the site must leave in place."""

    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        asyncio.run(run())
        running, ending, ended = seen
        assert running == ended == signal.SIG_DFL
        assert callable(ending)
        seen.clear()
        signal.signal(signal.SIGTERM, server)
        asyncio.run(run())
        assert seen == [server] * 3
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_sites_own_lifespan_surrounds_the_worker(app: App) -> None:
    seen: list[str] = []

    started = threading.Event()

    @app.task
    def slow() -> None:
        started.set()
        time.sleep(0.2)
        seen.append("job")

    @asynccontextmanager
    async def own(site: FastAPI) -> AsyncIterator[dict[str, str]]:
        seen.append("open")
        yield {"pool": "open"}
        seen.append("close")

    site = FastAPI(lifespan=lifespan(app, worker=True, then=own, close=True))

    @site.get("/state")
    async def state(request: Request) -> str:
        await slow.aenqueue()
        return str(request.state.pool)

    with TestClient(site) as client:
        assert client.get("/state").json() == "open"
        assert started.wait(60)
    assert seen == ["open", "job", "close"]
    with pytest.raises(Exception, match="closed"):
        app.jobs.count()


def test_a_worker_that_cannot_start_ends_the_sites_own_lifespan(tmp_path: Any) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def own(site: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            seen.append("close")

    with App("postgresql://nobody@127.0.0.1:1/none?connect_timeout=1") as broken:
        site = Starlette(lifespan=lifespan(broken, worker=True, then=own))
        with pytest.raises(Exception, match=r"127\.0\.0\.1"), TestClient(site):
            pass
    assert seen == ["close"]


def test_the_dashboard_and_the_api_are_mounted_with_sign_in(app: App) -> None:
    site = FastAPI(lifespan=lifespan(app))
    mount(site, app, "/background")
    key = app.keys.create("ann", role="operator").secret
    with TestClient(site, follow_redirects=False) as client:
        assert client.get("/background/api/jobs").status_code == 401
        answer = client.get("/background/", headers={"accept": "text/html"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/background/sign-in")
        signed = client.post("/background/sign-in", data={"key": key, "next": "/workers"})
        assert signed.headers["location"] == "/background/workers"
        assert client.get("/background/workers").status_code == 200
        made = client.post(
            "/background/api/jobs",
            json={"task": "double", "args": {"number": 1}},
            headers={"authorization": f"Bearer {key}"},
        )
        assert made.status_code == 201
    assert apps_in(site, App) == [app]


def test_a_site_may_identify_its_own_users(app: App) -> None:
    async def staff(request: Request) -> Identity | None:
        name = request.headers.get("x-user")
        return Identity(name, Role.OPERATOR, "*") if name else None

    site = Starlette()
    mount(site, app, auth=staff)
    with TestClient(site) as client:
        assert client.get("/jobs/").status_code == 401
        assert client.get("/jobs/", headers={"x-user": "ann"}).status_code == 200


def test_wrong_settings_are_refused_when_the_site_is_declared(app: App) -> None:
    wrong: Any = "yes"
    with pytest.raises(BadSettings, match="worker is 'yes'"):
        lifespan(app, worker=wrong)
    with pytest.raises(BadSettings, match="concurency"):
        lifespan(app, worker={"concurency": 5})
    with pytest.raises(BadSettings, match="path is 'jobs'"):
        mount(Starlette(), app, "jobs")


def test_the_dependency_needs_exactly_one_app(app: App) -> None:
    site = FastAPI()

    async def ask() -> App:
        return await get_app(Request({"type": "http", "app": site}))

    with pytest.raises(UsageError, match="the site has 0 Tidemill apps"):
        asyncio.run(ask())
    mount(site, app, "/a")
    mount(site, app, "/b")
    assert asyncio.run(ask()) is app
    with App("memory://") as other:
        mount(site, other, "/c")
        with pytest.raises(UsageError, match="the site has 2 Tidemill apps"):
            asyncio.run(ask())


def test_streams_of_a_mounted_site_end_with_the_loop(app: App) -> None:
    """A stream on an unknown server leaves the process's signal handlers as they were."""
    site = Starlette()
    mount(site, app, auth=_anyone)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    async def read_one_line() -> str:
        ended = asyncio.Event()
        lines: list[bytes] = []

        async def receive() -> dict[str, Any]:
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if body := message.get("body"):
                lines.append(body)
                ended.set()

        scope = {
            "type": "http", "method": "GET", "path": "/jobs/live", "raw_path": b"/jobs/live", "root_path": "",
            "query_string": b"", "headers": [], "http_version": "1.1", "scheme": "http", "server": ("x", 80),
        }  # fmt: skip
        await asyncio.wait_for(site(scope, receive, send), PATIENCE)
        return lines[0].decode()

    assert asyncio.run(read_one_line()).startswith("retry:")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


async def _anyone(request: Request) -> Identity:
    return Identity("ann", Role.VIEWER, "*")


def test_async_clients_enqueue_through_the_site(app: App) -> None:
    site = FastAPI(lifespan=lifespan(app))
    mount(site, app, auth=_anyone)

    async def ask() -> int:
        transport = httpx.ASGITransport(site)
        async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
            return (await client.get("/jobs/api/jobs")).status_code

    assert asyncio.run(ask()) == 200
