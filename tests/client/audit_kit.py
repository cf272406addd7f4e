"""What the tests of the audit share: an app with a task on each store, and the audit in short."""

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
from tidemill.domain.ledger import AuditEntry
from tidemill.ids import new_id

HOUR = timedelta(hours=1)
SECRET = "open sesame"


class Broken(Exception):
    """Raised in the place of writing to the audit."""


def send(to: str, size: int = 1) -> str:
    return to * size


def look(what: str) -> None:
    raise Review("is this right?", output=what)


def with_tasks(app: App) -> App:
    app.task(name="send")(send)
    app.task(name="look")(look)
    return app


def jobs(app: App, count: int, task: str = "send") -> list[Job[Any]]:
    """Jobs whose arguments nobody else may see."""
    given = {"to": SECRET} if task == "send" else {"what": SECRET}
    return [
        Job(app._client, facts)
        for facts in app._client.enqueue(
            app.registry.get(task), _no_options(), [((), given) for _ in range(count)]
        )
    ]


def _no_options() -> Any:
    from tidemill.client.options import NO_OPTIONS

    return NO_OPTIONS


def claimed(app: App, limit: int = 1) -> list[Claim]:
    """Jobs in a worker's hands."""
    worker = app.store.register(Worker(new_id(), "w1"), lease=HOUR)
    marks = Watermarks()
    marks.seen(app.store.lanes())
    return app.store.claim(ClaimRequest(worker.id, marks.lanes(), limit))


def entries(app: App) -> list[AuditEntry]:
    """Everything that was written down, in order."""
    return [record.entry for record in app.audit.list(tenant="*", limit=1000)]


def acts(app: App) -> list[tuple[str, str]]:
    """What was done to what, in order."""
    return [(entry.action, entry.subject) for entry in entries(app)]


@contextmanager
def no_audit(app: App, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the block the audit cannot be written."""

    def record(*_: Any, **__: Any) -> None:
        raise Broken

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "record", record)
        yield


def undone(app: App, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """The act fails where it cannot be written down."""
    with no_audit(app, monkeypatch), pytest.raises(Broken):
        act()
