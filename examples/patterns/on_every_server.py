"""Work that each machine does for itself: a health check every minute, and its old temporary files away once an hour.

    python examples/patterns/on_every_server.py [STORE]

``scope="instance"`` makes one job per node of each fire, in a queue that only that node takes from. ``examples/schedules/
cache_on_every_node.py`` is the third of the kind.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tidemill import App, Context, Every, ManualClock


@dataclass
class Health:
    """How a machine is."""

    server: str
    load: float
    memory: int  #: bytes in use by this process, at most until now
    connections: int  #: open network connections of this machine
    disk_free: float
    checked_at: datetime


def open_connections() -> int:
    """The number of established TCP connections, as Linux lists them; 0 elsewhere."""
    tables = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    lines = [line for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return sum(line.split()[3] == "01" for line in lines)


def build(store: str = "memory://", clock: ManualClock | None = None, folder: Path | None = None) -> App:
    """The app, on a store."""
    app = App(store, clock=clock, migrate=True, name="every-server")
    files = folder or Path(tempfile.gettempdir()) / "shop"

    @app.scheduled(Every(timedelta(minutes=1)), key="health", misfire="skip")
    @app.task(scope="instance", retry=None, timeout=timedelta(seconds=10))
    def check_health(ctx: Context) -> Health:
        """Report how this machine is; nobody makes up for a minute in which it was down."""
        disk = shutil.disk_usage(tempfile.gettempdir())
        return Health(
            server=socket.gethostname(),
            load=os.getloadavg()[0],
            memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            connections=open_connections(),
            disk_free=disk.free / disk.total,
            checked_at=ctx.now(),
        )

    @app.scheduled(Every(timedelta(hours=1)), key="temporary-files", args={"folder": str(files)})
    @app.task(scope="instance")
    def remove_old_files(ctx: Context, folder: Path) -> int:
        """Remove what is older than a day; how many."""
        removed = 0
        for file in sorted(folder.glob("*")):
            if time.time() - file.stat().st_mtime > timedelta(days=1).total_seconds():
                file.unlink(missing_ok=True)
                removed += 1
        ctx.log("temporary files removed", removed=removed)
        return removed

    return app


def main(store: str = "memory://") -> None:
    """An hour on one machine."""
    clock = ManualClock(datetime(2026, 1, 1, 12, tzinfo=UTC))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, days in (("old.part", 2), ("new.part", 0)):
            (folder / file).touch()
            os.utime(folder / file, times=(time.time() - days * 86400,) * 2)
        with build(store, clock, folder) as app, app.testing() as testing:
            testing.drain()
            for _ in range(60):
                testing.advance(timedelta(minutes=1))
                testing.drain()
            checks = [job for job in app.jobs.stream(task="check_health") if job.value is not None]
            print(f"{len(checks)} checks of this server")
            print(
                f"{sum(job.value or 0 for job in app.jobs.stream(task='remove_old_files'))} old file removed"
            )
            print(f"left: {sorted(file.name for file in folder.iterdir())}")


if __name__ == "__main__":
    main(*sys.argv[1:])
