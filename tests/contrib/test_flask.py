"""Flask applications with the extension: factories, application context and commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, current_app

from tidemill import App
from tidemill.contrib.flask import Tidemill
from tidemill.engine.app_factories import apps_in
from tidemill.errors import BadSettings, UsageError

PATIENCE = 120.0

SHOP = """
from flask import Flask, current_app
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
