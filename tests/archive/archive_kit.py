"""Jobs and documents for archive tests."""

from __future__ import annotations

from typing import Any

from tidemill import App
from tidemill.domain.retention import ArchivedJob, Selection, Selector


def ended_jobs(app: App, count: int, tenant: str = "default", **options: Any) -> list[Any]:
    """Run jobs to their end and return their handles."""
    if "note" not in app.registry.names():

        @app.task(name="note")
        def _note(text: str) -> str:
            return text.upper()

    task = app.bound_task("note")
    jobs = [task.using(tenant=tenant, **options).enqueue(text=f"text {number}") for number in range(count)]
    app.testing().drain()
    return jobs


def documents(app: App, tier: str = "cold") -> list[ArchivedJob]:
    """The documents of all ended jobs, as an archive run would write them."""
    return app.store.archivable(Selection(Selector(), limit=10_000), policy="test", tier=tier)
