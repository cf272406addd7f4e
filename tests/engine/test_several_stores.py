"""Tests of ``tidemill worker`` for an app with several stores: real processes, kills and outages."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from urllib.request import urlopen
from uuid import uuid4

import pytest
from tests.engine.worker_kit import APP, ROOT, WorkerProcess, a_world, until
from tests.faults.proxy import Proxy
from tests.grounds import new_database
from tests.servers.processes import child_pids

from tidemill.engine.store_shares import divide, divided, portions, read_stores, served_stores
from tidemill.engine.worker_settings import read_settings
from tidemill.errors import BadSettings

SEVERAL = "tests.engine.several_stores_app:app"
QUICK = {"beat": 0.5, "expiry": 3, "lease_beat": 0.5, "lease_expiry": 2}
_SUPERVISED = """
import json, logging, sys
from tidemill.engine.worker_settings import read_settings
from tidemill.engine.supervisor.supervisor import Supervisor
logging.basicConfig(level="INFO", stream=sys.stderr)
sys.exit(Supervisor(sys.argv[1], read_settings(json.loads(sys.argv[2])), processes=2).run())
"""


class Stores:
    """Two stores, their app in this process, and its workers."""

    def __init__(self, first: str, second: str, folder: Path) -> None:
        self.urls, self.folder = (first, second), folder
        self.environment = {"FIRST_STORE": first, "SECOND_STORE": second}
        self.ledger = folder / "ledger"
        self.workers: list[WorkerProcess] = []
        self.tasks = self._loaded()
        self.app = self.tasks.app

    def _loaded(self) -> ModuleType:
        os.environ.update(self.environment)
        try:
            path = ROOT / "tests" / "engine" / "several_stores_app.py"
            spec = importlib.util.spec_from_file_location(f"several_{uuid4().hex}", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        finally:
            for name in self.environment:
                del os.environ[name]
        return module

    def worker(self, *options: str, **environment: str) -> WorkerProcess:
        words = [sys.executable, "-m", "tidemill", "worker", SEVERAL, "--json", *options]
        return self._started(words, environment)

    def supervised(self) -> WorkerProcess:
        return self._started([sys.executable, "-c", _SUPERVISED, SEVERAL, json.dumps(QUICK)], {})

    def _started(self, words: list[str], environment: dict[str, str]) -> WorkerProcess:
        given = {**os.environ, **self.environment, **environment}
        self.workers.append(WorkerProcess(words, self.folder / f"worker-{len(self.workers)}", given))
        return self.workers[-1]

    def enqueue(self, store: str, seconds: float = 0.0) -> Any:
        return self.tasks.note.using(store=store).enqueue(path=str(self.ledger), seconds=seconds)

    def ran(self) -> list[tuple[str, int, str]]:
        """Store, process and job of each execution."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [(store, int(pid), job) for store, pid, job in map(str.split, lines)]

    def close(self) -> None:
        for worker in self.workers:
            worker.end()
        self.app.close()


@pytest.fixture(params=["sqlite", "postgres", "mixed"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    with contextlib.ExitStack() as stack:
        urls = []
        for at, kind in enumerate({"mixed": ("sqlite", "postgres")}.get(request.param, (request.param,) * 2)):
            if kind == "sqlite":
                urls.append(f"sqlite:///{tmp_path}/{at}.db")
            else:
                urls.append(stack.enter_context(new_database(request.getfixturevalue("postgres"))))
        made = Stores(urls[0], urls[1], tmp_path)
        stack.callback(made.close)
        yield made


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Stores]:
    made = Stores(f"sqlite:///{tmp_path}/0.db", f"sqlite:///{tmp_path}/1.db", tmp_path)
    try:
        yield made
    finally:
        made.close()


# Shares ------------------------------------------------------------------------------------------------------------------


def test_no_store_is_left_without_a_process() -> None:
    for total in range(1, 9):
        for count in range(1, 6):
            names = [f"s{number}" for number in range(count)]
            shares = divide(total, names, {})
            assert min(shares.values()) >= 1
            assert sum(shares.values()) == max(total, count)
            assert max(shares.values()) - min(shares.values()) <= 1
    assert divide(8, ["a", "b"], {"a": 6, "b": None}) == {"a": 6, "b": 2}
    assert portions(0, 0) == []


def test_every_kind_of_slot_is_divided_and_none_disappears() -> None:
    parts = divided(read_settings({"concurrency": 5, "threads": 1, "children": 0}), 3)
    assert [(part.concurrency, part.threads, part.children) for part in parts] == [
        (2, 1, 0),
        (2, 1, 0),
        (1, 1, 0),
    ]


@pytest.mark.parametrize("given", ["", "a,,b", "a=0", "a=x", "a,a", "=2"])
def test_bad_lists_of_stores_are_refused(given: str) -> None:
    with pytest.raises(BadSettings):
        read_stores(given)


def test_only_known_stores_can_be_served() -> None:
    assert served_stores(["a"], {"a", "b"}, {}) == ("a",)
    assert served_stores(["a"], {"a", "b"}, {"b": None}) == ("b",)
    with pytest.raises(BadSettings, match="no store named 'c'; there are a, b"):
        served_stores(["a"], {"a", "b"}, {"c": None})


# Work --------------------------------------------------------------------------------------------------------------------


def metrics_of(health: str) -> list[str]:
    """The lines of a worker's metrics."""
    with urlopen(health + "/metrics", timeout=5) as answer:
        text: str = answer.read().decode()
    return text.splitlines()


def test_one_worker_runs_the_jobs_schedules_and_children_of_every_store(stores: Stores) -> None:
    worker = stores.worker("-p", "1", "--health-port", "0", WITH_SCHEDULE="1").ready(2)
    jobs = {name: [stores.enqueue(name) for _ in range(5)] for name in ("jobs", "reports")}
    assert {name: {job.result(30) for job in found} for name, found in jobs.items()} == {
        "jobs": {"jobs"},
        "reports": {"reports"},
    }
    isolated = stores.tasks.alone.using(store="reports").enqueue(path=str(stores.ledger))
    assert isolated.result(60) == "reports reports"
    reports = stores.app.at_store("reports")
    until(lambda: reports.jobs.count(task="fired", status="completed"), "the schedule has fired")
    assert stores.app.at_store("jobs").jobs.count(task="fired") == 0
    pids = {name: {pid for store, pid, _ in stores.ran() if store == name} for name in jobs}
    assert not pids["jobs"] & pids["reports"], "a runner works for one store"
    started = json.loads(worker.out.splitlines()[0])["started"]
    assert started["stores"] == {"jobs": 1, "reports": 1}
    assert "runner 2 of store 'reports'" in worker.log
    status, body = worker.ask("/readyz")
    assert (status, set(body["stores"])) == (200, {"jobs", "reports"})
    # A runner reports its counters at most once a second, so they follow the end of the jobs.
    counted = {
        f'tidemill_worker_executions_total{{task="note",outcome="succeeded",store="{name}"}} {number}'
        for name, number in (("jobs", 5), ("reports", 6))
    }
    until(lambda: counted <= set(metrics_of(started["health"])), "the executions of every store are counted")
    assert 'tidemill_worker_store_up{store="reports"} 1' in metrics_of(started["health"])
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 0


def test_the_option_stores_restricts_a_worker(files: Stores) -> None:
    files.worker("--stores", "reports=1").ready()
    mine, other = files.enqueue("reports"), files.enqueue("jobs")
    assert mine.result(30) == "reports"
    assert other.refresh().status == "pending"
    assert other.why()[0].text.startswith("No living worker serves the store 'jobs'")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--stores", "nowhere"), "no store named 'nowhere'"),
        (("--stores", "archive"), "keeps its jobs in the memory"),
    ],
)
def test_a_worker_refuses_stores_that_it_cannot_serve(
    files: Stores, options: tuple[str, ...], words: str
) -> None:
    worker = files.worker(*options)
    assert worker.exit_code() == 1
    assert words in worker.log


def test_the_process_tree_of_an_app_with_one_store_is_as_before(tmp_path: Path) -> None:
    with a_world(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as world:
        worker = world.worker("-p", "2", app=APP).ready(2)
        children = child_pids(worker.pid)
        assert len(children) == 2
        assert all("tidemill.engine.runner.main" in words for words in children.values())
        # The number of threads before workers could serve several stores.
        names = sorted(path.read_text().strip() for path in Path(f"/proc/{worker.pid}/task").glob("*/comm"))
        assert len(names) == 11, names
        assert "stores" not in json.loads(worker.out.splitlines()[0])["started"]


# Faults ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [7])
def test_every_job_of_every_store_runs_while_runners_and_supervisors_are_killed(
    stores: Stores, seed: int
) -> None:
    random = Random(seed)
    workers = [stores.supervised().ready(2) for _ in range(2)]
    jobs = []
    for strike in range(6):
        jobs += [stores.enqueue(name, seconds=0.05) for name in ("jobs", "reports") for _ in range(8)]
        at = random.randrange(2)
        if strike % 3 == 2:
            workers[at].process.kill()
            workers[at].process.wait(10)
            workers[at] = stores.supervised().ready(1)
        else:
            runners = until(workers[at].runners, "there is a runner to kill")
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(runners), signal.SIGKILL)
    assert Counter(job.result(90) for job in jobs) == {"jobs": 48, "reports": 48}
    ran = {job for _, _, job in stores.ran()}
    assert ran == {str(job.id) for job in jobs}
    assert all(store == job.store_name for job in jobs for store, _, id in stores.ran() if id == str(job.id))


def test_the_outage_of_one_store_does_not_stop_the_work_of_another(postgres: Any, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(new_database(postgres)) for _ in range(2))
        parts = urlsplit(second)
        proxy = stack.enter_context(Proxy((parts.hostname or "127.0.0.1", parts.port or 5432)))
        through = urlunsplit(
            parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{proxy.port}")
        )
        stores = Stores(first, through, tmp_path)
        stack.callback(stores.close)
        worker = stores.worker("-p", "2", "--health-port", "0").ready(2)
        assert stores.enqueue("reports").result(30) == "reports"
        proxy.cut()
        until(lambda: worker.ask("/readyz")[0] == 503, "the outage is seen")
        assert "store 'reports' does not answer" in json.dumps(worker.ask("/readyz")[1])
        during = [stores.enqueue("jobs") for _ in range(20)]
        assert {job.result(20) for job in during} == {"jobs"}
        assert worker.process.poll() is None
        proxy.heal()
        until(lambda: worker.ask("/readyz")[0] == 200, "the store is served again", 60)
        assert stores.enqueue("reports").result(60) == "reports"


def test_a_store_that_refuses_its_worker_is_opened_again_and_delays_no_other(files: Stores) -> None:
    broken = files.folder / "1.db"
    files.app.close()
    for path in files.folder.glob("1.db*"):
        path.unlink()
    broken.write_bytes(b"this is not a database at all" * 100)
    worker = files.worker("-p", "2", "--health-port", "0").ready(1)
    assert "store 'reports' cannot be used" in worker.log
    broken.unlink()
    until(
        lambda: "runner 2 of store 'reports'" in worker.log and worker.ask("/readyz")[0] == 200,
        "both work",
        60,
    )


def test_a_reload_and_a_stop_reach_the_runners_of_every_store(files: Stores) -> None:
    worker = files.worker("-p", "2").ready(2)
    before = set(worker.runners())
    worker.signal(signal.SIGHUP)
    worker.ready(4)
    until(lambda: not before & set(worker.runners()), "the old runners are gone")
    assert {files.enqueue(name).result(30) for name in ("jobs", "reports")} == {"jobs", "reports"}
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 0
    assert all(w.left for name in ("jobs", "reports") for w in files.app.at_store(name).store.workers())
