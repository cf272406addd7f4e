"""A monthly report for each tenant, exported as a job of its own: the tenant is in the air, nobody passes it on.

    python examples/patterns/tenants_report.py [STORE]

``app.tenant(name)`` is around the sign-up; schedules, jobs and their children are that tenant's from then on, limits and queues keep
tenants from standing in each other's way, and no question answers with another tenant's things.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

from tidemill import App, Context, ManualClock, Monthly

blobs: dict[str, str] = {}


def build(store: str = "memory://", clock: ManualClock | None = None) -> App:
    """The app, on a store."""
    app = App(store, clock=clock, migrate=True, name="reports")

    @app.task(queue="reports", max_concurrent=2)
    def monthly_report(ctx: Context) -> str:
        """Put last month's figures together, and have them stored."""
        month = ctx.now().replace(day=1) - timedelta(days=1)
        store_report.enqueue(path=f"{ctx.tenant}/reports/{month:%Y-%m}.txt", text=f"figures of {ctx.tenant}")
        return f"{month:%Y-%m}"

    @app.task(queue="reports")
    def store_report(path: str, text: str) -> None:
        """Keep it where the tenant finds it."""
        blobs[path] = text

    return app


def sign_up(app: App, tenant: str) -> None:
    """A tenant comes: on the first of each month at midnight it gets a report."""
    with app.tenant(tenant):
        app.schedules.add("monthly_report", Monthly(1, "00:00"), "monthly-report")


def main(store: str = "memory://") -> None:
    """Two tenants, two months."""
    clock = ManualClock(datetime(2026, 1, 15, tzinfo=UTC))
    with build(store, clock) as app, app.testing() as testing:
        for tenant in ("acme", "bolt"):
            sign_up(app, tenant)
        testing.run_until_idle(timedelta(days=50))
        for path in sorted(blobs):
            print(f"{path}: {blobs[path]}")
        for tenant in ("acme", "bolt"):
            with app.tenant(tenant):
                print(f"{tenant} sees {app.jobs.count()} jobs, all of {tenant}")


if __name__ == "__main__":
    main(*sys.argv[1:])
