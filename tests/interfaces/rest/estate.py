"""Marked data of one tenant: jobs, schedule, definition, key and archived job.

The stranger is a tenant that exists in every test of the HTTP API. No test uses its key, so no response may contain
its data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from tidemill import App, Context, Manual
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.domain.retention import archive_document
from tidemill.rest.routes import ApiOperation

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
    error: str = "0" * 16

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
            return [path.replace("{id}", self.flow).replace("{node:path}", "third")]
        if path.startswith("/api/errors/"):
            return [path.replace("{fingerprint}", self.error)]
        if path.startswith("/api/batches/"):
            return [path.replace("{id}", self.batch)]
        if path.startswith("/api/schedules/"):
            return [path.replace("{id}", name) for name in (self.schedule, f"{self.mark}-nightly")]
        if path.startswith("/api/keys/"):
            return [path.replace("{id}", self.key)]
        if path.startswith("/api/workers/"):
            return [path.replace("{id}", self.jobs[0])]
        return [path.replace("{key}", self.definition).replace("{name}", "send")]


BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/api/workers/{id}/scale"): {"threads": 2},
    ("POST", "/api/jobs"): {"task": "send", "args": {"to": "x"}},
    ("POST", "/api/jobs/create"): {"task": "send", "args": {"to": "x"}},
    ("POST", "/api/jobs/bulk"): {"action": "retry", "filter": {"task": ["send", "fail"]}},
    ("POST", "/api/jobs/{id}/reschedule"): {"run_at": "2999-01-01T00:00:00Z"},
    ("PATCH", "/api/jobs/{id}"): {"priority": 1},
    ("PATCH", "/api/tasks/{name}"): {"paused": False},
    ("POST", "/api/schedules/{id}/backfill"): {
        "start": "2026-01-01T00:00:00Z",
        "end": "2026-01-01T01:00:00Z",
    },
    ("POST", "/api/batches"): {"name": "made-here", "jobs": [{"task": "send", "args": {"to": "x"}}]},
    ("POST", "/api/definitions"): {"key": "made-here", "task": "send", "args": {"to": "x"}},
    ("PUT", "/api/definitions/{key}"): {"args": {"to": "x"}},
    ("PATCH", "/api/definitions/{key}"): {"owner": "x"},
    ("POST", "/api/schedules"): {
        "key": "made-here",
        "task": "send",
        "trigger": "0 2 * * *",
        "args": {"to": "x"},
    },
    ("PUT", "/api/schedules/{id}"): {"trigger": "0 3 * * *", "args": {"to": "x"}},
    ("PUT", "/api/worker/config"): {"settings": {"worker_enabled": True}},
    ("POST", "/api/keys"): {"name": "made-here"},
    ("POST", "/api/flows"): {
        "name": "made-here",
        "nodes": [{"name": "one", "task": "send", "args": {"to": "x"}}],
    },
    ("POST", "/api/flows/{id}/skip"): {"node": "first", "result": "nothing"},
    ("POST", "/api/flows/{id}/nodes/{node:path}/signals"): {"name": "go"},
    ("POST", "/api/jobs/{id}/signal"): {"name": "go"},
    ("POST", "/api/jobs/{id}/signals"): {"name": "go"},
    ("POST", "/api/jobs/{id}/answer"): {"answer": {"granted": True}},
    ("POST", "/api/events"): {"name": "made-here"},
}
"""Request bodies of the routes that need one."""


def body_of(act: ApiOperation, estate: Estate) -> Any:
    """A body that the route accepts. Bodies for the archive name a job of this estate."""
    if act.path == "/api/archive/restore":
        return {"ids": [estate.archived]}
    if act.path == "/api/archive/erase":
        return {"ids": [estate.archived], "dry_run": False}
    return BODIES.get((act.method, act.path))


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


def with_error(app: App, estate: Estate) -> Estate:
    """Name the group of the errors with which the tenant's jobs failed when they ran."""
    (group,) = app.errors.list(tenant=estate.tenant)
    return replace(estate, error=group.fingerprint)


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


class Decision(BaseModel):
    """The answer to a question of a job."""

    granted: bool


def declare_decision(app: App) -> None:
    """Declare a task that asks a question."""

    @app.task(name="decide")
    def decide(ctx: Context, about: str) -> bool:
        answer = ctx.ask(Decision)
        return answer is not None and answer.granted


Ask = Callable[[str, str, Any], Any]
"""Sends a request of the tenant with a method, a path and a body; returns the response."""


def add_work(app: App, estate: Estate, ask: Ask) -> Estate:
    """Create jobs of the tenant that succeed, fail, wait for review and ask a question, a flow and a batch.

    The jobs run when the queues are drained. Return the estate with their ids.
    """
    ids = list(estate.jobs[:2])
    for task, args in (
        ("send", {"to": f"{estate.mark}-letter"}),
        ("fail", {"words": f"{estate.mark}-trouble"}),
        ("look", {"what": f"{estate.mark}-thing"}),
        ("send", {"to": f"{estate.mark}-later"}),
    ):
        body = {
            "delay": 3600 if args.get("to", "").endswith("-later") else 0,
            "task": task,
            "args": args,
            "tags": [f"{estate.mark}-tag"],
            "parent_id": estate.jobs[0],
        }
        answer = ask("POST", "/api/jobs", body)
        assert answer.status_code == 201, answer.text
        ids.append(answer.json()["id"])
    trouble = {"words": f"{estate.mark}-trouble"}
    nodes = [
        {"name": "first", "task": "fail", "args": trouble},
        {"name": "second", "task": "send", "args": {"to": f"{estate.mark}-letter"}, "after": ["first"]},
        {"name": "third", "task": "look", "args": {"what": f"{estate.mark}-thing"}},
    ]
    flow = ask("POST", "/api/flows", {"name": f"{estate.mark}-flow", "nodes": nodes})
    assert flow.status_code == 201, flow.text
    with app.tenant(estate.tenant):
        with app.batch(f"{estate.mark}-batch") as batch:
            app.bound_task("fail").enqueue(**trouble)
            app.bound_task("look").enqueue(what=f"{estate.mark}-thing")
        asking = app.bound_task("decide").enqueue(about=f"{estate.mark}-question")
    return replace(estate, jobs=(*ids, str(asking.id)), flow=flow.json()["id"], batch=str(batch.id))
