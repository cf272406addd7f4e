"""The conditions of a run: machine, versions, settings and omissions; no paths."""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.engine import POSTGRES_SETTINGS, Stage
from bench.engine_run import Run
from bench.engine_sides import ROOT, Side
from bench.peers.install import interpreter
from bench.peers.listing import ENVIRONMENTS, OURS, PEERS, Store

_PATH = re.compile(r"(?:/[\w.@+~-]+){2,}/?")


def results(
    run: Run, about: Mapping[str, object], left_out: Sequence[str], *, quick: bool
) -> dict[str, object]:
    """Return the content of ``results.json``; ``about`` are the conditions at the start of the run."""
    sizes = {name: value for name, value in vars(run.rig).items() if isinstance(value, (int, float))}
    return {
        "conditions": about,
        "rounds": run.plan.rounds,
        "quick": quick,
        "sizes": {**sizes, "w1_seconds": run.plan.seconds},
        "sides": {side.name: _side(side, run) for side in run.sides},
        "left_out": list(left_out),
        "workloads": _rounded(run.results),
        "failures": [plain(failure) for failure in run.failures],
    }


def reworded(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return earlier results with the current texts of the listing, which are not measurements."""
    sides = {}
    for name, side in results["sides"].items():
        promise = OURS[side["store"]] if side["ours"] else PEERS[name].promise if name in PEERS else None
        settings = PEERS[name].settings if name in PEERS else side["settings"]
        sides[name] = side if promise is None else {**side, "settings": settings, "promise": asdict(promise)}
    return {**results, "sides": sides}


def plain(text: str) -> str:
    """Return the first line of an error, without paths of this machine.

    >>> plain("rq: File /srv/peers/rq/lib/worker.py is gone")
    'rq: File … is gone'
    """
    return _PATH.sub("…", text.strip().splitlines()[0])[:200]


def _rounded(
    workloads: Mapping[str, Mapping[str, Sequence[Mapping[str, float] | None]]],
) -> dict[str, object]:
    """Round to six digits, which is sufficient and keeps the file small."""
    return {
        what: {
            name: [
                None if figures is None else {key: float(f"{value:.6g}") for key, value in figures.items()}
                for figures in rounds
            ]
            for name, rounds in workload.items()
        }
        for what, workload in workloads.items()
    }


def _side(side: Side, run: Run) -> dict[str, object]:
    if side.ours:
        store: Store = "postgres" if side.on_postgres else "sqlite"
        return {
            "store": store,
            "ours": True,
            "concurrency": run.rig.concurrency,
            "settings": "`tidemill worker --processes 1`; default concurrency in W5 and W6",
            "packages": [f"tidemill {version('tidemill')}"],
            "promise": asdict(OURS[store]),
        }
    peer = PEERS[side.name]
    return {
        "store": peer.store,
        "ours": False,
        "concurrency": peer.concurrency,
        "settings": peer.settings,
        "packages": [_spaced(package) for package in ENVIRONMENTS[peer.environment].packages],
        "promise": asdict(peer.promise),
    }


def _spaced(package: str) -> str:
    return re.sub(r"==|(?<=.)@", " ", package)


def conditions(set_: Stage, sides: Sequence[Side], into: Path) -> dict[str, object]:
    """Return the time, the machine and the versions."""
    postgres = None if set_.server is None else set_.server.version.split()[0]
    stated = ", ".join(f"`{name}={value}`" for name, value in POSTGRES_SETTINGS.items())
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "machine": {
            "cpu": _field("/proc/cpuinfo", "model name") or platform.machine(),
            "cores": os.cpu_count(),
            "memory_gb": float((_field("/proc/meminfo", "MemTotal") or "0").split()[0]) / 2**20,
            "system": f"{platform.system()} {platform.release().split('-')[0]}",
        },
        "versions": {
            "Python": platform.python_version(),
            "PostgreSQL": postgres,
            "Redis": None if set_.redis is None else set_.redis.version,
            "Node": _node(sides, into),
        },
        "postgres": f"{stated}, otherwise default settings; `fsync` and `synchronous_commit` are on"
        if postgres
        else "none",
        "redis": "default settings: snapshots, no append-only file" if set_.redis is not None else "none",
        "load": [round(it, 2) for it in os.getloadavg()],
    }


def _field(file: str, name: str) -> str | None:
    path = Path(file)
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _commit() -> str:
    commit = _said("git", "rev-parse", "--short=10", "HEAD") or "unknown"
    changed = _said("git", "status", "--porcelain", "--", "src", "bench")
    return f"{commit} with changes" if changed else commit


def _node(sides: Sequence[Side], into: Path) -> str | None:
    for side in sides:
        peer = PEERS.get(side.name)
        if peer is not None and ENVIRONMENTS[peer.environment].node:
            return _said(interpreter(ENVIRONMENTS[peer.environment], into), "--version").lstrip("v") or None
    return None
