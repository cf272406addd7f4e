"""Helpers for tests of worker processes: start, observe and signal a worker."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import pytest
from tests.servers.processes import child_pids

from tidemill.clock import SystemClock
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.engine.worker_app:app"
PATIENCE = 30.0  # an upper bound, never waited for in full

_SUPERVISED = """
import json, logging, sys
from tidemill.engine.worker_settings import read_settings
from tidemill.engine.supervisor.supervisor import Supervisor
logging.basicConfig(level="INFO", stream=sys.stderr)
app, processes, settings = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
sys.exit(Supervisor(app, read_settings(settings), processes=processes).run())
"""


def until(true: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait until the condition is true or the time is over, and return its value."""
    clock = SystemClock()
    ends = clock.monotonic() + seconds
    while not (found := true()):
        if clock.monotonic() > ends:
            pytest.fail(f"not within {seconds:g} s: {what}")
        threading.Event().wait(0.02)
    return found


def own_address() -> str:
    """An address of this machine other than 127.0.0.1, like that of a pod. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:  # this machine has no network
            return "127.0.0.2"
        found = str(probe.getsockname()[0])
    return found if not found.startswith("127.") else "127.0.0.2"


class World:
    """A store, its app in this process, a folder for notes, and the started workers."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.workers: list[WorkerProcess] = []
        self.tasks = _loaded(url)
        self.app = self.tasks.app

    def worker(self, *options: str, app: str = APP, **environment: str) -> WorkerProcess:
        """Start ``tidemill worker`` with these options."""
        words = [sys.executable, "-m", "tidemill", "worker", app, "--json", *options]
        return self._started(words, environment)

    def supervised(self, *, processes: int = 1, **settings: object) -> WorkerProcess:
        """Start a supervisor with settings that the command line does not offer."""
        words = [sys.executable, "-c", _SUPERVISED, APP, str(processes), json.dumps(settings)]
        return self._started(words, {})

    def _started(self, words: list[str], environment: dict[str, str]) -> WorkerProcess:
        given = {**os.environ, "WORKER_APP_STORE": self.url, **environment}
        self.workers.append(WorkerProcess(words, self.folder / f"worker-{len(self.workers)}", given))
        return self.workers[-1]

    def row(self, job: Any) -> JobRow:
        """The stored row of a job."""
        return self.app.store.get([job.id], tenant=ALL_TENANTS)[0]  # type: ignore[no-any-return]

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def notes(self, name: str) -> list[int]:
        """The pids that a job recorded."""
        path = self.folder / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def let_go(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def close(self) -> None:
        for worker in self.workers:
            worker.end()
        self.app.close()
        self.tasks.in_memory.close()


class WorkerProcess:
    """A started worker, whose output is kept in files."""

    def __init__(self, words: list[str], place: Path, environment: dict[str, str]) -> None:
        self._out, self._err = place.with_suffix(".out"), place.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                words, cwd=ROOT, stdout=out, stderr=err, env=environment, start_new_session=True
            )
        self.pid = self.process.pid

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def log(self) -> str:
        return self._err.read_text()

    def runners(self) -> list[int]:
        """The pids of its live runner processes."""
        return [pid for pid, words in child_pids(self.pid).items() if "tidemill.engine.runner.main" in words]

    def ready(self, count: int = 1) -> WorkerProcess:
        """Wait until this many runners have become ready."""
        try:
            until(
                lambda: self.process.poll() is not None or self.readies() >= count,
                f"{count} runners are ready",
            )
        finally:
            if self.readies() < count:
                print(self.out, self.log)
        assert self.process.poll() is None, self.log
        return self

    def readies(self) -> int:
        return len(re.findall(r"runner \d+(?: of store '[^']+')? \(pid \d+\) is ready", self.log))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def exit_code(self, seconds: float = PATIENCE) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the worker did not end within {seconds:g} s; its log:\n{self.log}")

    def ask(self, path: str) -> tuple[int, Any]:
        """Status and body of a request to its health endpoint."""
        address = json.loads(self.out.splitlines()[0])["started"]["health"]
        try:
            with urlopen(address + path, timeout=5) as answer:
                return answer.status, json.load(answer)
        except Exception as error:
            if not hasattr(error, "code"):
                raise
            with error:  # type: ignore[attr-defined]
                return error.code, json.load(error)  # type: ignore[arg-type]

    def end(self) -> None:
        """End all its processes, in whatever state the test left them."""
        family = [self.pid, *self.runners()]
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


def alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not count as running."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _loaded(url: str) -> ModuleType:
    """A new copy of the tests' app module, for this store."""
    os.environ["WORKER_APP_STORE"] = url
    try:
        spec = importlib.util.spec_from_file_location(
            f"worker_app_{uuid4().hex}", ROOT / "tests" / "engine" / "worker_app.py"
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        del os.environ["WORKER_APP_STORE"]
    return module


@contextlib.contextmanager
def a_world(url: str, folder: Path) -> Iterator[World]:
    world = World(url, folder)
    try:
        yield world
    finally:
        world.close()


_HOOK = """
import os, signal, sys
from pathlib import Path

class Stopper:
    def find_spec(self, name, path=None, target=None):
        flag = Path({flag!r})
        if name == {name!r} and {word!r} in sys.orig_argv and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Stopper())
"""


def stopper(folder: Path, name: str, word: str) -> dict[str, str]:
    """The environment of processes of which one gets SIGTERM when it imports a module."""
    place = folder / "stopper"
    place.mkdir()
    (place / "sitecustomize.py").write_text(_HOOK.format(flag=str(folder / "stopped"), name=name, word=word))
    return {"PYTHONPATH": f"{place}:{ROOT}"}
