"""Jobs in containers: on a real runtime where one works, and on a stand-in that runs the command in a child process."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.container_kit import RealRuntime, real_runtime, stand_in
from tests.engine.isolated_kit import is_alive, open_lane, until
from tests.engine.kit import Notes
from tests.engine.worker_kit import WorkerProcess
from tests.grounds import new_file
from tests.servers.processes import ServiceMissing
from tests.services import go_without

from tidemill import App, Container
from tidemill.domain.outcome import Cancelled, Crashed, Succeeded, TimedOut
from tidemill.domain.states import ENDED
from tidemill.engine.confinement import containers
from tidemill.engine.deathwatch import descendants
from tidemill.engine.executors.kinds import PROCESS, kinds_of
from tidemill.engine.worker_settings import WorkerSettings
from tidemill.errors import BadSettings
from tidemill.ids import new_id
from tidemill.tasks.secret_values import KEYS, new_key, open_result, seal_arguments

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.engine.sandbox_app:app"
pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRuntime]:
    """A real podman. Where none can run containers, the table at the end of the run says why."""
    with contextlib.ExitStack() as around:
        try:
            made = around.enter_context(real_runtime(tmp_path_factory.mktemp("runtime")))
        except ServiceMissing as missing:
            if shutil.which("podman") is None:
                go_without("podman", missing)
            # Where containers cannot run, such as inside of one, no installation helps.
            pytest.skip(f"service missing: podman: {missing}")
        yield made


@pytest.fixture
def real(podman: RealRuntime) -> Container:
    return podman.container()


@pytest.fixture
def fake(tmp_path: Path) -> Container:
    containers._looks.cache_clear()
    return stand_in(tmp_path)


@pytest.fixture(params=["real", "fake"])
def container(request: pytest.FixtureRequest) -> Container:
    containers._looks.cache_clear()
    found: Container = request.getfixturevalue(request.param)
    return found


def test_a_job_runs_in_a_container_and_returns(container: Container) -> None:
    with open_lane(1, APP) as lane:
        ended = lane.run("add", confinement=container, one=1, other=2)
    assert ended.outcome == Succeeded("3")


def test_timeout_cancel_and_crash_end_the_container(container: Container) -> None:
    with open_lane(1, APP) as lane:
        assert isinstance(lane.run("sleeps", confinement=container, timeout=0.5).outcome, TimedOut)
        job = lane.begin("sleeps", confinement=container)
        lane.cancel(job.id, "enough")
        assert job.end().outcome == Cancelled("enough")
        crashed = lane.run("exits", confinement=container).outcome
        assert isinstance(crashed, Crashed)
        assert lane.result("add", confinement=container, one=1, other=2) == 3
    assert container.runtime is not None
    listed = containers._run(
        container.runtime, ["ps", "--all", f"--filter=label={containers.LABEL}", "--format=json"]
    )
    own = containers.runner_label(os.getpid())
    assert [name for name, label in containers._containers(listed.stdout) if label == own] == []


def test_progress_logs_checkpoints_and_results_leave_a_container(container: Container) -> None:
    notes = Notes()
    with open_lane(1, APP) as lane:
        ended = lane.begin("tells", confinement=container, outlet=notes, size=100_000).end()
    assert ended.result is not None
    assert json.loads(ended.result) == "None third " + "x" * 100_000
    assert [report.fraction for report in notes.reports] == [0.5]
    assert [line.message for line in notes.lines if line.message == "a line"] == ["a line"]
    assert notes.kept == {"place": "third"}


def test_the_runner_opens_and_seals_the_secrets_of_a_job_in_a_container(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS, new_key("k1"))
    job, other = new_id(), new_id()
    sealed = json.loads(seal_arguments('{"pin": "4711"}', ["pin"], job))
    with open_lane(1, APP) as lane:
        ended = lane.begin("reveals", id=job, confinement=container, **sealed).end()
        stolen = lane.begin("reveals", id=other, confinement=container, **sealed).end()
    assert ended.result is not None
    assert "4711" not in ended.result
    assert json.loads(open_result(ended.result, job)) == "4711!False"
    assert stolen.result is None


def test_a_container_that_ignores_signals_ends_with_its_timeout(
    podman: RealRuntime, real: Container, tmp_path: Path
) -> None:
    given = dataclasses.replace(real, writable=[str(tmp_path)])
    with open_lane(1, APP) as lane:
        job = lane.begin("ignores_the_end", confinement=given, timeout=3, sign=str(tmp_path / "sign"))
        assert isinstance(job.end().outcome, TimedOut)
        assert (tmp_path / "sign").exists()
    assert podman.running() == []


def test_a_job_in_a_container_has_the_limits_of_its_task(
    podman: RealRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not podman.has_limits:
        pytest.skip("service missing: podman: it has no control groups here, which limits need")
    given = podman.container(memory="192M", cpus=0.5, processes=40)
    monkeypatch.chdir(tmp_path)
    with open_lane(1, APP) as lane:
        limits = lane.result("control_groups", confinement=given)
        assert {limits["memory.max"], limits["memory/memory.limit_in_bytes"]} & {str(192 * 1024**2)}
        assert {limits["cpu.max"], limits["cpu/cpu.cfs_quota_us"]} & {"50000 100000", "50000"}
        assert {limits["pids.max"], limits["pids/pids.max"]} & {"40"}
        assert lane.result("forks", confinement=given) < 40
        bomb = lane.run("memory_bomb", confinement=given).outcome
        assert isinstance(bomb, Crashed)
        assert lane.result("add", confinement=given, one=1, other=2) == 3
    assert list(tmp_path.iterdir()) == []


def test_each_task_has_its_own_image(podman: RealRuntime) -> None:
    marks = {}
    with open_lane(1, APP) as lane:
        for name in ("first", "second"):
            given = podman.container(image=podman.add_image(name, {"/mark": name}))
            marks[name] = lane.result("look", confinement=given, paths=["/mark"])["files"]["/mark"]
    assert marks == {"first": "first", "second": "second"}


def test_a_worker_runs_jobs_in_containers_and_continues_after_each(
    podman: RealRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_file(tmp_path)
    given = podman.container(memory="192M" if podman.has_limits else None)
    monkeypatch.setenv("CONTAINER_APP", json.dumps({"store": url, **dataclasses.asdict(given)}))
    environment = {**os.environ, "DATABASE_PASSWORD": "hunter2-canary"}
    monkeypatch.delitem(sys.modules, "tests.engine.container_app", raising=False)
    with importlib.import_module("tests.engine.container_app").app as shop:
        words = [
            sys.executable,
            "-m",
            "tidemill",
            "worker",
            "tests.engine.container_app:app",
            "-p",
            "1",
            "--children",
            "2",
        ]
        worker = WorkerProcess(words, tmp_path / "worker", environment).ready()
        try:
            runners = worker.runners()
            jobs = {
                name: shop.bound_task(name).using(timeout="8s").enqueue()
                for name in ("variables", "crash", "hang", "again")
            }
            until(lambda: all(job.refresh().row.state in ENDED for job in jobs.values()), 240)
            assert "PATH" in shop.bound_task("variables").enqueue().result("120s")
            assert worker.runners() == runners
        finally:
            worker.signal(signal.SIGTERM)
            assert worker.exit_code() == 0
        states = {name: job.refresh().status for name, job in jobs.items()}
        assert states == {
            "variables": "completed", "crash": "dead_lettered", "hang": "timed_out", "again": "completed",
        }  # fmt: skip
        assert "hunter2-canary" not in str(jobs["variables"].result())
        assert url not in str(jobs["variables"].result())
        assert jobs["again"].result() == 2


def test_an_image_that_is_missing_is_named_and_its_tasks_are_not_claimed(
    real: Container, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("memory://")

    @app.task(isolation=dataclasses.replace(real, image="localhost/tidemill-no-such-image:1"))
    def task() -> None: ...

    assert kinds_of(app.registry, WorkerSettings(), processes=True)[PROCESS].tasks == ()
    assert "a container of the image localhost/tidemill-no-such-image:1 cannot run" in caplog.text
    app.close()


def test_a_container_sees_no_credentials_and_no_files(
    real: Container, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2-canary")
    monkeypatch.setenv("ALLOWED", "yes")
    secret = tmp_path / "secret"
    secret.write_text("hunter2-canary")
    given = dataclasses.replace(real, env=["ALLOWED"])
    with open_lane(1, APP) as lane:
        seen = lane.result("look", confinement=given, paths=[str(secret), "/etc/shadow"])
        tried = lane.result("connect", confinement=given, port=9)
    assert seen["environment"]["ALLOWED"] == "yes"
    assert "hunter2-canary" not in json.dumps(seen)
    assert "hunter2-canary" not in seen["proc"]
    assert tried["tcp"] in ("ENETUNREACH", "ECONNREFUSED")


def test_the_output_of_a_container_has_no_control_characters(
    fake: Container, capfd: pytest.CaptureFixture[str]
) -> None:
    with open_lane(1, APP) as lane:
        lane.run("prints", confinement=fake)
    assert r"\x1b[31mred" in capfd.readouterr().err


def test_containers_of_a_killed_runner_are_removed(fake: Container, tmp_path: Path) -> None:
    program = (
        "import sys, threading\n"
        "from tests.engine.isolated_kit import open_lane\n"
        "from tidemill import Container\n"
        "given = Container(image='shop:1', runtime=sys.argv[1], python=sys.executable)\n"
        "with open_lane(1, 'tests.engine.sandbox_app:app') as lane:\n"
        "    lane.begin('ignores_the_end', confinement=given, sign=sys.argv[2])\n"
        "    threading.Event().wait()\n"
    )
    sign = tmp_path / "sign"
    assert fake.runtime is not None
    with subprocess.Popen([sys.executable, "-c", program, fake.runtime, str(sign)], cwd=ROOT) as runner:
        try:
            until(sign.exists)
            # Before the kill: the stand-in deletes its row when the container ends, which may be at once.
            until(lambda: list(tmp_path.glob("tidemill-*.json")))
            (row,) = [json.loads(path.read_text()) for path in tmp_path.glob("tidemill-*.json")]
            family = descendants(runner.pid)
        finally:
            runner.kill()
    until(
        lambda: (
            containers.remove_leftovers(fake.runtime or "") == row["Names"]
            or not list(tmp_path.glob("*.json"))
        )
    )
    until(lambda: not is_alive(row["Pid"]))
    until(lambda: not any(is_alive(pid) for pid in family))


def test_real_containers_of_a_killed_runner_are_removed(
    podman: RealRuntime, real: Container, tmp_path: Path
) -> None:
    program = (
        "import json, sys, threading\n"
        "from tests.engine.isolated_kit import open_lane\n"
        "from tidemill import Container\n"
        "with open_lane(1, 'tests.engine.sandbox_app:app') as lane:\n"
        "    given = Container(**json.loads(sys.argv[1]))\n"
        "    lane.begin('ignores_the_end', confinement=given, sign=sys.argv[2])\n"
        "    threading.Event().wait()\n"
    )
    sign = tmp_path / "sign"
    given = json.dumps(dataclasses.asdict(dataclasses.replace(real, writable=[str(tmp_path)])))
    with subprocess.Popen([sys.executable, "-c", program, given, str(sign)], cwd=ROOT) as runner:
        try:
            until(sign.exists)
            label = containers.runner_label(runner.pid)
            family = descendants(runner.pid)
        finally:
            runner.kill()
    removed: list[str] = []

    def is_removed() -> bool:
        removed.extend(containers.remove_leftovers(podman.command))
        words = ["ps", "--all", f"--filter=label={containers.LABEL}={label}", "--quiet"]
        return not containers._run(podman.command, words).stdout.strip()

    until(is_removed)
    until(lambda: not any(is_alive(pid) for pid in family))


def test_containers_of_living_runners_and_of_other_machines_stay(fake: Container, tmp_path: Path) -> None:
    for name, label in (("mine", containers.runner_label(os.getpid())), ("far", "elsewhere/boot/1/2")):
        row = {"Names": [name], "Labels": {containers.LABEL: label}, "Pid": 0}
        (tmp_path / f"{name}.json").write_text(json.dumps(row))
    assert containers.remove_leftovers(fake.runtime or "") == []


def test_the_command_has_the_limits_of_the_task() -> None:
    given = Container(
        image="shop:1", memory="1G", cpus=1.5, processes=64, network="inner", files=["/a"], writable=["/b"],
        env=["MODE"], options=["--read-only"],
    )  # fmt: skip
    words = containers.run_command(given, "podman", "name", {"MODE": "x", "PATH": "/bin"})
    assert words[:2] == ["podman", "run"]
    assert words[-2:] == ["--read-only", "shop:1"]
    for word in (
        "--memory=1073741824", "--cpus=1.5", "--pids-limit=64", "--network=inner", "--volume=/a:/a:ro", "--volume=/b:/b",
        "--env=MODE=x", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--name=name",
    ):  # fmt: skip
        assert word in words
    assert "--network=none" in containers.run_command(Container(image="a"), "podman", "name", {})
    assert not [word for word in words if "PATH" in word]


def test_dockers_list_is_read_as_well() -> None:
    line = json.dumps({"Names": "one", "Labels": f"a=b,{containers.LABEL}=x/y/1/2"})
    assert containers._containers(line) == [("one", "x/y/1/2")]


def test_an_image_with_another_version_of_tidemill_is_refused(
    fake: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert containers.container_problem(fake) is None
    containers.container_problem.cache_clear()
    monkeypatch.setattr("tidemill.__version__", "99.1")
    problem = containers.container_problem(fake) or ""
    assert re.fullmatch(r"the image shop:1 has Tidemill [\d.]+, and this worker has 99\.1", problem)
    containers.container_problem.cache_clear()


def test_a_worker_without_a_runtime_leaves_the_tasks_alone(caplog: pytest.LogCaptureFixture) -> None:
    app = App("memory://")

    @app.task(isolation=Container(image="shop:1", runtime="no-such-runtime"))
    def task() -> None: ...

    kinds = kinds_of(app.registry, WorkerSettings(), processes=True)
    assert kinds[PROCESS].tasks == ()
    assert "no-such-runtime: this command is not installed" in caplog.text
    app.close()


@pytest.mark.parametrize("image", ["", "--privileged", "a b"])
def test_a_wrong_image_is_refused_at_declaration(image: str) -> None:
    with pytest.raises(BadSettings, match="image"):
        Container(image=image)
