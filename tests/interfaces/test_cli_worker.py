"""``tidemill worker`` as a real process: output, health endpoint and exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.engine.worker_kit import APP, ROOT, WorkerProcess, World, a_world, own_address, stopper, until

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
        cwd=environment.pop("FOLDER", ROOT),
        env={**os.environ, "WORKER_APP_STORE": "memory://", **environment},
        check=False,
    )


def test_the_started_line_is_json(world: World) -> None:
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


def test_the_password_is_never_printed_or_passed_as_an_argument(
    fresh_postgres_url: str, tmp_path: Path
) -> None:
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


def test_without_json_the_worker_prints_a_table(world: World) -> None:
    worker = world.worker("--processes", "1")
    worker.end()
    words = [sys.executable, "-m", "tidemill", "worker", "--processes", "1"]
    given = {**os.environ, "WORKER_APP_STORE": world.url, "TIDEMILL_APP": APP}
    with subprocess.Popen(words, cwd=ROOT, env=given, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            rows = [process.stdout.readline().split(None, 1) for _ in range(5)]
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
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


def test_in_a_pod_probes_are_answered_on_the_address_of_the_pod(world: World) -> None:
    pod = world.worker("--processes", "1", "--health-port", "0", KUBERNETES_SERVICE_HOST="10.96.0.1").ready()
    assert probed(pod) == 200


def test_elsewhere_probes_are_answered_on_the_configured_address(world: World) -> None:
    outside = {"KUBERNETES_SERVICE_HOST": ""}
    near = world.worker("--processes", "1", "--health-port", "0", **outside).ready()
    with pytest.raises(ConnectionRefusedError):
        probed(near)
    far = world.worker(
        "--processes", "1", "--health-port", "0", "--health-host", own_address(), **outside
    ).ready()
    assert probed(far) == 200


def probed(worker: WorkerProcess) -> int:
    """The status of a probe sent to the pod's own address instead of loopback, like a kubelet's."""
    port = urlsplit(json.loads(worker.out.splitlines()[0])["started"]["health"]).port
    assert port is not None
    line = HTTPConnection(own_address(), port, timeout=5)
    with contextlib.closing(line):
        line.request("GET", "/livez")
        return line.getresponse().status


def test_the_worker_notifies_systemd(world: World) -> None:
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
        ([APP, "--max-memory", "much"], 2, "is not an amount of memory"),
        ([APP, "--threads", "0", "--concurrency", "0", "--children", "0"], 2, "a worker without any slot"),
        ([APP, "--queues", ","], 2, "a worker without a queue"),
        ([APP, "--coordination", "anarchy"], 2, "anarchy"),
        ([], 2, "Missing argument 'APP'"),
    ],
)
def test_a_startup_error_is_one_message_and_an_exit_code(words: list[str], code: int, sentence: str) -> None:
    said = tidemill("worker", *words, "--processes", "1", TIDEMILL_APP="")
    assert said.returncode == code, said.stderr
    assert sentence in said.stderr
    if code == 1:
        assert len(said.stderr.splitlines()) == 1


def test_an_app_that_cannot_be_imported_is_one_sentence_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "switch").touch()
    broken = {"WORKER_APP_BROKEN": str(tmp_path / "switch")}
    said = tidemill("worker", APP, "--processes", "2", **broken)
    assert said.returncode == 1
    assert said.stderr == (
        f"tidemill: cannot start a worker for {APP}: module 'tests.engine.worker_app' cannot be imported: RuntimeError:"
        " this module is broken on purpose (tests/engine/worker_app.py, line 18)\n"
    )
    said = tidemill("worker", APP, "--processes", "1", "--log-level", "debug", **broken)
    assert "Traceback (most recent call last)" in said.stderr
    assert "importlib" not in said.stderr


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            "import json\n\njson.loads('{')\n",
            "Expecting property name enclosed in double quotes: line 1 column 2 (char 1) (odd.py, line 3)",
        ),
        ("import absent_package\n", "it needs 'absent_package', which is not installed (odd.py, line 1)"),
        ("x = 1\ndef f(:\n", "SyntaxError: invalid syntax (odd.py, line 2)"),
        (
            "def settings():\n    raise ValueError('two\\nlines')\n\nsettings()\n",
            "ValueError: two lines (odd.py, line 2)",
        ),
    ],
)
@pytest.mark.parametrize("command", ["worker", "up"])
def test_an_error_in_the_code_of_the_app_names_the_file_and_the_line(
    tmp_path: Path, command: str, source: str, sentence: str
) -> None:
    (tmp_path / "odd.py").write_text(source)
    port = ["--port", "0"] if command == "up" else []
    said = tidemill(command, "odd:app", "--processes", "1", *port, FOLDER=str(tmp_path), PYTHONPATH=str(ROOT))
    assert said.returncode == 1
    (line,) = said.stderr.splitlines()
    assert line.endswith(sentence), line


@pytest.mark.parametrize("name", ["tidemill.cli.worker", "tidemill.engine.supervisor.supervisor"])
def test_a_worker_that_is_stopped_while_it_starts_exits_with_0(tmp_path: Path, name: str) -> None:
    said = tidemill("worker", APP, "--processes", "1", **stopper(tmp_path, name, "worker"))
    assert (tmp_path / "stopped").exists()
    assert (said.returncode, said.stderr) == (0, "")


def test_a_signal_to_all_processes_does_not_end_a_runner_that_starts(world: World, tmp_path: Path) -> None:
    stopping = stopper(tmp_path, "tidemill.engine.app_lookup", "tidemill.engine.runner.main")
    worker = world.worker("--processes", "1", **stopping).ready()
    assert (tmp_path / "stopped").exists()
    assert "killed" not in worker.log
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 0


_LATE_STOP = """
import os, signal, sys
from pathlib import Path

class LateStop:
    def __del__(self, kill=os.kill, pid=os.getpid(), sign=signal.SIGTERM, flag=Path({flag!r})):
        flag.touch()
        kill(pid, sign)

if "worker" in sys.orig_argv:
    late_stop = LateStop()  # the interpreter deletes it with the modules, after everything else
"""


def test_a_signal_to_a_worker_that_exits_does_not_change_its_exit_code(world: World, tmp_path: Path) -> None:
    place = tmp_path / "late"
    place.mkdir()
    (place / "sitecustomize.py").write_text(_LATE_STOP.format(flag=str(tmp_path / "stopped")))
    worker = world.worker("--processes", "1", PYTHONPATH=f"{place}:{ROOT}").ready()
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 0
    assert (tmp_path / "stopped").exists()


def test_an_app_that_kills_its_process_is_abandoned_after_a_few_attempts(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    said = tidemill("worker", "deadly:app", "--processes", "1", PYTHONPATH=f"{ROOT}:{tmp_path}")
    assert said.returncode == 1
    assert "was killed by SIGKILL" in said.stderr


def test_missing_tables_name_the_migrate_command(fresh_postgres_url: str) -> None:
    said = tidemill("worker", APP, "--processes", "1", WORKER_APP_STORE=fresh_postgres_url)
    assert said.returncode == 1
    assert "tidemill db migrate" in said.stderr


def test_a_broken_task_is_skipped_and_rejected_with_strict(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(
        "from tidemill import App\n"
        f"app = App('sqlite:///{tmp_path}/jobs.db')\n"
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Odd:\n    part: 'NeverDefined'\n"
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


def test_ctrl_c_explains_how_to_stop_at_once(world: World) -> None:
    worker = world.worker("--processes", "1").ready()
    worker.signal(signal.SIGINT)
    assert worker.exit_code() == 0
    assert "SIGINT: stopping, running jobs have" in worker.log
    assert "press Ctrl-C again to stop at once" in worker.log
