"""What is kept of a run that ended red: the verdict, and the store's tables as text. The workers' logs and the ledger are there
already.
"""

from __future__ import annotations

import contextlib
import csv
import json
import sqlite3
from typing import Any

import psycopg
from tests.faults.stage import Stage

_TABLES = ("ready", "scheduled", "parked", "running", "history", "executions", "fires", "schedules", "leases", "workers", "audit", "uniques", "uses")  # fmt: skip


def keep(stage: Stage, verdict: dict[str, Any]) -> None:
    """Write it all into the run's folder."""
    (stage.folder / "verdict.json").write_text(json.dumps(verdict, default=str, indent=1))
    halts = [
        f"{span.kind} {span.began:.3f} {span.ended:.3f} {sorted(span.pids)}" for span in stage.hurt.halted
    ]
    outages = [
        f"{span.kind} {span.began:.3f} {span.ended:.3f} {span.began_at} {span.ended_at}"
        for span in stage.hurt.outages
    ]
    kills = [f"kill {pid} {at:.3f}" for pid, at in stage.hurt.killed.items()]
    (stage.folder / "hurt").write_text("\n".join([*halts, *outages, *kills]))
    for table in _TABLES:
        with contextlib.suppress(psycopg.Error, sqlite3.Error):
            names, rows = _read(stage, table)
            with (stage.folder / f"{table}.csv").open("w", newline="") as file:
                out = csv.writer(file)
                out.writerow(names)
                out.writerows(
                    [[each.hex() if isinstance(each, bytes) else each for each in row] for row in rows]
                )


def _read(stage: Stage, table: str) -> tuple[list[str], list[Any]]:
    if stage.server is None:
        path = stage.url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path)) as raw:
            cursor = raw.execute(f"select * from tidemill_{table}")
            return [column[0] for column in cursor.description], cursor.fetchall()
    with psycopg.connect(stage.url) as connection:
        found = connection.execute(f"select * from tidemill.{table}".encode())
        return [column.name for column in found.description or ()], list(found.fetchall())
