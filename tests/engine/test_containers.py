"""Jobs in containers: on a real runtime where one works, and on a stand-in that runs the command in a child process."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.container_kit import real_container, stand_in
from tests.engine.isolated_kit import is_alive, open_lane, until

from tidemill import App, Container
from tidemill.domain.outcome import Cancelled, Crashed, Succeeded, TimedOut
from tidemill.engine.confinement import containers
from tidemill.engine.deathwatch import descendants
from tidemill.engine.executors.kinds import PROCESS, kinds_of
from tidemill.engine.worker_settings import WorkerSettings
from tidemill.errors import BadSettings

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.engine.sandbox_app:app"
pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Container:
    found = real_container(tmp_path_factory.mktemp("runtime"))
    if found is None:
        pytest.skip("no container runtime works here")
    return found


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
