"""A Django project with Tidemill: its own tests, migrations, workers and servers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interfaces.rest.test_shutdown import limit, running

PROJECT = Path(__file__).parent / "project"
PATIENCE = 400.0


class Project:
    """The project on one database."""

    def __init__(self, url: str, folder: Path, **variables: str) -> None:
        self.url, self.folder, self.variables = url, folder, variables

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "SHOP_DATABASE": self.url,
            "SHOP_TEST_FILE": str(self.folder / "test.sqlite3"),
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": "error::RuntimeWarning",
            **self.variables,
        }

    def manage(self, *words: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, str(PROJECT / "manage.py"), *words],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def shell(self, code: str) -> Any:
        """The JSON value that a program in the project prints last."""
        return json.loads(self.manage("shell", "--verbosity", "0", "-c", code).stdout.splitlines()[-1])

    @contextlib.contextmanager
    def worker(self, *words: str) -> Iterator[Any]:
        """Run ``manage.py tidemill worker``, and yield what it announces."""
        command = [sys.executable, str(PROJECT / "manage.py"), "tidemill", "worker", "--json", *words]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            try:
                assert running.stdout is not None
                line = running.stdout.readline()
                assert line, running.stderr and running.stderr.read()
                yield json.loads(line)["started"]
            finally:
                running.terminate()
                running.communicate(timeout=PATIENCE)

    def until_ended(self, id: str) -> Any:
        """The job when it has ended."""
        done = self.manage("tidemill", "jobs", "watch", id, "--json", check=False)
        assert done.stdout, done.stderr
        return json.loads(self.manage("tidemill", "jobs", "show", id, "--json").stdout)


@pytest.fixture(params=["sqlite", "postgres"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    if request.param == "sqlite":
        yield Project(f"sqlite:///{tmp_path}/shop.sqlite3", tmp_path)
    else:
        yield Project(request.getfixturevalue("fresh_postgres_url"), tmp_path)


def test_the_tests_of_the_project_pass(project: Project) -> None:
    done = project.manage("test", "shop")
    print(done.stderr.splitlines()[-3:])
    assert "\nOK" in done.stderr


def test_migrate_creates_the_schema_and_a_worker_runs_the_jobs_of_a_view(project: Project) -> None:
    assert "Tidemill: applied" in project.manage("migrate").stdout
    assert "Tidemill: applied" not in project.manage("migrate").stdout
    # The first thing that a process does with the project is an enqueue, before Django has opened a connection.
    sent = project.shell(
        "import json\nfrom shop import tasks\nprint(json.dumps(str(tasks.send.enqueue(to='ada').id)))"
    )
    assert (
        json.loads(project.manage("tidemill", "jobs", "show", sent, "--json").stdout)["status"] == "pending"
    )
    placed = project.shell(
        "import json\n"
        "from django.test import Client\n"
        "answers = [Client().get(f'/orders/{name}') for name in ('chair', 'bad')]\n"
        "print(json.dumps([[answer.status_code, answer.json()] for answer in answers]))"
    )
    assert [status for status, _ in placed] == [202, 409]
    listed = json.loads(
        project.manage("tidemill", "jobs", "list", "--task", "shop.tasks.ship", "--json").stdout
    )["items"]
    assert [(job["id"], job["task"]) for job in listed] == [(placed[0][1]["job"], "shop.tasks.ship")]
    with project.worker() as started:
        assert {"shop.tasks.ship", "shop.tasks.notify", "mail.send", "judge"} <= set(started["tasks"])
        shown = project.until_ended(placed[0][1]["job"])
    assert shown["status"] == "completed"
    assert "digest" in project.manage("tidemill", "schedules", "list", "--json").stdout
    state = project.shell(
        "import json\nfrom shop.models import Order\nprint(json.dumps(Order.objects.get().state))"
    )
    assert state == "shipped by bike"


LOSES_CONNECTIONS = """
import json, psycopg
from shop import tasks
from tidemill.contrib.django import app
ended = []
for name in ["backend_pid", "async_backend_pid"] * 3:
    job = app.jobs.get(getattr(tasks, name).enqueue().id)
    pid = job.result({patience})
    with psycopg.connect({url!r}, autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s, 5000)", [pid])
    ended.append([str(job.refresh().status), pid])
print(json.dumps(ended))
"""
"""Runs the jobs one after the other, and ends the connection that each of them used."""


def test_no_job_fails_when_connections_are_lost_between_jobs(tmp_path: Path, fresh_postgres_url: str) -> None:
    """Connections stay open between jobs here (``CONN_MAX_AGE`` is None), and a task has one attempt."""
    project = Project(fresh_postgres_url, tmp_path)
    project.manage("migrate")
    with project.worker("--processes", "1", "--threads", "1", "--concurrency", "1"):
        ended = project.shell(LOSES_CONNECTIONS.format(patience=PATIENCE, url=fresh_postgres_url))
    assert [status for status, _ in ended] == ["completed"] * 6
    assert len({pid for _, pid in ended}) == 6


def test_parallel_tests_have_databases_of_their_own(tmp_path: Path, fresh_postgres_url: str) -> None:
    done = Project(fresh_postgres_url, tmp_path).manage("test", "shop", "--parallel", "2")
    assert "\nOK" in done.stderr


def test_a_test_database_in_memory_needs_isolated_jobs(tmp_path: Path) -> None:
    project = Project(f"sqlite:///{tmp_path}/shop.sqlite3", tmp_path)
    done = project.manage("test", "shop.tests.IsolatedTests", SHOP_TEST_FILE="")
    assert "\nOK" in done.stderr
    done = project.manage("test", "shop.tests.OwnTransactionTests", check=False, SHOP_TEST_FILE="")
    assert "for tests, use TidemillTestCase" in done.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('{"databas": "default"}', "unknown setting TIDEMILL['databas']"),
        ('{"database": "jobs"}', "TIDEMILL names the database 'jobs'; DATABASES has default"),
        ('{"database": "default", "store": "memory://"}', "both 'database' and 'store'"),
    ],
)
def test_wrong_settings_are_reported_by_the_checks(setting: str, message: str, tmp_path: Path) -> None:
    project = Project(f"sqlite:///{tmp_path}/shop.sqlite3", tmp_path)
    done = project.manage("check", check=False, SHOP_TIDEMILL=setting)
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("server", ["uvicorn", "gunicorn"])
def test_a_server_serves_the_dashboard_to_staff_and_stops_at_once(server: str, project: Project) -> None:
    project.manage("migrate")
    cookie = project.shell(
        "import json\n"
        "from django.contrib.auth.models import User\n"
        "from django.test import Client\n"
        "client = Client()\n"
        "client.force_login(User.objects.create_superuser('ann'))\n"
        "print(json.dumps(client.cookies['sessionid'].value))"
    )
    words = {
        "uvicorn": ["uvicorn", "--fd", "{fd}", "--lifespan", "off", "project.asgi:application"],
        "gunicorn": ["gunicorn", "--bind", "fd://{fd}", "--workers", "2", "project.wsgi:application"],
    }[server]
    with running(words, project.folder, **project.environment, PYTHONPATH=str(PROJECT)) as process:
        page = process.get("/jobs/", cookie=f"sessionid={cookie}")
        assert (page.status, b"Overview" in page.read()) == (200, True)
        assert process.get("/jobs/").status == 302
        if server == "uvicorn":
            process.stream("/jobs/live", cookie=f"sessionid={cookie}")
        else:
            assert process.get("/jobs/live", cookie=f"sessionid={cookie}").status == 204
        seconds = process.stop()
        log = process.log()
    print(f"Django under {server}: SIGTERM to exit {seconds:.2f} s")
    assert seconds < limit(), log
