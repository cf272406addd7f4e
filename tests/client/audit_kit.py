"""Helpers for the audit tests: an app with tasks, and short forms of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from tidemill import App, Job, Review
from tidemill.domain.cluster import Worker
from tidemill.domain.job import Claim
from tidemill.domain.lanes import ClaimRequest, Watermarks
from tidemill.domain.records import AuditEntry
from tidemill.ids import new_id

HOUR = timedelta(hours=1)
SECRET = "open sesame"


class Broken(Exception):
    """Raised in place of writing to the audit log."""


def send(to: str, size: int = 1) -> str:
    return to * size


def look(what: str) -> None:
    raise Review("is this right?", output=what)


def with_tasks(app: App) -> App:
    app.task(name="send")(send)
    app.task(name="look")(look)
    return app


def jobs(app: App, count: int, task: str = "send") -> list[Job[Any]]:
    """Enqueue jobs whose arguments must not appear in the audit log."""
    given = {"to": SECRET} if task == "send" else {"what": SECRET}
    return app.bound_task(task).enqueue_many([given] * count)


def claimed(app: App, limit: int = 1) -> list[Claim]:
    """Register a worker and claim jobs for it."""
    worker = app.store.register(Worker(new_id(), "w1"), lease=HOUR)
    marks = Watermarks()
    marks.seen(app.store.lanes())
    return app.store.claim(ClaimRequest(worker.id, marks.lanes(), limit))


def entries(app: App) -> list[AuditEntry]:
    """All audit entries of all tenants, in order."""
    return [record.entry for record in app.audit.list(tenant="*", limit=1000)]


def acts(app: App) -> list[tuple[str, str]]:
    """The action and subject of each audit entry, in order."""
    return [(entry.action, entry.subject) for entry in entries(app)]


@contextmanager
def no_audit(app: App, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make every write to the audit log fail inside the block."""

    def record(*_: Any, **__: Any) -> None:
        raise Broken

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "record", record)
        yield


def undone(app: App, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Check that the action fails if its audit entry cannot be written."""
    with no_audit(app, monkeypatch), pytest.raises(Broken):
        act()
