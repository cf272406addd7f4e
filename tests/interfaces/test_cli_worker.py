"""``tidemill worker``, as a person and as a program use it: a real process, its output and its exit code."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.worker_kit import APP, ROOT, World, a_world, until

from tidemill.stores.open import open_store

pytestmark = pytest.mark.long


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as world:
        yield world


def tidemill(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidemill", *words],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "WORKER_APP_STORE": "memory://", **environment},
        check=False,
    )


def test_what_was_started_is_one_line_for_programs(world: World) -> None:
    worker = world.worker("--processes", "1", "--queues", "default,mail", "--threads", "3").ready()
    started = json.loads(worker.out.splitlines()[0])["started"]
    assert started["app"] == APP
    assert started["store"] == world.url
    assert started["queues"] == ["default", "mail"]
    assert started["slots"] == 105
    assert started["pid"] == worker.pid
    assert "add" in started["tasks"]
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 0


def test_the_password_is_shown_nowhere(fresh_postgres_url: str, tmp_path: Path) -> None:
    secret = fresh_postgres_url.replace("@", ":hunter2@", 1)
    if ":hunter2@" not in secret or secret.count("@") != 1:
        pytest.skip("the test server's address has a password of its own")
    store = open_store(fresh_postgres_url)
    store.migrate()
    store.close()
    with a_world(secret, tmp_path) as world:
        worker = world.worker("--processes", "1", "--log-level", "debug").ready()
        assert world.tasks.add.enqueue(left=1, right=1).result(timeout=30) == 2
        for pid in (worker.pid, *worker.runners()):
            assert "hunter2" not in Path(f"/proc/{pid}/cmdline").read_text()
        worker.signal(signal.SIGTERM)
        assert worker.exit_code() == 0
        assert "hunter2" not in worker.out + worker.log


def test_people_get_a_table_and_lines(world: World) -> None:
    worker = world.worker("--processes", "1")
    worker.end()
    words = [sys.executable, "-m", "tidemill", "worker", "--processes", "1"]
    given = {**os.environ, "WORKER_APP_STORE": world.url, "TIDEMILL_APP": APP}
    with subprocess.Popen(words, cwd=ROOT, env=given, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        rows = [process.stdout.readline().split(None, 1) for _ in range(5)]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert [row[0] for row in rows] == ["app", "store", "tasks", "queues", "slots"]
    assert rows[4][1].strip() == "1 × 112"


def test_with_json_logs_every_line_is_an_object(world: World) -> None:
    worker = world.worker("--processes", "1", "--log-json")
    until(lambda: "is ready" in worker.log, "it is ready")
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 0
    lines = [json.loads(line) for line in (worker.out + worker.log).splitlines()]
    assert {"info"} == {line["level"] for line in lines if "level" in line}


def test_the_health_endpoint_follows_the_worker(world: World) -> None:
    switch = world.folder / "broken"
    worker = world.worker("--processes", "1", "--health-port", "0", WORKER_APP_BROKEN=str(switch)).ready()
    assert worker.ask("/livez") == (200, {"alive": True})
    status, facts = until(lambda: (told := worker.ask("/readyz"))[0] == 200 and told, "it is ready")
    assert status == 200
    assert [runner["pid"] for runner in facts["runners"]] == worker.runners()
    switch.touch()
    os.kill(worker.runners()[0], signal.SIGKILL)
    status, facts = until(lambda: (told := worker.ask("/readyz"))[0] == 503 and told, "it is not ready")
    assert "no runner is ready" in facts["reasons"][0]
    assert worker.ask("/livez")[0] == 200
    switch.unlink()
    until(lambda: worker.ask("/readyz")[0] == 200, "it is ready again")


def test_the_service_manager_is_told(world: World) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
    ):
        manager.bind(f"{folder}/notify")
        manager.settimeout(30)
        worker = world.worker("--processes", "1", NOTIFY_SOCKET=f"{folder}/notify", WATCHDOG_USEC="200000")
        said: list[str] = []
        while "READY=1" not in said:
            said.append(manager.recv(1000).decode())
        assert "WATCHDOG=1" in said
        runner = Path(f"/proc/{worker.runners()[0]}/environ").read_text()
        assert "NOTIFY_SOCKET" not in runner
        worker.signal(signal.SIGTERM)
        while "STOPPING=1" not in said:
            said.append(manager.recv(1000).decode())
        assert worker.exit_code() == 0
    assert "STATUS=1 of 1 runners ready" in said


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["tests.engine.nowhere:app"], 1, "there is no module 'tests.engine.nowhere'"),
        (["tests.engine.worker_app:nothing"], 1, "has no 'nothing'"),
        (["tests.engine.worker_app:in_memory"], 1, "needs an address that other processes can open"),
        ([APP, "--max-memory", "much"], 2, "is no amount of memory"),
        ([APP, "--threads", "0", "--concurrency", "0", "--children", "0"], 2, "a worker without any slot"),
        ([APP, "--queues", ","], 2, "a worker without a queue"),
        ([APP, "--coordination", "anarchy"], 2, "anarchy"),
        ([], 2, "Missing argument 'APP'"),
    ],
)
def test_what_goes_wrong_at_the_start_is_said_and_an_exit_code(
    words: list[str], code: int, sentence: str
) -> None:
    said = tidemill("worker", *words, "--processes", "1", TIDEMILL_APP="")
    assert said.returncode == code, said.stderr
    assert sentence in said.stderr


def test_an_app_that_cannot_be_imported_is_shown_with_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "switch").touch()
    said = tidemill("worker", APP, "--processes", "2", WORKER_APP_BROKEN=str(tmp_path / "switch"))
    assert said.returncode == 1
    assert "RuntimeError: this module is broken on purpose" in said.stderr
    assert "worker_app.py" in said.stderr


def test_an_app_that_kills_its_process_is_given_up_after_a_few_tries(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    said = tidemill("worker", "deadly:app", "--processes", "1", PYTHONPATH=f"{ROOT}:{tmp_path}")
    assert said.returncode == 1
    assert "was killed by SIGKILL" in said.stderr


def test_tables_that_are_missing_are_named_with_the_command_that_makes_them(fresh_postgres_url: str) -> None:
    said = tidemill("worker", APP, "--processes", "1", WORKER_APP_STORE=fresh_postgres_url)
    assert said.returncode == 1
    assert "tidemill db migrate" in said.stderr


def test_a_task_that_cannot_be_run_is_left_alone_and_strictly_refused(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(
        "from tidemill import App\n"
        f"app = App('sqlite:///{tmp_path}/jobs.db')\n"
        "class Odd: pass\n"
        "@app.task\ndef good(number: int) -> int: return number\n"
        "@app.task\ndef bad(thing: Odd) -> None: pass\n"
    )
    place = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    said = tidemill("worker", "half:app", "--processes", "1", "--strict", **place)
    assert said.returncode == 1
    assert "task bad" in said.stderr
    with a_world(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as world:
        worker = world.worker("--processes", "1", "--health-port", "0", app="half:app", **place).ready()
        assert list(worker.ask("/readyz")[1]["broken_tasks"]) == ["bad"]
        assert world.app.store.workers()[0].tasks == ("good",)
