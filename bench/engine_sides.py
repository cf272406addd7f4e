"""A side of the comparison: a job system on one store, with its programs.

Every side's program accepts ``setup``, ``w1 SECONDS``, ``w2 JOBS``, ``fill JOBS`` and ``w5 SECONDS FILE``; a separate command starts
a worker. This module defines Tidemill's sides; ``bench.peers.sides`` defines those of the peers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench import seeds
from bench.engine_storage import Database, File, Storage
from bench.peers.work import Kind

ROOT = Path(__file__).resolve().parents[1]
_LEFT = {
    "postgres": "select (select count(*) from tidemill.ready) + (select count(*) from tidemill.running)"
    " + (select count(*) from tidemill.scheduled)",
    "sqlite": "select (select count(*) from tidemill_ready) + (select count(*) from tidemill_running)"
    " + (select count(*) from tidemill_scheduled)",
}
_DONE = {
    "postgres": "select count(*) from tidemill.history where state = 'completed' and result = '{\"ok\":true}'",
    "sqlite": "select count(*) from tidemill_history where state = 'completed' and result = '{\"ok\":true}'",
}

Commands = Callable[[int, int | None, int | None], list[list[str]]]
"""Returns the commands that start a number of worker processes, each with this concurrency and these threads (None: the default)."""


class Failed(RuntimeError):
    """A side's program failed."""


@dataclass
class Side:
    """One job system on one store."""

    name: str
    storage: Storage
    program: list[str]
    workers: Commands
    left: str  #: counts the jobs that are not finished
    folder: Path
    words: dict[str, str] = field(default_factory=dict)
    jobs: int | None = None  #: number of jobs to drain, for slow systems
    history: Callable[[int], None] | None = None  #: adds finished jobs
    done: str | None = None  #: counts the jobs that ended well
    bulk: bool = True
    ours: bool = False
    works: tuple[Kind, ...] = ()  #: kinds of work that its jobs can do

    @property
    def on_postgres(self) -> bool:
        return isinstance(self.storage, Database)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **self.words, **self.storage.words}

    def call(self, *words: object, seconds: float = 300.0) -> Mapping[str, float]:
        """Run the program to its end; return its answer."""
        command = [*self.program, *map(str, words)]
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode:
            raise Failed(f"{self.name} {' '.join(map(str, words))}: {done.stderr.strip()[-800:]}")
        answers = [line for line in done.stdout.splitlines() if line.startswith("{")]
        answer: dict[str, float] = json.loads(answers[-1]) if answers else {}
        return answer

    def rate(self, *words: object) -> float:
        answer = self.call(*words)
        return answer["n"] / answer["secs"]

    def fresh(self) -> None:
        """Create empty storage with a schema."""
        if not self.storage.bring("empty"):
            self.storage.fresh()
            self.call("setup")
            self.storage.keep("empty")

    def fill(self, jobs: int) -> None:
        self.call("fill", jobs)


def tidemill(storage: Storage, name: str, *, embedded: bool = False) -> Side:
    """Return Tidemill's side, run by its own command, or by a small program that embeds a worker."""

    def slots(concurrency: int | None, threads: int | None) -> list[str]:
        chosen = {"--concurrency": concurrency, "--threads": threads}
        return [word for name, count in chosen.items() if count is not None for word in (name, str(count))]

    def supervised(processes: int, concurrency: int | None, threads: int | None) -> list[list[str]]:
        command = [sys.executable, "-m", "tidemill", "worker", "bench.engine_app:app"]
        return [
            [*command, "--processes", str(processes), "--log-level", "warning", *slots(concurrency, threads)]
        ]

    def alone(processes: int, concurrency: int | None, threads: int | None) -> list[list[str]]:
        command = [sys.executable, "-m", "bench.engine_embedded", *slots(concurrency, threads)]
        return [command for _ in range(processes)]

    store = "postgres" if isinstance(storage, Database) else "sqlite"

    def history(count: int) -> None:
        if isinstance(storage, Database):
            seeds.finished_postgres(storage.url, count)
        elif isinstance(storage, File):
            seeds.finished_sqlite(storage.path, count)

    return Side(
        name,
        storage,
        [sys.executable, "-m", "bench.engine_client"],
        alone if embedded else supervised,
        _LEFT[store],
        ROOT,
        done=_DONE[store],
        history=history,
        ours=True,
        works=("spin", "block", "await", "report"),
    )
