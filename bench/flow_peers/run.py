"""DBOS and Celery in the benchmark of flows: their environments, servers and programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.engine_storage import Database, Server
from bench.peers.install import install_all, interpreter
from bench.peers.listing import ENVIRONMENTS, Environment
from bench.peers.redis import running_redis

FOLDER = Path(__file__).parent
INTO = FOLDER.parents[1] / ".cache" / "peers"
_PATIENCE = 1_800.0

PEERS: dict[str, tuple[Environment, str]] = {
    "dbos": (
        Environment("dbos", ("dbos==3.3.0", "psycopg==3.3.9", "psycopg-binary==3.3.9")),
        "dbos_functions.py",
    ),
    "celery": (ENVIRONMENTS["celery"], "celery_canvas.py"),
}


def installed(names: Sequence[str]) -> list[str]:
    """Install these peers. One that cannot be installed ends the benchmark, because its column would be empty."""
    if unknown := sorted(set(names) - set(PEERS)):
        raise SystemExit(f"unknown peer {unknown[0]!r}; expected one of {', '.join(PEERS)}")
    if failures := install_all([PEERS[name][0] for name in names], INTO):
        raise SystemExit("not installed: " + "; ".join(failures))
    return list(names)


def measured(name: str, cases: Sequence[str], large: int, server: Server | None) -> dict[str, list[float]]:
    """Run the cases that a peer has, on a new database or a new Redis server."""
    environment, program = PEERS[name]
    with _place(name, server) as url:
        words = [interpreter(environment, INTO), program, ",".join(cases), str(large)]
        done = subprocess.run(
            words,
            cwd=FOLDER,
            env={**os.environ, "BENCH_URL": url},
            stdout=subprocess.PIPE,
            timeout=_PATIENCE,
            check=True,
        )
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    for case, figures in found.items():
        print(f"  {name}, {case}: {sorted(figures)[len(figures) // 2]:.4f}", file=sys.stderr, flush=True)
    return found


@contextmanager
def _place(name: str, server: Server | None) -> Iterator[str]:
    if name == "celery":
        with running_redis() as url:
            yield url
        return
    if server is None:
        raise SystemExit(f"{name} needs PostgreSQL; add postgres to --stores, or leave it out of --peers")
    database = Database(server, "bench_flow_peer")
    database.fresh()
    try:
        yield database.url
    finally:
        database.drop()
