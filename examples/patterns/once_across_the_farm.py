"""A letter that goes out once a day at nine, however many servers there are.

    python examples/patterns/once_across_the_farm.py [STORE]

A schedule is of cluster scope unless it says otherwise: a fire is a row that only one of all schedulers can write. Here three
apps on one store, as three servers would be, all look for what is due at the same moment.
"""

from __future__ import annotations

import contextlib
import sys
from datetime import UTC, datetime, timedelta

from tidemill import App, Context, Daily, ManualClock, Store, open_store

sent: list[str] = []


def build(store: str | Store, clock: ManualClock) -> App:
    """The app of one server."""
    app = App(store, clock=clock, migrate=True, name="daily-letter")

    @app.scheduled(
        Daily("09:00"), key="daily-letter", timezone="Europe/Berlin", args={"to": "all@shop.example"}
    )
    def send_letter(ctx: Context, to: str) -> None:
        """Send the letter of the day. The key lets the mail service drop a second one if this job must run again."""
        sent.append(f"{to} {ctx.now():%Y-%m-%d} key {ctx.idempotency_key[:8]}")

    return app


def main(url: str = "memory://") -> None:
    """Two days, three servers."""
    clock = ManualClock(datetime(2026, 6, 1, 5, tzinfo=UTC))
    with contextlib.closing(open_store(url, clock=clock, migrate=True)) as store:
        servers = [build(store, clock) for _ in range(3)]
        for server in servers:
            server.testing().drain()
        for _ in range(2):
            clock.advance(timedelta(days=1))
            for server in servers:
                server.testing().drain()
        fires = [fire for fire in servers[0].schedules.fires("daily-letter") if fire.job_id is not None]
        print(f"{len(servers)} servers, {len(fires)} fires, {len(sent)} letters")
        for line in sent:
            print(line.rpartition(" key")[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
