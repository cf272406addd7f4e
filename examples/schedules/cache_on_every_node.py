"""Clear a local cache on every node, every six hours.

    python examples/schedules/cache_on_every_node.py [STORE]

With ``scope="instance"`` every node makes its own job of each fire, in a queue that only it takes from. A node is a machine:
its name is the machine's id, or what TIDEMILL_NODE says. A node that starts later has nothing to make up for.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tidemill import App, Every, ManualClock


def build(store: str = "memory://", clock: ManualClock | None = None) -> App:
    """The app, on a store."""
    app = App(store, clock=clock, migrate=True, name="local-cache")

    @app.scheduled(Every(timedelta(hours=6)), key="clear-cache", args={"folder": str(cache())})
    @app.task(scope="instance", retry=None)
    def clear_cache(folder: Path) -> int:
        """Remove this machine's cached files; how many."""
        files = list(folder.glob("*.cache"))
        for file in files:
            file.unlink()
        return len(files)

    return app


def cache() -> Path:
    """Where this machine keeps its cache."""
    return Path(tempfile.gettempdir()) / "tidemill-example-cache"


def main(store: str = "memory://") -> None:
    """Half a day on one node."""
    clock = ManualClock(datetime(2026, 1, 1, 3, tzinfo=UTC))
    cache().mkdir(exist_ok=True)
    with build(store, clock) as app, app.testing() as testing:
        testing.drain()
        for number in range(2):
            (cache() / f"{number}.cache").touch()
            testing.advance(timedelta(hours=6))
            testing.drain()
        for fire in reversed(app.schedules.fires("clear-cache")):
            print(f"{fire.fire_at:%H:%M} UTC {fire.outcome}{': ' + fire.reason if fire.reason else ''}")
        print(f"{sum(job.value or 0 for job in app.jobs.stream())} files cleared")
    cache().rmdir()


if __name__ == "__main__":
    main(*sys.argv[1:])
