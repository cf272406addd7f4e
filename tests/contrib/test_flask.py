"""Flask applications with the extension: factories, application context and commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, current_app, request

from tidemill import App, Identity, Role
from tidemill.contrib.flask import Tidemill
from tidemill.engine.app_factories import apps_in
from tidemill.errors import BadSettings, UsageError

PATIENCE = 120.0

SHOP = """
from flask import Flask, current_app, request
from tidemill.contrib.flask import Tidemill

jobs = Tidemill(migrate=True)


@jobs.task
def send(to: str) -> str:
    return f"{current_app.config['GREETING']} {to}"


@jobs.scheduled("0 6 * * *", key="digest")
def digest() -> None: ...


def create_app():
    shop = Flask(__name__)
    shop.config.update(GREETING="hello", TIDEMILL_STORE="sqlite:///jobs.db")
    jobs.init_app(shop)

    @shop.post("/mail/<to>")
    def mail(to):
        return {"job": str(send.enqueue(to=to).id)}

    return shop
"""


@pytest.fixture
def jobs() -> Tidemill:
    return Tidemill()


def flask_app(jobs: Tidemill, **config: Any) -> Flask:
    made = Flask("shop")
    made.config.update(TIDEMILL_STORE="memory://", **config)
    jobs.init_app(made)
    return made


def test_jobs_run_in_the_application_context(jobs: Tidemill) -> None:
    @jobs.task
    def greet(name: str) -> str:
        return f"{current_app.config['GREETING']} {name}"

    @jobs.task
    async def agreet(name: str) -> str:
        return f"{current_app.config['GREETING']} {name}"

    shop = flask_app(jobs, GREETING="hello")

    @shop.post("/greet/<name>")
    def route(name: str) -> str:
        return str(greet.enqueue(name=name).id)

    answer = shop.test_client().post("/greet/ada")
    with shop.app_context():
        later = agreet.enqueue(name="bob")
        app = jobs.app
    app.testing().drain(raise_errors=True)
    assert app.jobs.get(answer.text).result() == "hello ada"
    assert later.result() == "hello bob"
    app.close()


def test_every_application_of_a_factory_has_jobs_of_its_own(jobs: Tidemill) -> None:
    @jobs.task
    def greet(name: str) -> str:
        return name

    apps = [flask_app(jobs) for _ in range(2)]
    with apps[0].app_context():
        greet.enqueue(name="ada")
        assert jobs.app.jobs.count() == 1
    with apps[1].app_context():
        assert jobs.app.jobs.count() == 0
    with pytest.raises(UsageError, match="2 apps include task 'greet'"):
        greet.enqueue(name="ada")
    with pytest.raises(UsageError, match="no application context"):
        _ = jobs.app
    for made in apps:
        (app,) = apps_in(made, App)
        app.close()


def test_settings_come_from_the_configuration(jobs: Tidemill) -> None:
    shop = flask_app(Tidemill(name="mill", args_limit=100), TIDEMILL_TENANT="acme", TIDEMILL_ARGS_LIMIT=200)
    app: App = shop.extensions["tidemill"]
    assert app.name == "mill"
    job = app.task(_nothing).enqueue()
    assert job.tenant == "acme"
    app.close()
    with pytest.raises(BadSettings, match="unknown setting TIDEMILL_STOER"):
        flask_app(jobs, TIDEMILL_STOER="memory://")
    with pytest.raises(UsageError, match="has a Tidemill app already"):
        jobs.init_app(shop)


def _nothing() -> None: ...


def staff() -> Identity | None:
    name = request.headers.get("x-user")
    return Identity(name, Role.OPERATOR, "*") if name else None


def test_the_dashboard_is_served_inside_the_application(jobs: Tidemill) -> None:
    @jobs.task
    def send(to: str) -> str:
        return to

    shops = [flask_app(jobs, SECRET_KEY="the same in every process") for _ in range(2)]
    app: App = shops[0].extensions["tidemill"]
    shops[1].extensions["tidemill"] = app
    for shop in shops:
        jobs.mount(shop, "/ops/jobs", auth=staff)
    with shops[0].app_context():
        job = send.enqueue(to="ada")
    one, other = (shop.test_client() for shop in shops)
    ann = {"x-user": "ann"}
    assert one.get("/ops/jobs/", headers=ann).status_code == 200
    assert one.get("/ops/jobs/").status_code in (302, 303, 401)
    page = one.get(f"/ops/jobs/jobs/{job.id}", headers=ann)
    assert "send" in page.text
    assert 'action="/ops/jobs/jobs/' in page.text
    style = re.search(r'href="(/ops/jobs/[^"]*\.css[^"]*)"', page.text)
    assert style is not None
    assert one.get(style[1], headers=ann).status_code == 200
    assert one.get("/ops/jobs/live", headers=ann).status_code == 204
    token = re.search(r'name="csrf" content="(\w+)"', page.text)
    assert token is not None
    form = {"csrf": token[1], "reason": "not needed"}
    elsewhere = {**ann, "origin": "https://evil.example"}
    cancel = f"/ops/jobs/jobs/{job.id}/cancel"
    assert other.post(cancel, data=form, headers=elsewhere).status_code == 403
    assert job.refresh().status == "pending"
    assert other.post(cancel, data=form, headers=ann).status_code == 303
    assert job.refresh().status == "cancelled"
    listed = one.get("/ops/jobs/api/jobs", headers=ann, query_string={"status": "cancelled"}).get_json()
    assert [item["id"] for item in listed["items"]] == [str(job.id)]
    app.close()


def test_without_auth_the_dashboard_asks_for_a_key(jobs: Tidemill) -> None:
    shop = flask_app(jobs)
    jobs.mount(shop)
    client = shop.test_client()
    assert client.get("/jobs/api/jobs").status_code == 401
    with shop.app_context():
        key = jobs.app.keys.create("ann", role="viewer").secret
    answer = client.get("/jobs/api/jobs", headers={"authorization": f"Bearer {key}"})
    assert (answer.status_code, answer.get_json()["items"]) == (200, [])
    with pytest.raises(BadSettings, match="begin it with a slash"):
        jobs.mount(shop, "jobs/")
    with pytest.raises(UsageError, match="call init_app before mount"):
        jobs.mount(Flask("other"))
    shop.extensions["tidemill"].close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def flask(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "flask", "--app", "shop", *words],
        cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


def test_flask_commands_run_the_jobs_of_a_factory(folder: Path) -> None:
    made = json.loads(flask(folder, "tidemill", "jobs", "enqueue", "send", "to=ada", "--json"))
    words = [
        sys.executable,
        "-m",
        "flask",
        "--app",
        "shop",
        "tidemill",
        "worker",
        "--processes",
        "1",
        "--json",
    ]
    with subprocess.Popen(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as worker:
        try:
            assert worker.stdout is not None
            line = worker.stdout.readline()
            assert line, worker.stderr and worker.stderr.read()
            assert json.loads(line)["started"]["tasks"] == ["digest", "send"]
            flask(folder, "tidemill", "jobs", "watch", made["id"])
        finally:
            worker.terminate()
            worker.communicate(timeout=PATIENCE)
    shown = json.loads(flask(folder, "tidemill", "jobs", "show", made["id"], "--json"))
    assert (shown["status"], shown["value"]) == ("completed", "hello ada")
