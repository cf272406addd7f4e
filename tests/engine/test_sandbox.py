"""Hostile jobs in a sandbox: they reach nothing, and the worker continues."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.isolated_kit import Lane, is_alive, open_lane, until
from tests.engine.sandbox_app import FORGED, SANDBOX, app
from tests.engine.worker_kit import WorkerProcess
from tests.grounds import new_file

from tidemill import Process, Sandbox
from tidemill.domain.outcome import Cancelled, Crashed, Released, TimedOut
from tidemill.domain.states import ENDED
from tidemill.engine.confinement import protection
from tidemill.engine.confinement.file_tree import Tree
from tidemill.engine.confinement.sandbox import Rules
from tidemill.engine.deathwatch import descendants
from tidemill.engine.executors.kinds import PROCESS, kinds_of
from tidemill.engine.worker_settings import WorkerSettings
from tidemill.errors import BadSettings
from tidemill.ids import new_id
from tidemill.tasks.confinement import ALWAYS_KEPT, Confinement
from tidemill.tasks.registry import Registry
from tidemill.tasks.secret_values import KEYS, new_key, open_result, seal_arguments

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.engine.sandbox_app:app"
CANARY = "hunter2-canary"

needs_sandbox = pytest.mark.skipif(
    protection.sandbox_problem() is not None, reason=f"no sandbox here: {protection.sandbox_problem()}"
)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces of Linux"),
    needs_sandbox,
]


@pytest.fixture
def lane() -> Iterator[Lane]:
    with pytest.MonkeyPatch.context() as patch, open_lane(1, APP) as lane:
        patch.setenv("DATABASE_PASSWORD", CANARY)
        patch.setenv("TIDEMILL_STORE", f"postgresql://ada:{CANARY}@db.invalid/jobs")
        patch.setenv(KEYS, new_key("k1"))
        patch.setenv("ALLOWED", "yes")
        yield lane


def confinement(task: str) -> Confinement | None:
    return app.registry.get(task).options.confinement


def result(lane: Lane, task: str, **given: Any) -> Any:
    return lane.result(task, confinement=confinement(task), **given)


@pytest.fixture
def found(lane: Lane, tmp_path: Path) -> dict[str, Any]:
    """The report of a hostile job."""
    secret = tmp_path / "settings.toml"
    secret.write_text(CANARY)
    places = [str(secret), str(ROOT / "pyproject.toml"), "/etc/shadow", "/etc/hostname", "/proc/1/environ"]
    seen: dict[str, Any] = result(lane, "look", paths=places)
    return seen


def test_a_hostile_job_finds_no_credentials_and_no_files(found: dict[str, Any]) -> None:
    assert CANARY not in json.dumps(found["environment"])
    assert set(found["environment"]) <= {*ALWAYS_KEPT, "HOME", "TMPDIR"}
    # Other processes, and the environment of the parent
    assert found["processes"] == [1, found["pid"]]
    assert CANARY not in found["proc"]
    # Files of the machine and of the project
    assert set(found["files"].values()) <= {"ENOENT", "EACCES"}
    assert set(found["write"].values()) <= {"ENOENT", "EACCES", "EROFS"}
    assert found["folder"] == "/tmp"
    assert not {"home", "var", "srv", "opt"} & set(found["root"])
    # Sockets of the worker
    assert sum(link.startswith("socket:") for link in found["descriptors"]) == 1
    # A worker of root runs it as nobody.
    assert found["uid"] == (os.getuid() or 65534)


def test_a_hostile_job_reaches_no_network(lane: Lane) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        tried = result(lane, "connect", port=server.getsockname()[1])
    assert set(tried.values()) == {"EAFNOSUPPORT"}


def test_a_hostile_job_kills_no_other_process(lane: Lane) -> None:
    tried = result(lane, "kill_others")
    # The first process of a namespace ignores signals from the inside.
    assert tried == {"parent": "None", "others": "[]", "trace": "EPERM"}
    assert result(lane, "add", one=1, other=2) == 3


def test_the_kernel_gives_a_hostile_job_no_more_rights(lane: Lane) -> None:
    tried = result(lane, "escape")
    assert tried.pop("sysctl") in ("EROFS", "EACCES")
    assert tried.pop("limit") in ("ValueError", "EPERM")
    assert tried.pop("setuid") in ("EPERM", "EINVAL")
    assert set(tried.values()) == {"EPERM"}


def test_a_fork_bomb_ends_and_the_next_job_runs(lane: Lane) -> None:
    assert result(lane, "forks") <= SANDBOX.processes
    ended = lane.run("fork_bomb", confinement=SANDBOX, timeout=2)
    assert isinstance(ended.outcome, TimedOut | Crashed)
    assert result(lane, "add", one=1, other=2) == 3


def test_a_memory_bomb_fails_and_the_next_job_runs(lane: Lane) -> None:
    error = lane.run("memory_bomb", confinement=SANDBOX).error
    assert error is not None
    assert error.type == "MemoryError"
    assert result(lane, "add", one=1, other=2) == 3


def test_the_memory_of_all_processes_of_a_job_is_limited_together(lane: Lane) -> None:
    ended = lane.run("memory_bombs", confinement=confinement("memory_bombs"))
    assert isinstance(ended.outcome, Crashed)
    assert "more memory than allowed" in ended.outcome.reason


def test_a_job_that_uses_up_its_processor_time_is_killed(lane: Lane) -> None:
    ended = lane.run("spins", confinement=confinement("spins"))
    assert isinstance(ended.outcome, Crashed)
    assert "used up its processor time" in ended.outcome.reason


def test_timeout_and_cancel_end_a_sandboxed_job_with_all_its_processes(lane: Lane) -> None:
    assert isinstance(lane.run("sleeps", confinement=SANDBOX, timeout=0.2).outcome, TimedOut)
    job = lane.begin("sleeps", confinement=SANDBOX)
    assert lane.cancel(job.id, "enough")
    assert job.end().outcome == Cancelled("enough")


def test_forged_messages_to_the_runner_end_only_the_job(lane: Lane) -> None:
    ends = {name: lane.run("forges", confinement=SANDBOX, timeout=3, message=name).outcome for name in FORGED}
    assert all(isinstance(outcome, Crashed | TimedOut) for outcome in ends.values()), ends
    assert isinstance(ends["rubbish"], Crashed)
    assert isinstance(ends["a giant"], Crashed)
    # The runner waits for the other half, or drops the message; the job ends at its timeout.
    assert isinstance(ends["half a message"], TimedOut)
    assert isinstance(ends["another run"], TimedOut)
    assert result(lane, "add", one=1, other=2) == 3


def test_a_process_that_leaves_its_parent_ends_with_the_job(lane: Lane) -> None:
    before = descendants(os.getpid())
    job = lane.begin("outlives", confinement=SANDBOX)
    job.end()
    # The next child has an outer process, a first process and the one for the job.
    until(lambda: len([pid for pid in descendants(os.getpid()) - before if is_alive(pid)]) <= 3)


def test_the_private_directory_has_a_limit_and_starts_empty(lane: Lane) -> None:
    assert result(lane, "writes", size=1_000) == "1000"
    assert result(lane, "writes", size=100_000_000) in ("EFBIG", "ENOSPC")


def test_a_sandboxed_job_can_run_programs(lane: Lane) -> None:
    assert result(lane, "runs_a_program") == "42"


def test_the_output_of_a_sandboxed_job_has_no_control_characters(
    lane: Lane, capfd: pytest.CaptureFixture[str]
) -> None:
    lane.run("prints", confinement=SANDBOX)
    text = ""

    def has_arrived() -> bool:
        nonlocal text
        text += capfd.readouterr().err
        return "red" in text

    until(has_arrived)
    assert r"\x1b]0;title\x07\x1b[31mred" in text
    assert "\x1b" not in text


def test_a_worker_goes_on_after_every_hostile_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_file(tmp_path)
    monkeypatch.setenv("SANDBOX_APP_STORE", url)
    monkeypatch.delitem(sys.modules, "tests.engine.sandbox_app")
    with importlib.import_module("tests.engine.sandbox_app").app as shop:
        once = {"retry": None, "timeout": "3s"}
        environment = {**os.environ, "DATABASE_PASSWORD": CANARY}
        words = [sys.executable, "-m", "tidemill", "worker", APP, "-p", "1", "--children", "2"]
        worker = WorkerProcess(words, tmp_path / "worker", environment).ready()
        try:
            runners = worker.runners()
            hostile = {
                name: shop.bound_task(name).using(**once).enqueue(**given) for name, given in HOSTILE.items()
            }
            until(lambda: all(job.refresh().row.state in ENDED for job in hostile.values()))
            assert shop.bound_task("add").enqueue(one=1, other=2).result("120s") == 3
            assert worker.runners() == runners
            assert worker.process.poll() is None
        finally:
            worker.signal(signal.SIGTERM)
            assert worker.exit_code() == 0
        states = {name: job.refresh().status for name, job in hostile.items()}
    bombs = ("fork_bomb", "memory_bomb", "memory_bombs", "spins")
    assert all(states[name] in ("failed", "timed_out", "dead_lettered") for name in bombs), states
    for name in ("look", "connect", "kill_others", "escape"):
        assert states[name] == "completed", states
        assert CANARY not in str(hostile[name].result())


HOSTILE: dict[str, dict[str, Any]] = {
    "look": {"paths": ["/etc/shadow", str(ROOT / "pyproject.toml")]},
    "connect": {"port": 9},
    "kill_others": {},
    "escape": {},
    "fork_bomb": {},
    "memory_bomb": {},
    "memory_bombs": {},
    "spins": {},
}


def test_a_sandboxed_job_cannot_use_the_store(lane: Lane) -> None:
    error = lane.run("enqueues", confinement=SANDBOX).error
    assert error is not None
    assert "kept away from the store" in error.message


def test_the_runner_opens_and_seals_the_secrets_of_a_sandboxed_job(lane: Lane) -> None:
    job = new_id()
    sealed = json.loads(seal_arguments('{"pin": "4711"}', ["pin"], job))
    ended = lane.begin("reveals", id=job, confinement=SANDBOX, **sealed).end()
    assert ended.result is not None
    assert "4711" not in ended.result
    assert json.loads(open_result(ended.result, job)) == "4711!False"


def test_a_sandboxed_job_cannot_open_the_secret_of_another_job(lane: Lane) -> None:
    sealed = json.loads(seal_arguments('{"pin": "4711"}', ["pin"], new_id()))
    ended = lane.begin("reveals", confinement=SANDBOX, **sealed).end()
    assert ended.result is None


def test_listed_files_variables_and_writable_places_are_there(lane: Lane, tmp_path: Path) -> None:
    open_place, closed = tmp_path / "in", tmp_path / "out"
    for folder in (open_place, closed):
        folder.mkdir()
        folder.chmod(0o777)
        (folder / "a.txt").write_text("content")
        (folder / "a.txt").chmod(0o666)
    given = Sandbox(files=[str(open_place)], writable=[str(closed)], env=["ALLOWED"])
    seen = lane.result("look", confinement=given, paths=[str(open_place / "a.txt"), str(closed / "a.txt")])
    assert list(seen["files"].values()) == ["content", "content"]
    assert list(seen["write"].values()) == ["EROFS", "1"]
    assert seen["environment"]["ALLOWED"] == "yes"
    assert (closed / "a.txt").read_text() == "x"


def test_a_new_process_runs_each_sandboxed_job(lane: Lane) -> None:
    result(lane, "writes", size=10)
    assert "large" not in result(lane, "look", paths=["/tmp/large"])["files"]["/tmp/large"]


def test_no_directory_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with open_lane(1, APP) as lane:
        assert result(lane, "add", one=1, other=2) == 3
        assert isinstance(lane.run("sleeps", confinement=SANDBOX, timeout=0.2).outcome, TimedOut)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_runner_takes_its_sandboxes_with_it(tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    tmp_path.chmod(0o777)
    program = (
        "import sys, threading\n"
        "from tests.engine.isolated_kit import open_lane\n"
        "from tidemill import Sandbox\n"
        "with open_lane(1, 'tests.engine.sandbox_app:app') as lane:\n"
        "    lane.begin('sleeps', confinement=Sandbox(writable=[sys.argv[1]]), sign=sys.argv[2])\n"
        "    threading.Event().wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(sign)], cwd=ROOT) as runner:
        try:
            until(sign.exists)
            family = descendants(runner.pid)
        finally:
            runner.kill()
        assert len(family) >= 3
    until(lambda: not any(is_alive(pid) for pid in family))


_AS_NOBODY = """
import json, os
from tests.engine.isolated_kit import open_lane
from tests.engine.sandbox_app import SANDBOX
found = {"user": os.getuid()}
with open_lane(1, "tests.engine.sandbox_app:app") as lane:
    for task, args in (("look", {"paths": ["/etc/hostname"]}), ("connect", {"port": 9}), ("kill_others", {}), ("escape", {})):
        found[task] = lane.result(task, confinement=SANDBOX, **args)
    found["forks"] = lane.result("forks", confinement=SANDBOX)
    found["memory"] = lane.run("memory_bomb", confinement=SANDBOX).error.type
print(json.dumps(found))
"""


def _public_python() -> str | None:
    """An interpreter of this version that every user may run."""
    for name in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        command = [name, "-c", "import sys; print(sys.version_info[:2])"]
        try:
            done = subprocess.run(
                command, user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=False
            )
        except OSError:
            continue
        if done.stdout.strip() == str(sys.version_info[:2]):
            return name
    return None


@pytest.mark.skipif(os.getuid() != 0, reason="the other tests show it")
def test_a_worker_of_a_normal_user_has_the_same_sandbox() -> None:
    python = _public_python()
    if python is None or not ROOT.stat().st_mode & 0o005:
        pytest.skip("no interpreter or checkout that a normal user can read")
    path = [str(ROOT), str(ROOT / "src"), sysconfig.get_path("purelib")]
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ":".join(path),
        "PASSWORD": CANARY,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [python, "-c", _AS_NOBODY],
        user=65534, group=65534, extra_groups=[], env=env, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["user"] == found["look"]["uid"] == 65534
    assert found["look"]["files"] == {"/etc/hostname": "ENOENT"}
    assert CANARY not in json.dumps(found["look"]["environment"]) + found["look"]["proc"]
    assert set(found["connect"].values()) == {"EAFNOSUPPORT"}
    assert found["kill_others"]["others"] == "[]"
    assert set(found["escape"].values()) <= {"EPERM", "EINVAL", "EROFS", "EACCES", "ValueError"}
    assert found["forks"] <= SANDBOX.processes
    assert found["memory"] == "MemoryError"


# Declarations and refusals -----------------------------------------------------------------------------------------------


def test_a_worker_leaves_sandboxed_tasks_alone_where_a_protection_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(protection, "sandbox_problem", lambda: "unshare: Operation not permitted")
    tasks = Registry()
    for name in ("add", "spins"):
        tasks.add(app.registry.get(name))
    kinds = kinds_of(tasks, WorkerSettings(), processes=True)
    assert kinds[PROCESS].tasks == ()
    assert "task add needs a sandbox and is not claimed here: unshare" in caplog.text


_WITHOUT_NAMESPACES = """
import logging
from tests.engine.sandbox_app import app
from tidemill.engine.executors.kinds import PROCESS, kinds_of
from tidemill.engine.worker_settings import WorkerSettings
from tidemill.tasks.registry import Registry
logging.basicConfig()
tasks = Registry()
tasks.add(app.registry.get("add"))
assert kinds_of(tasks, WorkerSettings(), processes=True)[PROCESS].tasks == ()
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_system_without_user_namespaces_is_named_with_what_to_change() -> None:
    # A user namespace that allows no further ones stands for such a system.
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    command = ["unshare", "-Ur", "sh", "-c", script, "sh", sys.executable, "-c", _WITHOUT_NAMESPACES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (
        "task add needs a sandbox and is not claimed here: the system gives this user no namespaces"
        in done.stderr
    )
    assert "allow unprivileged user namespaces (sysctl" in done.stderr


def test_a_strict_sandbox_never_runs_without_its_protection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.engine.confinement.launch.missing_protection", lambda _given: "no")
    with open_lane(1, APP) as lane:
        outcome = lane.run("add", confinement=SANDBOX, one=1, other=2).outcome
    assert isinstance(outcome, Released)
    assert "sandboxed jobs cannot run here: no" in (outcome.reason or "")


def test_a_sandbox_that_is_not_strict_runs_with_the_limits_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidemill.engine.confinement.launch.missing_protection", lambda _given: "no")
    monkeypatch.setenv("DATABASE_PASSWORD", CANARY)
    with open_lane(1, APP) as lane:
        seen = lane.result("look", confinement=Sandbox(strict=False), paths=[], processes=False)
    assert CANARY not in json.dumps(seen["environment"])
    assert seen["folder"] != str(Path.cwd())


def test_a_child_process_with_limits_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", CANARY)
    given = Process(memory="256M", cpu="2s", env=["LANG"], own_folder=True)
    with open_lane(1, APP) as lane:
        seen = lane.result("look", confinement=given, paths=[], processes=False)
        error = lane.run("memory_bomb", confinement=given).error
        spun = lane.run("spins", confinement=given).outcome
    assert CANARY not in json.dumps(seen["environment"])
    assert seen["folder"] != str(Path.cwd())
    assert not Path(seen["folder"]).exists()
    assert error is not None
    assert error.type == "MemoryError"
    assert isinstance(spun, Crashed)
    assert "processor time" in spun.reason


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"memory": "1M"}, "64M or more"),
        ({"memory": "much"}, "512M"),
        ({"cpu": 0.1}, "one second"),
        ({"files": ["relative"]}, "absolute"),
        ({"files": "text"}, "a list"),
        ({"env": ["A=B"]}, "names of environment variables"),
        ({"processes": 1}, "4 to 10000"),
    ],
)
def test_a_wrong_sandbox_is_refused_at_declaration(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadSettings, match=problem):
        Sandbox(**settings)


def test_the_rules_of_a_sandbox_survive_the_way_to_the_child() -> None:
    rules = Rules("/root", Tree(("/a",), ("/b",)), 1, None, 2, 3, network=True)
    assert Rules.read(rules.text()) == rules
