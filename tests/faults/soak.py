"""A soak: a steady mixed load, and a sample of every resource each minute. No resource may keep growing.

``python -m tests.faults.soak --store both --minutes 120 --rate 20`` prints one line per sample and a verdict for each
resource: the median of the last third of the samples is compared with that of the middle third.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

from tests.faults.kit import Stuck, Worker, child_environment, clock, pause, until
from tests.faults.soak_load import Load
from tests.faults.soak_samples import Sample, resources, store_resources
from tests.faults.tasks import STORE
from tests.servers.postgres import running_postgres

STORES = ("postgres", "sqlite")
APP = "tests.faults.soak_app:app"
_PATIENCE = 240.0

ALLOWED: Mapping[str, float] = {
    "memory": 1.10, "descriptors": 1.05, "threads": 1.05, "connections": 1.05, "rows": 1.15, "tables": 1.15,
    "indexes": 1.15, "wal": 1.25, "file": 1.15,
}  # fmt: skip
"""How much more the last third may use than the middle third, by the first word of a resource's name."""

SLACK: Mapping[str, float] = {
    "memory": 3e6, "descriptors": 3, "threads": 2, "connections": 2, "rows": 300, "tables": 1e6, "indexes": 1e6, "wal": 40e6,
    "file": 4e6,
}  # fmt: skip
"""Growth that is always allowed: the size of one step, such as a page or a segment of the WAL."""

GROWING = ("rows in rollups", "rows in rollup_times", "rows in audit", "rows in failures", "rows in fires")
"""Rows that are kept for hours, for days or without a limit by design; a soak only reports them."""


class Finding(NamedTuple):
    """The verdict about one resource."""

    name: str
    first: float
    middle: float
    last: float
    highest: float
    levels_off: bool


def judge(samples: Sequence[Sample]) -> list[Finding]:
    """Compare the last third of the samples of each resource with the middle third."""
    found = []
    third = len(samples) // 3
    for name in samples[-1]:
        values = [sample.get(name, 0.0) for sample in samples]
        first, middle, last = (
            median(part) for part in (values[:third], values[third : 2 * third], values[2 * third :])
        )
        kind = name.partition(" ")[0]
        levels_off = name in GROWING or last <= middle * ALLOWED[kind] + SLACK[kind]
        found.append(Finding(name, first, middle, last, max(values), levels_off))
    return found


def run(
    url: str, folder: Path, minutes: int, rate: float, seed: int, seconds: float = 60.0
) -> dict[str, object]:
    """Run the load, and take a sample every ``seconds``; return the findings and the ends of all jobs."""
    environment = child_environment(folder) | {STORE: url}
    words = [sys.executable, "-m", "tidemill"]
    worker = Worker(
        [*words, "worker", APP, "--processes", "2", "--children", "0"], folder / "worker", environment
    )
    server = Worker([*words, "serve", APP, "--port", "0"], folder / "server", environment)
    with contextlib.ExitStack() as stack:
        stack.callback(worker.end)
        stack.callback(server.end)
        worker.ready(2)
        samples: list[Sample] = []
        load = stack.enter_context(contextlib.closing(Load(url, server, rate, Random(seed))))
        with load:
            for minute in range(minutes):
                pause(seconds)
                if not (worker.alive and server.alive):
                    raise Stuck(f"a process exited: {worker.log[-2000:]} {server.log[-2000:]}")
                sample = resources({"worker": worker.pid, "server": server.pid, "client": os.getpid()})
                samples.append(sample | store_resources(url))
                print(json.dumps({"minute": minute + 1, **load.counts(), **rounded(samples[-1])}), flush=True)
        until(load.is_drained, "every job has ended", _PATIENCE)
        findings = judge(samples)
        return {"findings": findings, "counts": load.counts(), "refused": load.refused}


def rounded(sample: Sample) -> dict[str, float]:
    """The sample without fractions."""
    return {name: round(value) for name, value in sample.items()}


@contextlib.contextmanager
def opened(store: str, folder: Path) -> Iterator[str]:
    """Yield the URL of a new store with durable writes."""
    if store == "sqlite":
        yield f"sqlite:///{folder}/jobs.db"
    else:
        with running_postgres(
            fsync=True, settings={"max_wal_size": "256MB", "checkpoint_timeout": "60"}
        ) as server:
            yield server.create_database("soak")


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak")
    parser.add_argument("--store", choices=(*STORES, "both"), default="both")
    parser.add_argument("--minutes", type=int, default=120)
    parser.add_argument("--rate", type=float, default=20.0, help="jobs per second")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    red = False
    for store in STORES if given.store == "both" else (given.store,):
        began = clock.monotonic()
        with tempfile.TemporaryDirectory(prefix="soak-") as name, opened(store, Path(name)) as url:
            outcome = run(url, Path(name), given.minutes, given.rate, given.seed)
        findings = outcome.pop("findings")
        assert isinstance(findings, list)
        print(f"{store}, {clock.monotonic() - began:.0f} s: {json.dumps(outcome)}")
        for finding in findings:
            verdict = "" if finding.levels_off else "GROWS"
            figures = "".join(
                f"{value:>14,.0f}" for value in (finding.first, finding.middle, finding.last, finding.highest)
            )
            print(f"  {finding.name:<34}{figures}  {verdict}")
        red = red or not all(finding.levels_off for finding in findings)
    sys.exit(red)


if __name__ == "__main__":
    _main()
