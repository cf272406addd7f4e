"""Results of Celery tasks: of jobs, and of calls that ran in this process."""

from __future__ import annotations

import builtins
import importlib
import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidemill.client.jobs.handle import Job
from tidemill.contrib.celery import states
from tidemill.contrib.celery.exceptions import (
    CeleryTimeoutError,
    ChordError,
    TaskRevokedError,
    TimeLimitExceeded,
)
from tidemill.contrib.celery.payload import from_json
from tidemill.contrib.celery.request import CHORD, ERROR, STATE, TASK_ID, running, task_id_of
from tidemill.domain.flow_states import SKIP_REASON
from tidemill.domain.states import HELD, JobState
from tidemill.errors import JobCancelled, JobError, JobFailed, JobNotFound, WaitTimeout

if TYPE_CHECKING:
    from tidemill.contrib.celery.application import Celery

_STATES = {
    JobState.COMPLETED: states.SUCCESS,
    JobState.FAILED: states.FAILURE,
    JobState.DEAD_LETTERED: states.FAILURE,
    JobState.TIMED_OUT: states.FAILURE,
    JobState.CANCELLED: states.REVOKED,
}


_FAILED = frozenset({JobState.FAILED, JobState.DEAD_LETTERED, JobState.TIMED_OUT})


class AsyncResult:
    """The result of a call, by its id. A call that is not known is ``PENDING``, as in Celery."""

    def __init__(
        self, id: str, app: Celery | None = None, job: Job[Any] | None = None, parent: Any = None
    ) -> None:
        from tidemill.contrib.celery.application import default_app

        self.id = str(id)
        self.app = app or default_app()
        self._job = job
        self.parent = (
            parent  #: the result of the call before this one in a chain, or of the header of a chord
        )

    @property
    def task_id(self) -> str:
        """The id of the call."""
        return self.id

    @property
    def job(self) -> Job[Any] | None:
        """The job of Tidemill, read again; None if there is none."""
        try:
            if self._job is not None:
                return self._job.refresh()
            self._job = self._found()
        except JobNotFound:
            return None
        return self._job

    def _found(self) -> Job[Any] | None:
        try:
            return self.app.jobs.get(UUID(self.id))
        except (ValueError, JobNotFound):
            jobs = self.app.jobs.list(reference=(TASK_ID, self.id), limit=1).items
            return jobs[0] if jobs else None

    # State -----------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """The state of the call, by Celery's name or the one that ``update_state`` has set."""
        job = self.job
        if job is None:
            return states.PENDING
        if is_skipped(job):
            return states.FAILURE
        if job.status in _STATES:
            return _STATES[JobState(job.status)]
        if job.status in HELD:
            custom = self._custom(job)
            if custom is not None:
                return str(custom[0])
            return states.STARTED if self._tracks(job.task) else states.PENDING
        return states.RETRY if job.attempt else states.PENDING

    status = state

    def _tracks(self, name: str) -> bool:
        task = self.app.tasks.get(name)
        own = None if task is None else task.track_started
        return bool(self.app.conf.task_track_started if own is None else own)

    def _custom(self, job: Job[Any]) -> tuple[str, Any] | None:
        saved = self.app.store.checkpoints(job.id, tenant=job.tenant).get(STATE)
        if saved is None:
            return None
        attempt, state, meta = json.loads(saved)
        return (state, from_json(meta)) if attempt == job.attempt else None

    def ready(self) -> bool:
        """Whether the call has ended."""
        return self.state in states.READY_STATES

    def successful(self) -> bool:
        """Whether the call has ended with a result."""
        return self.state == states.SUCCESS

    def failed(self) -> bool:
        """Whether the call has failed."""
        return self.state == states.FAILURE

    # Values ----------------------------------------------------------------------------------------------------------

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.5,
        disable_sync_subtasks: bool = True,
        **_: Any,
    ) -> Any:
        """Wait for the end, and return the result or raise the exception of the call."""
        if disable_sync_subtasks and running.get() is not None and self.job is not None and not self.ready():
            raise RuntimeError("Never call result.get() within a task!")
        job = self.job
        if job is None:
            raise CeleryTimeoutError("The operation timed out.")
        try:
            return from_json(job.result(timeout))
        except WaitTimeout:
            raise CeleryTimeoutError("The operation timed out.") from None
        except (JobFailed, JobCancelled):
            error = self._exception(job)
            if not propagate:
                return error
            if isinstance(error, ChordError) and self.parent is not None and error.__cause__ is not None:
                # As in Celery, a result that knows its header raises the exception of the header's call.
                raise error.__cause__ from None
            raise error from None

    wait = get

    @property
    def result(self) -> Any:
        """The return value, the exception, or the data of ``update_state``."""
        job, state = self.job, self.state
        if job is None:
            return None
        if state == states.SUCCESS:
            return from_json(job.result())
        if state in states.PROPAGATE_STATES:
            return self._exception(job)
        custom = self._custom(job) if job.status in HELD else None
        return None if custom is None else custom[1]

    info = result

    @property
    def traceback(self) -> str | None:
        """The traceback of a failed call."""
        job = self.job
        return None if job is None or job.error is None else job.error.traceback

    def _exception(self, job: Job[Any]) -> BaseException:
        if is_skipped(job):
            return self._skipped(job)
        if job.status == JobState.CANCELLED:
            return TaskRevokedError("expired" if job.row.reason == "expired" else "revoked")
        if job.status == JobState.TIMED_OUT:
            timeout = job.row.timeout
            return TimeLimitExceeded(0 if timeout is None else timeout.total_seconds())
        error = job.error
        if error is None:
            return JobError(f"job {job.id} {job.status}")
        saved = self.app.store.checkpoints(job.id, tenant=job.tenant).get(ERROR)
        args = [error.message] if saved is None else from_json(json.loads(saved))
        return exception_named(error.type, args)

    def _skipped(self, job: Job[Any]) -> BaseException:
        """The exception of the call that had to succeed before this one."""
        flow = job.row.details.flow_id
        assert flow is not None
        failed = [node.job for node in self.app.flows.get(flow).nodes() if node.job.status in _FAILED]
        if not failed:
            return TaskRevokedError("revoked")
        culprit = AsyncResult(task_id_of(failed[0].row), self.app, failed[0])
        error = culprit._exception(failed[0])
        if CHORD in job.row.details.headers:
            made = ChordError(f"Dependency {culprit.id} raised {error!r}")
            made.__cause__ = error
            return made
        return error

    @property
    def name(self) -> str | None:
        """The name of the task."""
        job = self.job
        return None if job is None else job.task

    @property
    def args(self) -> Any:
        """The positional arguments of the call."""
        job = self.job
        return None if job is None else from_json((job.args or {}).get("args"))

    @property
    def kwargs(self) -> Any:
        """The keyword arguments of the call."""
        job = self.job
        return None if job is None else from_json((job.args or {}).get("kwargs"))

    @property
    def date_done(self) -> Any:
        """When the call ended."""
        job = self.job
        return None if job is None else job.finished_at

    # Actions ---------------------------------------------------------------------------------------------------------

    def revoke(self, terminate: bool = False, **_: Any) -> None:
        """Cancel the call; one that runs is asked to stop with ``terminate=True`` only, as in Celery."""
        job = self.job
        if job is not None and not job.ended and (terminate or job.status not in HELD):
            job.cancel("revoked")

    def forget(self) -> None:
        """Delete the call and its result."""
        job = self.job
        if job is not None:
            job.delete()

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    def __eq__(self, other: object) -> bool:
        return self.id == (other.id if isinstance(other, AsyncResult) else other)

    def __hash__(self) -> int:
        return hash(self.id)


def is_skipped(job: Job[Any]) -> bool:
    """Whether the call of a canvas does not run, because one before it failed."""
    return (
        job.status == JobState.CANCELLED
        and job.row.details.flow_id is not None
        and (job.row.reason or "").startswith(SKIP_REASON)
    )


class EagerResult:
    """The result of a call that has already run in this process."""

    def __init__(
        self, id: str, value: Any, state: str, traceback: str | None = None, name: str | None = None
    ) -> None:
        self.id = self.task_id = id
        self.state = self.status = state
        self.result = self.info = value
        self.traceback, self.name = traceback, name
        self.parent: Any = None

    def get(self, timeout: float | None = None, propagate: bool = True, **_: Any) -> Any:
        """Return the result, or raise the exception of the call."""
        if self.state in states.PROPAGATE_STATES and propagate:
            raise self.result
        return self.result

    wait = get

    def ready(self) -> bool:
        """Always true: the call has run."""
        return True

    def successful(self) -> bool:
        """Whether the call has ended with a result."""
        return self.state == states.SUCCESS

    def failed(self) -> bool:
        """Whether the call has failed."""
        return self.state == states.FAILURE

    def forget(self) -> None:
        """Nothing is stored."""

    def revoke(self, *_: Any, **__: Any) -> None:
        """Mark the call as revoked."""
        self.state = self.status = states.REVOKED

    def __repr__(self) -> str:
        return f"<EagerResult: {self.id}>"


def exception_named(name: str, args: list[Any]) -> BaseException:
    """Make an exception of this type, or one of the same name if the type cannot be used here."""
    module, _, attribute = name.rpartition(".")
    try:
        kind: Any = getattr(importlib.import_module(module) if module else builtins, attribute)
    except (ImportError, AttributeError):
        kind = None
    if isinstance(kind, type) and issubclass(kind, BaseException):
        try:
            made: BaseException = kind(*args)
        except Exception:  # noqa: BLE001  (a constructor of the user's own)
            made = Exception(*args)
        return made
    unknown: BaseException = type(attribute, (Exception,), {"__module__": module})(*args)
    return unknown
