"""Litestar sites with the plugin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from litestar import Litestar, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from litestar.testing import TestClient

from tidemill import App
from tidemill.contrib.litestar import TidemillPlugin
from tidemill.engine.app_factories import apps_in
from tidemill.errors import BadSettings

PATIENCE = 60.0
WORKER = {"concurrency": 1, "threads": 1, "children": 0}


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://") as made:

        @made.task
        def double(number: int) -> int:
            return 2 * number

        yield made


@post("/numbers/{number:int}", status_code=200)
async def numbers(number: FromPath[int], tidemill: NamedDependency[App]) -> int:
    job = await tidemill.aenqueue("double", number=number)
    return int(await job.aresult(PATIENCE))


@get("/")
async def home() -> str:
    return "home"


def test_handlers_get_the_app_and_the_worker_runs_its_jobs(app: App) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def own(_: Litestar) -> AsyncIterator[None]:
        seen.append("open")
        yield
        seen.append("close")

    site = Litestar([numbers, home], lifespan=[own], plugins=[TidemillPlugin(app, worker=WORKER, close=True)])
    with TestClient(site) as client:
        assert client.post("/numbers/21").json() == 42
        assert client.get("/").text == "home"
    assert seen == ["open", "close"]
    with pytest.raises(Exception, match="closed"):
        app.jobs.count()


def test_the_dashboard_is_mounted_with_sign_in(app: App) -> None:
    site = Litestar([home], plugins=[TidemillPlugin(app, path="/jobs")])
    key = app.keys.create("ann", role="operator").secret
    with TestClient(site) as client:
        client.follow_redirects = False
        assert client.get("/jobs/").headers["location"] == "/jobs/sign-in"
        signed = client.post("/jobs/sign-in", data={"key": key, "next": "/workers"})
        assert signed.headers["location"] == "/jobs/workers"
        assert client.get("/jobs/workers").status_code == 200
        listed = client.get("/jobs/api/jobs", headers={"authorization": f"Bearer {key}"})
        assert listed.json()["items"] == []
    assert apps_in(site, App) == [app]


def test_wrong_settings_are_refused_when_the_site_is_declared(app: App) -> None:
    wrong: dict[str, Any] = {"concurency": 5}
    with pytest.raises(BadSettings, match="concurency"):
        TidemillPlugin(app, worker=wrong)
    with pytest.raises(BadSettings, match="path is 'jobs/'"):
        TidemillPlugin(app, path="jobs/")
