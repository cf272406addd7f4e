"""``tidemill init``: new projects run, and pass their own tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.test_commands import parse
from tests.engine.worker_kit import WorkerProcess, until
from tests.interfaces.cli_kit import call

from tidemill import App
from tidemill.domain.access import Role

PATIENCE = 120


def python(folder: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run Python in a new project, as its user would."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "TIDEMILL"))
    }
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def made(folder: Path, *options: str) -> Path:
    done = call("init", str(folder), "--json", *options)
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["name"] == folder.name
    return folder


def test_the_readme_of_a_site_names_the_command_that_makes_the_key_of_its_dashboard(tmp_path: Path) -> None:
    folder = made(tmp_path / "bakery", "--fastapi")
    (command,) = re.findall(
        r"^tidemill (keys create .*?)\s+#", (folder / "README.md").read_text("utf-8"), re.MULTILINE
    )
    printed = python(folder, "-m", "tidemill", *command.split()).stdout
    with App(f"sqlite:///{folder}/bakery.db") as app:
        identity = app.keys.identify(printed.splitlines()[0])
    assert identity is not None
    assert identity.role is Role.SUPER_ADMIN


@pytest.mark.parametrize(("option", "tests"), [((), 2), (("--fastapi",), 3)])
def test_a_new_project_passes_its_own_tests(tmp_path: Path, option: tuple[str, ...], tests: int) -> None:
    folder = made(tmp_path / "bakery", *option)
    done = python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert f"{tests} passed" in done.stdout
    readme = (folder / "README.md").read_text("utf-8")
    for command in re.findall(r"^(tidemill .*?)(?:\s+#.*)?$", readme, re.MULTILINE):
        parse(command)
    with App(f"sqlite:///{folder}/bakery.db") as app:
        assert app.jobs.list().items == []  # tests leave the jobs of the project alone


def test_a_new_project_runs_its_jobs(tmp_path: Path) -> None:
    folder = made(tmp_path / "bakery")
    words = [
        sys.executable,
        "-m",
        "tidemill",
        "worker",
        "bakery.jobs:app",
        "--processes",
        "1",
        "--children",
        "0",
    ]
    environment = {**os.environ, "PYTHONPATH": str(folder), "TIDEMILL_STORE": f"sqlite:///{folder}/bakery.db"}
    worker = WorkerProcess(words, tmp_path / "worker", environment)
    try:
        worker.ready()
        assert python(folder, "-m", "bakery", "grace").stdout.splitlines()[-1] == "welcome, grace"
    finally:
        worker.end()


def test_a_new_django_project_migrates_tests_and_ships_an_order(tmp_path: Path) -> None:
    folder = made(tmp_path / "bakery", "--django")
    python(folder, "manage.py", "migrate")
    python(folder, "manage.py", "makemigrations", "--check", "--dry-run")
    assert "OK" in python(folder, "manage.py", "test").stderr
    # Django's default zone is Chicago, and Django sets the zone of the process, so also that of the worker's log.
    zone = python(folder, "manage.py", "shell", "-v", "0", "-c", "import time; print(time.tzname[0])")
    assert zone.stdout.strip() == "UTC"
    place = "from django.test import Client; print(Client().post('/orders/ada', HTTP_HOST='localhost').status_code)"
    assert python(folder, "manage.py", "shell", "-v", "0", "-c", place).stdout.strip() == "202"
    shipped = "from orders.models import Order; print(Order.objects.filter(shipped=True).count())"
    words = [
        sys.executable,
        str(folder / "manage.py"),
        "tidemill",
        "worker",
        "--processes",
        "1",
        "--children",
        "0",
    ]
    worker = WorkerProcess(words, tmp_path / "worker", dict(os.environ))
    try:
        until(
            lambda: python(folder, "manage.py", "shell", "-v", "0", "-c", shipped).stdout.strip() == "1",
            "the order is shipped",
            PATIENCE,
        )
    finally:
        worker.end()


def test_nothing_is_written_if_a_file_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    done = call("init", str(tmp_path), "--name", "bakery")
    assert done.exit_code == 2
    assert "README.md exists already; nothing was written" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize("name", ["class", "two words", "tidemill", "7up"])
def test_a_name_that_python_cannot_import_is_refused(tmp_path: Path, name: str) -> None:
    done = call("init", str(tmp_path / "new"), "--name", name)
    assert done.exit_code == 2
    assert "give another one with --name" in done.output
    assert not (tmp_path / "new").exists()
