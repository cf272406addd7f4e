"""Delete expired tokens every night at 02:00, local time.

    python examples/schedules/token_cleanup.py [STORE]

The schedule is declared beside its task, so it is stored when a worker starts and follows the code from then on. A night
on which no worker ran is made up for once, in the morning.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

from tidemill import App, Daily, ManualClock

tokens: dict[str, datetime] = {}


def build(store: str = "memory://", clock: ManualClock | None = None) -> App:
    """The app, on a store."""
    app = App(store, clock=clock, migrate=True, name="token-cleanup")

    @app.scheduled(Daily("02:00"), key="token-cleanup", timezone="Europe/Berlin", misfire="once")
    def delete_expired_tokens() -> int:
        """Forget tokens whose time is over; how many."""
        now = app.clock.now()
        expired = [token for token, until in tokens.items() if until <= now]
        for token in expired:
            del tokens[token]
        return len(expired)

    return app


def main(store: str = "memory://") -> None:
    """Two nights in a moment."""
    clock = ManualClock(datetime(2026, 6, 1, 12, tzinfo=UTC))
    tokens.update(a=clock.now() + timedelta(hours=6), b=clock.now() + timedelta(hours=30))
    with build(store, clock) as app, app.testing() as testing:
        testing.drain()
        for night in (1, 2):
            testing.advance(timedelta(days=1))
            testing.drain()
            print(f"night {night}: {sorted(tokens)} left")
        for fire in reversed(app.schedules.fires("token-cleanup")):
            print(f"{fire.fire_at:%Y-%m-%d %H:%M} UTC {fire.outcome}")


if __name__ == "__main__":
    main(*sys.argv[1:])
