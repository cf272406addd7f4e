"""A side of the comparison: a job system on one store, with its programs and how to see that it is done. Here: Tidemill's own.

Every side's program understands ``setup``, ``w1 SECONDS``, ``w2 JOBS``, ``fill JOBS`` and ``w5 SECONDS FILE``; a worker is started by a
command of its own. The peers' sides are made in ``bench.peers.sides``.
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
from bench.engine_ground import Database, File, Ground

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

Commands = Callable[[int, int | None], list[list[str]]]
"""The commands that are the workers with so many processes, each with so much concurrency (None: as it comes)."""


class Failed(RuntimeError):
    """A side's program did not do what it was started for."""


@dataclass
class Side:
    """One job system on one store."""

    name: str
    ground: Ground
    program: list[str]
    workers: Commands
    left: str  #: counts the jobs that are not finished
    folder: Path
    words: dict[str, str] = field(default_factory=dict)
    jobs: int | None = None  #: it is so slow that it drains only so many
    history: Callable[[int], None] | None = None  #: writes finished jobs beside
    done: str | None = None  #: counts the jobs that ended well
    bulk: bool = True
    ours: bool = False

    @property
    def on_postgres(self) -> bool:
        return isinstance(self.ground, Database)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **self.words, **self.ground.words}

    def call(self, *words: object, seconds: float = 300.0) -> Mapping[str, float]:
        """Run its program to the end; what it said."""
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
        said = [line for line in done.stdout.splitlines() if line.startswith("{")]
        answer: dict[str, float] = json.loads(said[-1]) if said else {}
        return answer

    def rate(self, *words: object) -> float:
        answer = self.call(*words)
        return answer["n"] / answer["secs"]

    def fresh(self) -> None:
        """An empty place with a schema."""
        if not self.ground.bring("empty"):
            self.ground.fresh()
            self.call("setup")
            self.ground.keep("empty")

    def fill(self, jobs: int) -> None:
        self.call("fill", jobs)


def tidemill(ground: Ground, name: str, *, embedded: bool = False) -> Side:
    """Tidemill, run by its own command; or, embedded, by a small program that holds a worker."""

    def supervised(processes: int, concurrency: int | None) -> list[list[str]]:
        chosen = [] if concurrency is None else ["--concurrency", str(concurrency)]
        command = [sys.executable, "-m", "tidemill", "worker", "bench.engine_app:app"]
        return [[*command, "--processes", str(processes), "--log-level", "warning", *chosen]]

    def alone(processes: int, concurrency: int | None) -> list[list[str]]:
        chosen = [] if concurrency is None else ["--concurrency", str(concurrency)]
        return [[sys.executable, "-m", "bench.engine_embedded", *chosen] for _ in range(processes)]

    store = "postgres" if isinstance(ground, Database) else "sqlite"

    def history(count: int) -> None:
        if isinstance(ground, Database):
            seeds.finished_postgres(ground.url, count)
        elif isinstance(ground, File):
            seeds.finished_sqlite(ground.path, count)

    return Side(
        name,
        ground,
        [sys.executable, "-m", "bench.engine_client"],
        alone if embedded else supervised,
        _LEFT[store],
        ROOT,
        done=_DONE[store],
        history=history,
        ours=True,
    )
