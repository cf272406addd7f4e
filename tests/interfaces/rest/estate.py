"""Marked data of one tenant: jobs, schedule, definition, key and archived job.

The stranger is a tenant that exists in every test of the HTTP API. No test uses its key, so no response may contain
its data.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tidemill import App, Manual
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.domain.retention import archive_document

STRANGER = "stranger-7f3a9c"

FAR = datetime(2999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Estate:
    """The ids and names of a tenant's objects."""

    tenant: str
    jobs: tuple[str, ...]
    schedule: str
    definition: str
    key: str
    secret: str
    archived: str
    flow: str = str(UUID(int=1))
    batch: str = str(UUID(int=2))

    @property
    def mark(self) -> str:
        """A text contained in all data of the tenant."""
        return f"{self.tenant}-mark"

    def addresses(self, path: str) -> list[str]:
        """The paths of a route with the ids of these objects."""
        if "{" not in path:
            return [path]
        if path.startswith(("/api/jobs/", "/api/archive/explain/")):
            return [path.replace("{id}", id) for id in (*self.jobs, self.archived)]
        if path.startswith("/api/flows/"):
            return [path.replace("{id}", self.flow)]
        if path.startswith("/api/batches/"):
            return [path.replace("{id}", self.batch)]
        if path.startswith("/api/schedules/"):
            return [path.replace("{id}", name) for name in (self.schedule, f"{self.mark}-nightly")]
        if path.startswith("/api/keys/"):
            return [path.replace("{id}", self.key)]
        if path.startswith("/api/workers/"):
            return [path.replace("{id}", self.jobs[0])]
        return [path.replace("{key}", self.definition).replace("{name}", "send")]


def furnish(app: App, tenant: str, *, role: str = "super_admin") -> Estate:
    """Create one object of every kind. Its jobs are never due, so draining the queues does not run them."""
    mark = f"{tenant}-mark"
    with app.tenant(tenant):
        send = app.registry.get("send").name
        jobs = [_enqueue(app, send, mark) for _ in range(3)]
        app.jobs.cancel(ids=jobs[1:], reason=f"{mark}-reason")
        job = app.store.get([jobs[2]], tenant=tenant)[0]
        document = archive_document(job, [], [], tier="archive", policy=f"{mark}-policy")
        app.store.put_archive([document])
        app.store.forget([document])
        schedule = app.schedules.add(send, Manual(), f"{mark}-nightly", args={"to": f"{mark}-person"})
        definition = app.definitions.save(
            f"{mark}-report", send, args={"to": f"{mark}-person"}, owner=f"{mark}-owner"
        )
    made = app.keys.create(f"{mark}-key", role=role, tenant=tenant)
    return Estate(
        tenant,
        (str(jobs[0]), str(jobs[1])),
        str(schedule.id),
        definition.key,
        made.key.id,
        made.secret,
        str(jobs[2]),
    )


def _enqueue(app: App, task: str, mark: str) -> UUID:
    bound: BoundTask[Any, Any] = app.bound_task(task)
    job = bound.using(
        run_after=FAR,
        tags=[f"{mark}-tag"],
        metadata={f"{mark}-name": f"{mark}-value"},
        correlation_id=f"{mark}-story",
        reference=(f"{mark}-kind", f"{mark}-id"),
    ).enqueue(to=f"{mark}-person", password=f"{mark}-password")
    return job.id
