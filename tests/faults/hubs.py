"""Hands at work while their hubs and their broker are killed at random.

``python -m tests.faults.hubs --broker rabbitmq --hands 200 --seconds 180`` uses three RabbitMQ nodes and quorum queues.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from tests.engine.hub_kit import a_hand, a_key
from tests.servers.postgres import running_postgres
from tests.servers.rabbitmq import RabbitCluster, RabbitNode, running_rabbitmq_cluster
from tests.servers.restartable import RestartableServer, running_nats_server

from tidemill.app import App
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import ExecutionState, JobState
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

TASK = "hub_chaos"
_JOB = 0.02  # seconds

Broker = RestartableServer | RabbitNode | RabbitCluster

LEAST = 3
"""Kills of a run at least, however slow the machine is."""


class HubProcess:
    """A hub in a process of its own, which can be killed and started again."""

    def __init__(self, store_url: str, wire: str, log: Path) -> None:
        self._words = [
            sys.executable,
            "-m",
            "tidemill",
            "hub",
            "--store",
            store_url,
            "--wire",
            wire,
            "--json",
        ]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it serves."""
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                self._words,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "started" in json.loads(line or b"{}"), self._log.read_text()[-2000:]

    def end(self, sign: signal.Signals) -> None:
        """Stop or kill it."""
        assert self._process is not None
        self._process.send_signal(sign)
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


class HubChaosResult(NamedTuple):
    """Enqueued jobs, their states, the runs of each handler, and the number of kills."""

    ids: list[UUID]
    states: Counter[JobState]
    runs: Counter[str]
    kills: int


class HubChaos:
    """One run: hubs as processes, hands in this process, and a store that both reach."""

    def __init__(self, store: Store, url: str, broker: Broker, folder: Path, seed: int) -> None:
        self._store, self._url, self._broker, self._folder = store, url, broker, folder
        self._wire = f"{broker.url.removesuffix('/%2F')}/chaos"
        if isinstance(broker, RabbitCluster):
            self._wire += "?queue=quorum"
        self._random = random.Random(seed)
        self._runs: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._app = App(store)

        @self._app.task(name=TASK, max_retries=49)
        async def work(n: int) -> int:
            import asyncio

            with self._lock:
                self._runs[str(n)] += 1
            await asyncio.sleep(_JOB)
            return n

    def run(self, seconds: float, *, hubs: int = 2, hands: int = 4, restarts: bool = True) -> HubChaosResult:
        """Enqueue jobs and kill for this time, then wait until every job has ended."""
        ids: list[UUID] = []
        kills = 0
        key = a_key(self._store)
        with ExitStack() as stack:
            processes = [
                HubProcess(self._url, self._wire, self._folder / f"hub-{n}.log") for n in range(hubs)
            ]
            for process in processes:
                process.start()
                stack.callback(process.end, signal.SIGTERM)
            for _ in range(hands):
                stack.enter_context(
                    a_hand(self._app, self._wire, key, concurrency=5, poll=0.5, beat=1.0, expiry=8.0)
                )
            ends = time.monotonic() + seconds
            while time.monotonic() < ends or kills < LEAST:
                ids += [self._app.enqueue(TASK, n=len(ids) + n).id for n in range(20)]
                time.sleep(self._random.uniform(0.1, 0.6))
                if self._random.random() < 0.3 and restarts:
                    self._broker.restart()
                else:
                    process = self._random.choice(processes)
                    process.end(signal.SIGKILL)
                    process.start()
                kills += 1
            self._await_ends(ids)
        rows = self._store.get(ids, tenant=ALL_TENANTS)
        return HubChaosResult(ids, Counter(row.state for row in rows), self._runs, kills)

    def _await_ends(self, ids: list[UUID]) -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            rows = self._store.get(ids, tenant=ALL_TENANTS)
            if all(row.state is JobState.COMPLETED for row in rows):
                return
            time.sleep(0.2)

    def check(self, result: HubChaosResult) -> None:
        """Nothing is lost, every job succeeded once, and every run of a handler has its execution."""
        assert result.states == {JobState.COMPLETED: len(result.ids)}, result.states
        executions = Counter[UUID]()
        for execution in self._store.executions(result.ids, tenant=ALL_TENANTS):
            executions[execution.job_id] += execution.state is ExecutionState.SUCCEEDED
        assert set(executions) == set(result.ids)
        assert set(executions.values()) == {1}
        assert set(result.runs) == {str(n) for n in range(len(result.ids))}

    def close(self) -> None:
        self._app.close()


@contextmanager
def hub_chaos(store: Store, url: str, broker: Broker, folder: Path, seed: int) -> Iterator[HubChaos]:
    """A run on this store."""
    chaos = HubChaos(store, url, broker, folder, seed)
    try:
        yield chaos
    finally:
        chaos.close()


def main() -> None:
    """Run with real servers, and print what was done."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.hubs")
    parser.add_argument("--broker", choices=["nats", "rabbitmq"], default="rabbitmq")
    parser.add_argument("--hands", type=int, default=200)
    parser.add_argument("--hubs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    with ExitStack() as stack:
        broker: Broker = (
            stack.enter_context(running_nats_server())
            if given.broker == "nats"
            else stack.enter_context(running_rabbitmq_cluster())
        )
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hubs-")))
        url = stack.enter_context(running_postgres()).create_database("hubs")
        store = open_store(url, migrate=True)
        chaos = stack.enter_context(hub_chaos(store, url, broker, folder, given.seed))
        result = chaos.run(given.seconds, hubs=given.hubs, hands=given.hands)
        chaos.check(result)
        again = sum(runs - 1 for runs in result.runs.values())
        facts = {
            "broker": given.broker,
            "hands": given.hands,
            "jobs": len(result.ids),
            "runs_repeated": again,
        }
        print(json.dumps(facts | {"kills": result.kills, "seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main()
