"""What fault runs share: the ground they stand on (a store, a folder, a ledger), workers to hurt, producers, and the verdict.

Every process that is signalled was started here; whatever happens, nothing of it is left at the end.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from tests.faults.ledger import WHERE, Ledger, Line
from tests.faults.tasks import STORE, Mill

from tidemill.clock import SystemClock
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Job
from tidemill.domain.states import ENDED, JobState
from tidemill.engine.deathwatch import descendants
from tidemill.errors import StoreError
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.testing.postgres import PrivatePostgres, running_postgres
from tidemill.testing.processes import child_pids

ROOT = Path(__file__).resolve().parents[2]
APP = "tests.faults.app:app"
OPEN = frozenset(JobState) - ENDED
clock = SystemClock()
T = TypeVar("T")

_SUPERVISED = """
import json, sys
from tidemill.engine.logs import write_logs
from tidemill.engine.settings import read_settings
from tidemill.engine.supervisor import Supervisor
write_logs()
app, processes, settings = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
sys.exit(Supervisor(app, read_settings(settings), processes=processes).run())
"""


class Stuck(AssertionError):
    """Something that had to happen did not, in all the time it was given."""


def until(true: Callable[[], T], what: str, seconds: float) -> T:
    """Wait for something to become true, but not for ever; how it came out."""
    ends = clock.monotonic() + seconds
    while not (found := true()):
        if clock.monotonic() > ends:
            raise Stuck(f"not within {seconds:g} s: {what}")
        pause(0.02)
    return found


def pause(seconds: float) -> None:
    """Let time pass, as a fault lasts."""
    threading.Event().wait(seconds)


# Workers -----------------------------------------------------------------------------------------------------------------


class Worker:
    """One started worker: its supervisor, and through it its runners."""

    def __init__(self, words: Sequence[str], place: Path, environment: dict[str, str]) -> None:
        self._out = place.with_suffix(".log")
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                words, cwd=ROOT, stdout=out, stderr=out, env=environment, start_new_session=True
            )
        self.pid = self.process.pid

    @property
    def log(self) -> str:
        """All that it and its runners have written."""
        return self._out.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        """Whether its supervisor lives."""
        return self.process.poll() is None

    def runners(self) -> list[int]:
        """The pids of its living runner processes."""
        return [pid for pid, words in child_pids(self.pid).items() if "tidemill.engine.process" in words]

    def readies(self) -> int:
        """How many runners have become ready so far."""
        return len(re.findall(r"runner \d+ \(pid \d+\) is ready", self.log))

    def ready(self, count: int = 1, seconds: float = 90.0) -> Worker:
        """Wait until so many runners have become ready."""
        until(lambda: not self.alive or self.readies() >= count, f"{count} runners are ready", seconds)
        if not self.alive:
            raise Stuck(f"the worker has ended: {self.log[-2000:]}")
        return self

    def kill_runner(self, pid: int) -> bool:
        """Kill -9 one of its runners; False if it has ended meanwhile. No other process can be hit."""
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
        """Kill -9 the supervisor; the runners that it takes along."""
        self.process.send_signal(signal.SIGSTOP)  # so that it starts nobody between the look and the blow
        runners = set(self.runners())
        self.process.kill()
        self.process.wait()
        return runners

    def halt(self) -> set[int]:
        """SIGSTOP the supervisor and all that descends from it; who these were."""
        self.process.send_signal(signal.SIGSTOP)
        family: set[int] = set()
        while new := descendants(self.pid) - family:
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            family |= new
        return family

    def go_on(self, family: set[int]) -> None:
        """SIGCONT them, the runners first: a zombie should have every chance to write before it is told."""
        for pid in sorted(family & descendants(self.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.process.send_signal(signal.SIGCONT)

    def stop(self, seconds: float = 60.0) -> int:
        """SIGTERM; its exit code."""
        if self.alive:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Stuck(
                f"the worker did not end within {seconds:g} s of SIGTERM: {self.log[-2000:]}"
            ) from None

    def end(self) -> None:
        """Leave nothing behind; runners and their children die with their supervisor."""
        if self.alive:
            family = descendants(self.pid)
            self.process.send_signal(signal.SIGKILL)
            for pid in family:  # the dead do not notice, and the halted could not die of a closed pipe
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        self.process.wait(10)


# The ground --------------------------------------------------------------------------------------------------------------


class Ground:
    """A store, the app on it in this process, a ledger, and the workers that were started."""

    def __init__(self, url: str, folder: Path, server: PrivatePostgres | None = None) -> None:
        self.url, self.folder, self.server = url, folder, server
        self.ledger = Ledger(folder)
        with contextlib.closing(open_store(url)) as store:
            store.migrate()
        self.mill = Mill(url)
        self.workers: list[Worker] = []
        self._gates = 0

    @property
    def store(self) -> Store:
        """The store, without a client in between."""
        return self.mill.app.store

    def worker(self, *options: str) -> Worker:
        """``tidemill worker``, with these options."""
        return self._started([sys.executable, "-m", "tidemill", "worker", APP, *options])

    def supervised(self, processes: int, **settings: object) -> Worker:
        """A supervisor with settings that the command line does not have."""
        return self._started([sys.executable, "-c", _SUPERVISED, APP, str(processes), json.dumps(settings)])

    def _started(self, words: list[str]) -> Worker:
        environment = {**os.environ, STORE: self.url, WHERE: str(self.ledger.path)}
        if environment.pop("PYTHONDONTWRITEBYTECODE", None):
            # What is installed was compiled then; a worker of this checkout, too, must not do it at every start of a process.
            environment["PYTHONPYCACHEPREFIX"] = str(self.folder / "bytecode")
        self.workers.append(Worker(words, self.folder / f"worker-{len(self.workers)}", environment))
        return self.workers[-1]

    def gate(self) -> Path:
        """A new gate for jobs to wait at."""
        self._gates += 1
        place = self.folder / f"gate-{self._gates}"
        place.mkdir()
        return place

    def enqueue(self, task: str, calls: Sequence[dict[str, object]]) -> list[UUID]:
        """Ask for jobs, and write down that they were accepted."""
        ids = [job.id for job in self.mill.tasks[task].enqueue_many(calls)]
        self.ledger.accept(ids)
        return ids

    def begun(self, jobs: Sequence[UUID], token: int = 1, seconds: float = 60.0) -> list[Line]:
        """Wait until each of these has begun its execution of this number; the lines that say so."""

        def lines() -> list[Line]:
            return [line for line in self.ledger.of("B", jobs) if line.token == token]

        until(
            lambda: len({line.job for line in lines()}) == len(set(jobs)), f"execution {token} began", seconds
        )
        return lines()

    def jobs(self, ids: Sequence[UUID]) -> dict[UUID, Job]:
        """These jobs as they are stored."""
        found: dict[UUID, Job] = {}
        for start in range(0, len(ids), 500):
            found |= {job.id: job for job in self.store.get(ids[start : start + 500], tenant=ALL_TENANTS)}
        return found

    def open_jobs(self) -> int:
        """How many jobs have not ended."""
        return sum(self.store.count(JobFilter(ALL_TENANTS, states=OPEN)).values())

    def drain(self, seconds: float = 240.0) -> float:
        """Wait until every job has ended; how long that took."""
        began = clock.monotonic()

        def done() -> bool:
            try:
                return self.open_jobs() == 0
            except StoreError:
                return False

        until(done, "every job has ended", seconds)
        return clock.monotonic() - began

    def close(self) -> None:
        """End every worker, and let go of the store."""
        for worker in self.workers:
            worker.end()
        self.mill.app.close()


@contextlib.contextmanager
def a_ground(url: str, folder: Path, server: PrivatePostgres | None = None) -> Iterator[Ground]:
    """A ground for the length of a block."""
    ground = Ground(url, folder, server)
    try:
        yield ground
    finally:
        ground.close()


@contextlib.contextmanager
def own_ground(store: str, **settings: str) -> Iterator[Ground]:
    """A ground with a store of its own: a file, or a database on a private server."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        if store == "sqlite":
            yield stack.enter_context(a_ground(f"sqlite:///{folder}/jobs.db", folder))
        else:
            server = stack.enter_context(running_postgres(settings=settings))
            url = server.create_database("faults")
            yield stack.enter_context(a_ground(url, folder, server))


# Load --------------------------------------------------------------------------------------------------------------------


class Producer:
    """A thread that asks for jobs at a steady rate; what is refused while the store is away counts as not asked for."""

    def __init__(self, ground: Ground, random: Random, rate: float = 40.0, longest: float = 0.2) -> None:
        self._ground, self._random = ground, Random(random.random())
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
        """Ask for nothing more."""
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
                    self._ground.enqueue(task, several)
                except StoreError:
                    self.refused += len(several)


def figures(seconds: Sequence[float], digits: int = 2) -> dict[str, Any]:
    """Measured times in brief."""
    if not seconds:
        return {"count": 0}
    ordered = sorted(seconds)
    return {
        "count": len(ordered),
        "p50": round(ordered[len(ordered) // 2], digits),
        "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], digits),
        "max": round(ordered[-1], digits),
    }
