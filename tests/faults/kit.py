"""Shared parts of the fault runs: the harness, workers, and producers.

Runs signal only processes that were started here, and leave no process behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from tests.faults.ledger import WHERE, Ledger, Line
from tests.faults.tasks import STORE, FaultApp
from tests.servers.postgres import PrivatePostgres, running_postgres
from tests.servers.processes import child_pids

from tidemill.clock import SystemClock
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import JobRow
from tidemill.domain.states import ENDED, JobState
from tidemill.early_signals import delayed_signals
from tidemill.engine.deathwatch import descendants
from tidemill.errors import StoreError
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.faults.app:app"
OPEN = frozenset(JobState) - ENDED
clock = SystemClock()
T = TypeVar("T")

_SUPERVISED = """
import json, sys
from tidemill.engine.log_formats import write_logs
from tidemill.engine.worker_settings import read_settings
from tidemill.engine.supervisor.supervisor import Supervisor
write_logs()
app, processes, settings = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
sys.exit(Supervisor(app, read_settings(settings), processes=processes).run())
"""


class Stuck(AssertionError):
    """A condition did not become true in time."""


def until(true: Callable[[], T], what: str, seconds: float) -> T:
    """Wait until the condition is true and return its value; raise `Stuck` after this many seconds."""
    deadline = clock.monotonic() + seconds
    while not (value := true()):
        if clock.monotonic() > deadline:
            raise Stuck(f"not within {seconds:g} s: {what}")
        pause(0.02)
    return value


def pause(seconds: float) -> None:
    """Let a fault last for this long."""
    threading.Event().wait(seconds)


# Workers -----------------------------------------------------------------------------------------------------------------


class Worker:
    """A started worker: its supervisor and, through it, its runners."""

    def __init__(self, words: Sequence[str], place: Path, environment: dict[str, str]) -> None:
        self._out = place.with_suffix(".log")
        # A program that is still starting would die of SIGTERM: the signal waits until its supervisor can handle it.
        with self._out.open("wb") as out, delayed_signals():
            # A process group in our own session, as a shell makes one. In a separate session the group would be orphaned, and the
            # kernel discards SIGTSTP for orphaned groups.
            self.process = subprocess.Popen(
                words, cwd=ROOT, stdout=out, stderr=out, env=environment, process_group=0
            )
        self.pid = self.process.pid

    @property
    def log(self) -> str:
        """Return everything that the worker and its runners have logged."""
        return self._out.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        """Return whether the supervisor is running."""
        return self.process.poll() is None

    def runners(self) -> list[int]:
        """Return the pids of its running runner processes."""
        return [pid for pid, words in child_pids(self.pid).items() if "tidemill.engine.runner.main" in words]

    def readies(self) -> int:
        """Count the runners that have become ready so far."""
        return len(re.findall(r"runner \d+(?: of store '[^']+')? \(pid \d+\) is ready", self.log))

    def ready(self, count: int = 1, seconds: float = 90.0) -> Worker:
        """Wait until this many runners have become ready."""
        until(lambda: not self.alive or self.readies() >= count, f"{count} runners are ready", seconds)
        if not self.alive:
            raise Stuck(f"the worker exited: {self.log[-2000:]}")
        return self

    def kill_runner(self, pid: int) -> bool:
        """Kill one of its runners with SIGKILL; return False if it has already exited. No other process can be hit."""
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        try:
            if pid not in child_pids(self.pid):
                return False
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            return False
        finally:
            os.close(handle)
        return True

    def kill(self) -> set[int]:
        """Kill the supervisor with SIGKILL; return the runners that die with it."""
        # Stop it first, so that it starts no runner before it is killed.
        self.process.send_signal(signal.SIGSTOP)
        runners = set(self.runners())
        self.process.kill()
        self.process.wait()
        return runners

    def halt(self) -> set[int]:
        """Stop the supervisor and all its descendants with SIGSTOP; return the descendants."""
        self.process.send_signal(signal.SIGSTOP)
        family: set[int] = set()
        while new := descendants(self.pid) - family:
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            family |= new
        return family

    def go_on(self, family: set[int]) -> None:
        """Continue them with SIGCONT, runners first: a zombie should have every chance to write before it is notified."""
        for pid in sorted(family & descendants(self.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.process.send_signal(signal.SIGCONT)

    def is_stopped(self, pid: int | None = None) -> bool:
        """Return whether a signal has stopped this process of the worker, or its supervisor."""
        try:
            text = Path(f"/proc/{pid or self.pid}/stat").read_text()
        except OSError:
            return False
        return text.rpartition(")")[2].split()[0] in ("T", "t")

    def stop(self, seconds: float = 60.0) -> int:
        """Send SIGTERM; return the exit code."""
        if self.alive:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Stuck(
                f"the worker did not exit within {seconds:g} s of SIGTERM: {self.log[-2000:]}"
            ) from None

    def end(self) -> None:
        """Kill the worker; its runners and their children die with it."""
        if self.alive:
            family = descendants(self.pid)
            self.process.send_signal(signal.SIGKILL)
            # A stopped process cannot react to a closed pipe; dead ones ignore SIGCONT.
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        self.process.wait(10)


def child_environment(folder: Path) -> dict[str, str]:
    """Return the environment of a worker process."""
    environment = dict(os.environ)
    if environment.pop("PYTHONDONTWRITEBYTECODE", None):
        # The installed packages are compiled already; without a cache this checkout would be compiled at every process start.
        environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    return environment


def supervise(
    app: str, processes: int, settings: Mapping[str, object], place: Path, environment: dict[str, str]
) -> Worker:
    """Start a supervisor with settings that the command line does not have."""
    words = [sys.executable, "-c", _SUPERVISED, app, str(processes), json.dumps(settings)]
    return Worker(words, place, environment)


# The harness -------------------------------------------------------------------------------------------------------------


class Harness:
    """A store, an app on it in this process, a ledger, and the started workers."""

    def __init__(self, url: str, folder: Path, server: PrivatePostgres | None = None) -> None:
        self.url, self.folder, self.server = url, folder, server
        self.ledger = Ledger(folder)
        with contextlib.closing(open_store(url)) as store:
            store.migrate()
        self.fault_app = FaultApp(url)
        self.workers: list[Worker] = []
        self._gates = 0

    @property
    def store(self) -> Store:
        """Return the store itself."""
        return self.fault_app.app.store

    def worker(self, *options: str) -> Worker:
        """Start ``tidemill worker`` with these options."""
        return self._started([sys.executable, "-m", "tidemill", "worker", APP, *options])

    def supervised(self, processes: int, **settings: object) -> Worker:
        """Start a supervisor with settings that the command line does not have."""
        environment = child_environment(self.folder) | {STORE: self.url, WHERE: str(self.ledger.path)}
        place = self.folder / f"worker-{len(self.workers)}"
        self.workers.append(supervise(APP, processes, settings, place, environment))
        return self.workers[-1]

    def _started(self, words: list[str]) -> Worker:
        environment = child_environment(self.folder) | {STORE: self.url, WHERE: str(self.ledger.path)}
        self.workers.append(Worker(words, self.folder / f"worker-{len(self.workers)}", environment))
        return self.workers[-1]

    def gate(self) -> Path:
        """Create a gate for jobs to wait at."""
        self._gates += 1
        place = self.folder / f"gate-{self._gates}"
        place.mkdir()
        return place

    def enqueue(self, task: str, calls: Sequence[dict[str, object]]) -> list[UUID]:
        """Enqueue jobs, and record that they were accepted."""
        ids = [job.id for job in self.fault_app.tasks[task].enqueue_many(calls)]
        self.ledger.accept(ids)
        return ids

    def begun(self, jobs: Sequence[UUID], token: int = 1, seconds: float = 60.0) -> list[Line]:
        """Wait until each job has begun its execution of this number; return the ledger lines."""

        def lines() -> list[Line]:
            return [line for line in self.ledger.of("B", jobs) if line.token == token]

        until(
            lambda: len({line.job for line in lines()}) == len(set(jobs)), f"execution {token} began", seconds
        )
        return lines()

    def jobs(self, ids: Sequence[UUID]) -> dict[UUID, JobRow]:
        """Return these jobs as they are stored."""
        jobs: dict[UUID, JobRow] = {}
        for start in range(0, len(ids), 500):
            jobs |= {job.id: job for job in self.store.get(ids[start : start + 500], tenant=ALL_TENANTS)}
        return jobs

    def open_jobs(self) -> int:
        """Count the jobs that have not ended."""
        return sum(self.store.count(JobFilter(ALL_TENANTS, states=OPEN)).values())

    def drain(self, seconds: float = 240.0) -> float:
        """Wait until every job has ended; return how long that took."""
        began = clock.monotonic()

        def done() -> bool:
            try:
                return self.open_jobs() == 0
            except StoreError:
                return False

        until(done, "every job has ended", seconds)
        return clock.monotonic() - began

    def close(self) -> None:
        """Kill every worker and close the store."""
        for worker in self.workers:
            worker.end()
        self.fault_app.app.close()


@contextlib.contextmanager
def open_harness(url: str, folder: Path, server: PrivatePostgres | None = None) -> Iterator[Harness]:
    """Yield a harness on the store at this URL."""
    harness = Harness(url, folder, server)
    try:
        yield harness
    finally:
        harness.close()


@contextlib.contextmanager
def own_harness(store: str, **settings: str) -> Iterator[Harness]:
    """Yield a harness with a new store: a file, or a database on a private server."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        if store == "sqlite":
            yield stack.enter_context(open_harness(f"sqlite:///{folder}/jobs.db", folder))
        else:
            server = stack.enter_context(running_postgres(settings=settings))
            url = server.create_database("faults")
            yield stack.enter_context(open_harness(url, folder, server))


# Load --------------------------------------------------------------------------------------------------------------------


class Producer:
    """A thread that enqueues at a steady rate; calls refused during an outage are not recorded as accepted."""

    def __init__(self, harness: Harness, random: Random, rate: float = 40.0, longest: float = 0.2) -> None:
        self._harness, self._random = harness, Random(random.random())
        self._rate, self._longest = rate, longest
        self.refused = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults-producer")

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop enqueueing."""
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        every = 0.25
        while not self._over.wait(every):
            calls: dict[str, list[dict[str, object]]] = {}
            for _ in range(max(1, round(self._rate * every))):
                task = self._random.choices(["noop", "doze", "toil", "toil_alone"], [50, 25, 20, 5])[0]
                seconds = self._random.uniform(0.02, self._longest)
                calls.setdefault(task, []).append({} if task == "noop" else {"seconds": seconds})
            for task, several in calls.items():
                try:
                    self._harness.enqueue(task, several)
                except StoreError:
                    self.refused += len(several)


def figures(seconds: Sequence[float], digits: int = 2) -> dict[str, Any]:
    """Summarise measured times."""
    if not seconds:
        return {"count": 0}
    ordered = sorted(seconds)
    return {
        "count": len(ordered),
        "p50": round(ordered[len(ordered) // 2], digits),
        "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], digits),
        "max": round(ordered[-1], digits),
    }
