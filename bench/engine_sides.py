"""The sides of the comparison: Tidemill on both stores and the peers, each with its programs and how to see that it is done.

The peers' programs are given as a folder (``p_*.py``, ``p_*.mjs``, and ``peers.py``, which lists them with their settings) and
their environments as another; nothing of them is in this repository. Every program understands ``setup``, ``w1 SECONDS``,
``w2 JOBS``, ``fill JOBS`` and ``w5 SECONDS FILE``; a worker is started by a command of its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from bench import seeds
from bench.engine_ground import Database, File, Ground, Server

ROOT = Path(__file__).resolve().parents[1]
WANTED = (
    "pgqueuer",
    "graphile-worker-batch",
    "graphile-worker",
    "huey-sqlite",
    "procrastinate",
    "pg-boss",
    "oban",
)
MANY = 20_000  # who drains fewer in the peers' list is slow, and is given as many as it says there
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


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bench_peers_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise Failed(f"{path} is not there; give the folder of the peers' programs with --peers")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def peers(folder: Path, venvs: Path, names: Sequence[str], server: Server | None, files: Path) -> list[Side]:
    """Those of the named peers whose environment is there and whose store is one we have."""
    listed: dict[str, dict[str, Any]] = _module(folder / "peers.py").PEERS
    expected = urlsplit(_module(folder / "common.py").PG)
    found = []
    for name in names:
        if name not in listed:
            raise Failed(f"there is no peer {name!r}; there are {', '.join(sorted(listed))}")
        about = listed[name]
        program = _program(folder, venvs, about)
        if program is None:
            continue
        if about["store"] == "sqlite":
            ground: Ground = File(files / name)
        elif about["store"] != "pg" or server is None:
            continue
        elif server.address != (expected.hostname, expected.port):
            raise Failed(
                f"the peers' programs look for PostgreSQL at {expected.netloc}; give that server with --postgres"
            )
        else:
            ground = Database(server, "bench_engine_" + name.replace("-", "_"))
        found.append(_peer(name, about, ground, program, folder))
    return found


def _program(folder: Path, venvs: Path, about: Mapping[str, Any]) -> list[str] | None:
    script, place = folder / about["file"], (venvs / about["venv"]).absolute()
    interpreter = place / ("node_modules/.bin/node" if script.suffix == ".mjs" else "bin/python")
    return [str(interpreter), str(script.absolute())] if interpreter.exists() else None


def _peer(name: str, about: Mapping[str, Any], ground: Ground, program: list[str], folder: Path) -> Side:
    statement = about.get("history")

    def workers(processes: int, concurrency: int | None) -> list[list[str]]:  # noqa: ARG001  (tuned in the peers' list)
        return [[*program, "worker"] for _ in range(processes)]

    def history(count: int) -> None:
        assert isinstance(ground, Database)
        assert isinstance(statement, str)
        ground.do(statement.replace("1000000", str(count)))

    source = (folder / about["file"]).read_text()
    return Side(
        name,
        ground,
        program,
        workers,
        about["left"],
        folder,
        words=dict(about["env"]),
        jobs=None if about["n"] >= MANY else int(about["n"]),
        # "@copy" stands for a way of seeding that only the peers' own runner knows.
        history=history if isinstance(statement, str) and not statement.startswith("@") else None,
        bulk="def push_many" in source or "pushMany" in source,
    )
