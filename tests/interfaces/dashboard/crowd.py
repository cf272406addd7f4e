"""Jobs, workers and leases for the pages that show them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from html import unescape
from typing import Any
from uuid import UUID

from tests.interfaces.dashboard.kit import House
from tests.interfaces.rest.kit import Browser

from tidemill.domain.cluster import Worker
from tidemill.domain.lanes import ClaimRequest, Watermarks
from tidemill.ids import new_id

HOUR = timedelta(hours=1)


def post(shop: House, task: str = "send", tenant: str = "acme", **args: Any) -> str:
    """Create a job and return its id."""
    browser = Browser(shop.site_app)
    try:
        answer = browser.request(
            "POST",
            "/api/jobs",
            json={"task": task, "args": args or {"to": "ada"}},
            headers={"authorization": f"Bearer {shop.key('operator', tenant)}"},
        )
    finally:
        browser.close()
    assert answer.status_code == 201, answer.text
    id: str = answer.json()["id"]
    return id


def join(shop: House, name: str, *, lease: timedelta = HOUR, **facts: Any) -> Worker:
    """Register a worker."""
    given: dict[str, Any] = {"host": "mill", "pid": 7, "concurrency": 4, "version": "1.2.3", **facts}
    return shop.app.store.register(Worker(new_id(), name, **given), lease=lease)


def claim(shop: House, worker: Worker, number: int = 1) -> list[UUID]:
    """Let a worker claim some of the waiting jobs."""
    marks = Watermarks()
    marks.seen(shop.app.store.lanes())
    return [each.id for each in shop.app.store.claim(ClaimRequest(worker.id, marks.lanes(), number))]


def lead(
    shop: House,
    worker: Worker,
    *,
    ticked_at: datetime | None,
    errors: int = 0,
    acquired_at: datetime | None = None,
) -> None:
    """Let a worker acquire the lease and report the state of one duty."""
    store = shop.app.store
    lease = store.acquire("duties", worker.id, ttl=HOUR, now=acquired_at)
    assert lease is not None
    facts = {
        "last_tick": None if ticked_at is None else ticked_at.isoformat(),
        "items": 12,
        "errors": errors,
        "last_error": "StoreBusy: <b>try again</b>" if errors else None,
        "took_ms": 1.5,
    }
    assert store.renew("duties", worker.id, lease.term, ttl=HOUR, metadata={"duties": {"promote": facts}})


def words(page: str) -> str:
    """The text of a page without tags, with single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())
