"""A monthly report for every tenant, registered when the tenant signs up.

    python examples/schedules/tenant_reports.py [STORE]

Each tenant has a definition of its own (who gets the report, in which language) and a schedule of it in its own time zone.
Both are rows: they are made, changed and removed at run time, and a job remembers the version of the definition it ran with.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

from tidemill import App, Context, ManualClock, MonthlyBusinessDay


def build(store: str = "memory://", clock: ManualClock | None = None) -> App:
    """The app, on a store."""
    app = App(store, clock=clock, migrate=True, name="tenant-reports")

    @app.task(queue="reports", timeout=timedelta(minutes=10))
    def monthly_report(recipient: str, ctx: Context, language: str = "en") -> str:
        """Write last month's report for one tenant."""
        return f"{ctx.tenant}: report in {language} for {recipient}"

    return app


def onboard(app: App, tenant: str, recipient: str, timezone: str, language: str = "en") -> None:
    """A tenant signs up: on the first business day of each month it gets a report, at eight in the morning where it is."""
    with app.tenant(tenant):
        definition = app.definitions.save(
            "monthly-report",
            "monthly_report",
            args={"recipient": recipient, "language": language},
            by="onboarding",
        )
        app.schedules.add(
            definition, MonthlyBusinessDay(1, "08:00"), "monthly-report", timezone=timezone, misfire="once"
        )


def main(store: str = "memory://") -> None:
    """Two tenants, two months."""
    clock = ManualClock(datetime(2026, 1, 15, tzinfo=UTC))
    with build(store, clock) as app, app.testing() as testing:
        onboard(app, "acme", "ann@acme.example", "America/New_York")
        onboard(app, "bolt", "bo@bolt.example", "Europe/Berlin", language="de")
        testing.run_until_idle(timedelta(days=30))
        with app.tenant("bolt"):
            app.definitions.save("monthly-report", args={"recipient": "new@bolt.example", "language": "de"})
        testing.run_until_idle(timedelta(days=30))
        for job in app.jobs.stream(tenant="*"):
            details = job.row.details
            print(f"{details.fire_at:%Y-%m-%d %H:%M} UTC, version {details.definition_version}: {job.value}")


if __name__ == "__main__":
    main(*sys.argv[1:])
