"""Artifacts of a failed run: the verdict and the store's tables as text.

The run's folder already holds the workers' logs and the ledger.
"""

from __future__ import annotations

import contextlib
import csv
import json
import sqlite3
from typing import Any

import psycopg
from tests.faults.cluster import Cluster

_TABLES = ("ready", "scheduled", "parked", "running", "history", "executions", "fires", "schedules", "leases", "workers", "audit", "uniques", "uses")  # fmt: skip


def keep(cluster: Cluster, verdict: dict[str, Any]) -> None:
    """Write the artifacts into the run's folder."""
    (cluster.folder / "verdict.json").write_text(json.dumps(verdict, default=str, indent=1))
    halts = [
        f"{span.kind} {span.began:.3f} {span.ended:.3f} {sorted(span.pids)}"
        for span in (*cluster.fault_log.halted, *cluster.fault_log.headless)
    ]
    outages = [
        f"{span.kind} {span.began:.3f} {span.ended:.3f} {span.began_at} {span.ended_at}"
        for span in cluster.fault_log.outages
    ]
    kills = [f"kill {pid} {at:.3f}" for pid, at in cluster.fault_log.killed.items()]
    steps = [f"clock {step.offset:+g} s at {step.at:.3f}" for step in cluster.clock_control.steps]
    (cluster.folder / "fault_log").write_text("\n".join([*halts, *outages, *kills, *steps]))
    for table in _TABLES:
        with contextlib.suppress(psycopg.Error, sqlite3.Error):
            names, rows = _read(cluster, table)
            with (cluster.folder / f"{table}.csv").open("w", newline="") as file:
                out = csv.writer(file)
                out.writerow(names)
                out.writerows(
                    [[value.hex() if isinstance(value, bytes) else value for value in row] for row in rows]
                )


def _read(cluster: Cluster, table: str) -> tuple[list[str], list[Any]]:
    if cluster.server is None:
        path = cluster.url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path)) as raw:
            cursor = raw.execute(f"select * from tidemill_{table}")
            return [column[0] for column in cursor.description], cursor.fetchall()
    with psycopg.connect(cluster.url) as connection:
        selected = connection.execute(f"select * from tidemill.{table}".encode())
        return [column.name for column in selected.description or ()], list(selected.fetchall())
