"""The exception classes of Tidemill.

A message contains what happened, to which object, and what to do about it; the details are also attributes. Each class has
a stable ``code`` that HTTP problem documents, exit codes and the documentation share.

::

    TidemillError
    ├── UsageError
    │   ├── TaskNotFound
    │   ├── DuplicateTask
    │   ├── BadArguments
    │   ├── BadSchedule
    │   ├── ScheduleNotFound
    │   ├── ScheduleExists
    │   ├── DefinitionNotFound
    │   ├── DefinitionExists
    │   ├── DefinitionDisabled
    │   ├── DefinitionBusy
    │   ├── SchedulePaused
    │   ├── WorkerNotFound
    │   ├── LeaseNotFound
    │   ├── LeaseHeld
    │   ├── KeyNotFound
    │   ├── LimitNotFound
    │   ├── QueueFull
    │   ├── TooManySignals
    │   ├── PriorityTooHigh
    │   ├── WrongEnvironment
    │   ├── CrossShard
    │   ├── TenantMoving
    │   ├── ArchiveRunning
    │   ├── WaitCycle
    │   ├── OldWorkers
    │   ├── BadSettings
    │   ├── AddressRefused
    │   ├── AlertNotFound
    │   ├── ErrorGroupNotFound
    │   ├── SubscriptionNotFound
    │   ├── BadFilter
    │   ├── BadFlow
    │   ├── BatchEnded
    │   ├── TooManySteps
    │   └── PayloadTooLarge
    ├── JobError
    │   ├── JobNotFound
    │   │   └── FlowNotFound
    │   ├── JobExists
    │   ├── IllegalTransition
    │   ├── LeaseLost
    │   ├── JobFailed
    │   │   └── FlowFailed
    │   ├── JobCancelled
    │   ├── ResultNotKept
    │   ├── StepFailed
    │   └── WaitTimeout
    └── StoreError
        ├── StoreBusy
        ├── StoreUnavailable
        ├── StoreCorrupt
        │   └── BlobDamaged
        ├── SchemaOutdated
        ├── SchemaTooNew
        └── SchemaForeign
    PermanentError    (an Exception of user code: fail at once, no retry)
    Signal            (a BaseException of user code: not an error, an instruction)
    ├── Retry
    ├── Snooze
    ├── Cancel
    ├── Review
    │   └── StepChanged
    └── Suspend

This module imports no other module of the package, so any module may import it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar


class TidemillError(Exception):
    """Base class of all errors raised by Tidemill; without a message, the docstring is the message."""

    code: ClassVar[str] = "tidemill_error"

    def __init__(self, message: str | None = None, **details: object) -> None:
        text = message if message is not None else (type(self).__doc__ or type(self).__name__).strip()
        super().__init__(text)
        self.message = text
        self.details = details
        for name, value in details.items():
            setattr(self, name, value)


class UsageError(TidemillError):
    """The request is invalid; repeating it will not help."""

    code = "usage_error"


class TaskNotFound(UsageError):
    """No task with this name is registered."""

    code = "task_not_found"


class DuplicateTask(UsageError):
    """Two tasks have the same name."""

    code = "duplicate_task"


class BadArguments(UsageError):
    """The arguments do not fit the task's signature."""

    code = "bad_arguments"


class BadSchedule(UsageError):
    """The schedule never fires, or cannot be read."""

    code = "bad_schedule"


class ScheduleNotFound(UsageError):
    """There is no such schedule in this tenant."""

    code = "schedule_not_found"


class ScheduleExists(UsageError):
    """The tenant already has a schedule with this key, or the schedule was changed in the meantime."""

    code = "schedule_exists"


class DefinitionNotFound(UsageError):
    """There is no such definition in this tenant."""

    code = "definition_not_found"


class DefinitionExists(UsageError):
    """The tenant already has a definition with this key, or the definition was changed in the meantime."""

    code = "definition_exists"


class DefinitionDisabled(UsageError):
    """The definition is disabled, so it makes no jobs."""

    code = "definition_disabled"


class DefinitionBusy(UsageError):
    """The definition refuses a second job while one of its jobs has not ended."""

    code = "definition_busy"


class SchedulePaused(UsageError):
    """The schedule fires only by hand, and it is paused."""

    code = "schedule_paused"


class WorkerNotFound(UsageError):
    """No live worker has this id."""

    code = "worker_not_found"


class LeaseNotFound(UsageError):
    """There is no lease with this name."""

    code = "lease_not_found"


class LeaseHeld(UsageError):
    """Another process holds the lease."""

    code = "lease_held"


class KeyNotFound(UsageError):
    """There is no key with this id."""

    code = "key_not_found"


class LimitNotFound(UsageError):
    """There is no limit with this name."""

    code = "limit_not_found"


class QueueFull(UsageError):
    """The queue or the tenant has reached its limit of waiting jobs; nothing was enqueued."""

    code = "queue_full"


class TooManySignals(UsageError):
    """The job has reached its limit of unread signals; the signal was not stored."""

    code = "too_many_signals"


class PriorityTooHigh(UsageError):
    """The job's priority is above the maximum of the tenant or the API key; nothing was enqueued."""

    code = "priority_too_high"


class WrongEnvironment(UsageError):
    """The task is declared for another environment; nothing was enqueued."""

    code = "wrong_environment"


class CrossShard(UsageError):
    """The call would write to a shard that does not belong to its tenant or its transaction; nothing was written."""

    code = "cross_shard"


class TenantMoving(UsageError):
    """The tenant is moving to another shard, or another process is moving it."""

    code = "tenant_moving"


class ArchiveRunning(UsageError):
    """Another process is archiving jobs; only one may do so at a time."""

    code = "archive_running"


class WaitCycle(UsageError):
    """A job cannot wait for a job or group that waits for it."""

    code = "wait_cycle"


class OldWorkers(UsageError):
    """A worker of an older version is alive, which would end jobs of flows without counting them; stop or upgrade it first."""

    code = "old_workers"


class BadSettings(UsageError):
    """A setting, an option or a store URL is invalid."""

    code = "bad_settings"


class AddressRefused(UsageError):
    """An outgoing request would reach an address that is not public."""

    code = "address_refused"


class AlertNotFound(UsageError):
    """There is no open alert with this id."""

    code = "alert_not_found"


class ErrorGroupNotFound(UsageError):
    """No job has failed with this error lately."""

    code = "error_group_not_found"


class SubscriptionNotFound(UsageError):
    """There is no subscription with this name."""

    code = "subscription_not_found"


class BadFilter(UsageError):
    """A filter or a cursor is invalid."""

    code = "bad_filter"


class BadFlow(UsageError):
    """The graph of the flow could not run: a cycle, a foreign node, or an invalid policy."""

    code = "bad_flow"


class BatchEnded(UsageError):
    """The batch accepts no more jobs: its block has ended, or all its jobs have."""

    code = "batch_ended"


class TooManySteps(UsageError):
    """The job has recorded too many steps, or too much data in them."""

    code = "too_many_steps"


class PayloadTooLarge(UsageError):
    """Arguments or a result exceed the size limit."""

    code = "payload_too_large"


class JobError(TidemillError):
    """An error about one job."""

    code = "job_error"


class JobNotFound(JobError):
    """There is no such job in this tenant."""

    code = "job_not_found"


class FlowNotFound(JobNotFound):
    """There is no such flow or batch in this tenant."""

    code = "flow_not_found"


class JobExists(JobError):
    """A job with this id or unique key already exists."""

    code = "job_exists"


class IllegalTransition(JobError):
    """The job's state does not allow this action."""

    code = "illegal_transition"


class LeaseLost(JobError):
    """The claim on a job, or a lease, has passed to another holder; nothing was written."""

    code = "lease_lost"


class JobFailed(JobError):
    """The job ended without a result."""

    code = "job_failed"


class FlowFailed(JobFailed):
    """A node of the flow failed, or a job of the batch."""

    code = "flow_failed"


class JobCancelled(JobError):
    """The job was cancelled."""

    code = "job_cancelled"


class ResultNotKept(JobError):
    """The job completed, and its result was not stored."""

    code = "result_not_kept"


class StepFailed(JobError):
    """A step failed in an earlier execution, and the function caught an error whose class cannot be built again."""

    code = "step_failed"


class WaitTimeout(JobError):
    """The job did not end within the timeout."""

    code = "wait_timeout"


class StoreError(TidemillError):
    """The store could not perform the operation."""

    code = "store_error"


class StoreBusy(StoreError):
    """The store is busy; nothing was changed, and the same call may succeed later."""

    code = "store_busy"


class StoreUnavailable(StoreError):
    """The store cannot be reached or refuses access."""

    code = "store_unavailable"


class StoreCorrupt(StoreError):
    """The store's files are damaged, or contain data that Tidemill did not write."""

    code = "store_corrupt"


class BlobDamaged(StoreCorrupt):
    """Stored arguments or a stored result are missing or do not match their checksum."""

    code = "blob_damaged"


class SchemaOutdated(StoreError):
    """The store's tables are missing or older than this code."""

    code = "schema_outdated"


class SchemaTooNew(StoreError):
    """The store's tables were created by a newer Tidemill."""

    code = "schema_too_new"


class SchemaForeign(StoreError):
    """The database belongs to another program."""

    code = "schema_foreign"


class PermanentError(Exception):
    """Raise it in a task to fail the job immediately, without a retry."""


class Signal(BaseException):
    """Base class of the instructions that a task may raise. Not an ``Exception``, so ``except Exception`` does not catch them."""

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[Signal], args: tuple[object, ...], details: dict[str, object]) -> Signal:
    """A signal restored in another process, without its constructor, whose arguments differ from ``args``."""
    signal = kind.__new__(kind, *args)
    signal.__dict__.update(details)
    return signal


class Retry(Signal):
    """Retry this job, after a delay if one is given; uses an attempt."""

    def __init__(self, after: timedelta | float | str | None = None, reason: str | None = None) -> None:
        super().__init__(reason or "retry")
        self.after = after
        self.reason = reason


class Snooze(Signal):
    """Postpone this job without using an attempt."""

    def __init__(self, for_: timedelta | float | str, reason: str | None = None) -> None:
        super().__init__(reason or "snooze")
        self.for_ = for_
        self.reason = reason


class Cancel(Signal):
    """End this job as cancelled."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "cancel")
        self.reason = reason


class Review(Signal):
    """Request a decision of a person about this job; ``output`` is shown to them."""

    def __init__(self, reason: str, output: object = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.output = output


class StepChanged(Review):
    """A recorded step is called with another function or other arguments, and the task declares ``steps="strict"``."""


class Suspend(Signal):
    """Ends this execution; the job waits without a worker and resumes later. The methods of ``Context`` raise it."""
