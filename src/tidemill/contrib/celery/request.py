"""``self.request``: the running call of a Celery task."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tidemill.contrib.celery.payload import from_json
from tidemill.engine.context import Context

if TYPE_CHECKING:
    from tidemill.contrib.celery.task import CeleryTask

TASK_ID = "celery_task_id"
"""The kind of reference that holds an id that the caller has chosen."""

ARGUMENTS, ERROR, STATE = "celery.arguments", "celery.error", "celery.state"
"""Checkpoints: the changed arguments of a retry, the arguments of the last exception, and a custom state."""

SOFT_LIMIT, IGNORE = "celery-soft-time-limit", "celery-ignore-result"
"""Headers of options that only the running task needs."""

CHORD = "celery-chord"
"""The header of a call that takes the results of a group."""


@dataclass(slots=True)
class CeleryRequest:
    """The running call: its id, arguments and number of retries."""

    id: str | None = None
    task: str | None = None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    retries: int = 0
    is_eager: bool = False
    called_directly: bool = True
    headers: Mapping[str, Any] = field(default_factory=dict)
    delivery_info: Mapping[str, Any] = field(default_factory=dict)
    hostname: str = field(default_factory=socket.gethostname)
    correlation_id: str | None = None
    root_id: str | None = None
    parent_id: str | None = None
    timelimit: tuple[float | None, float | None] = (None, None)
    ignore_result: bool = False
    context: Context | None = None  #: of Tidemill, inside a job

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or the default if there is none."""
        return getattr(self, name, default)

    @property
    def argsrepr(self) -> str:
        """The positional arguments as text."""
        return repr(tuple(self.args))

    @property
    def kwargsrepr(self) -> str:
        """The keyword arguments as text."""
        return repr(dict(self.kwargs))


running: ContextVar[tuple[CeleryTask, CeleryRequest] | None] = ContextVar("celery_running", default=None)
"""The running Celery task of this context, and its request."""


def request_of(task: CeleryTask, context: Context, args: list[Any], kwargs: dict[str, Any]) -> CeleryRequest:
    """Return the request of a job."""
    job, details = context.job, context.job.details
    soft = context.headers.get(SOFT_LIMIT)
    return CeleryRequest(
        id=task_id_of(job),
        task=task.name,
        args=from_json(args),
        kwargs=from_json(kwargs),
        retries=context.attempt - 1,
        called_directly=False,
        headers={name: value for name, value in context.headers.items() if not name.startswith("celery-")},
        delivery_info={"routing_key": job.queue, "priority": job.priority, "exchange": ""},
        correlation_id=context.correlation_id,
        root_id=context.correlation_id,
        parent_id=None if details.parent_id is None else str(details.parent_id),
        timelimit=(
            None if job.timeout is None else job.timeout.total_seconds(),
            float(soft) if soft is not None else task.soft_limit,
        ),
        ignore_result=context.headers.get(IGNORE, str(task.ignores_result)) == "True",
        context=context,
    )


def eager_request(
    task: CeleryTask, args: Sequence[Any], kwargs: Mapping[str, Any], task_id: str | None, retries: int
) -> CeleryRequest:
    """Return the request of a call that runs in this process, without a job."""
    id = task_id or str(uuid4())
    return CeleryRequest(
        id=id,
        task=task.name,
        args=tuple(args),
        kwargs=dict(kwargs),
        retries=retries,
        is_eager=True,
        called_directly=False,
        correlation_id=id,
        root_id=id,
        delivery_info={"is_eager": True},
    )


def task_id_of(job: Any) -> str:
    """Return Celery's id of a job: the one that the caller has chosen, or the job's own."""
    reference = job.details.reference
    if reference is not None and reference[0] == TASK_ID:
        return str(reference[1])
    return str(job.id)
