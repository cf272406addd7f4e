"""Every error Tidemill raises, in one tree.

A message says what happened, to which thing, and what to do about it; the facts are attributes as well. Each class has
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
    │   ├── WorkerNotFound
    │   ├── LeaseNotFound
    │   ├── KeyNotFound
    │   ├── LimitNotFound
    │   ├── QueueFull
    │   ├── ArchiveRunning
    │   ├── BadSettings
    │   ├── BadFilter
    │   └── PayloadTooLarge
    ├── JobError
    │   ├── JobNotFound
    │   ├── JobExists
    │   ├── IllegalTransition
    │   ├── LeaseLost
    │   ├── JobFailed
    │   ├── JobCancelled
    │   └── WaitTimeout
    └── StoreError
        ├── StoreBusy
        ├── StoreUnavailable
        ├── StoreCorrupt
        ├── SchemaOutdated
        ├── SchemaTooNew
        └── SchemaForeign
    PermanentError    (an Exception of user code: fail at once, no retry)
    Signal            (a BaseException of user code: not an error, an instruction)
    ├── Retry
    ├── Snooze
    ├── Cancel
    └── Review

This module imports nothing of ours and may be imported from everywhere.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar


class TidemillError(Exception):
    """Base of everything raised by Tidemill itself; without a message its docstring is the message."""

    code: ClassVar[str] = "tidemill_error"

    def __init__(self, message: str | None = None, **facts: object) -> None:
        text = message if message is not None else (type(self).__doc__ or type(self).__name__).strip()
        super().__init__(text)
        self.message = text
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)


class UsageError(TidemillError):
    """The caller asked for something that cannot be; asking again will not help."""

    code = "usage_error"


class TaskNotFound(UsageError):
    """No task of that name is registered."""

    code = "task_not_found"


class DuplicateTask(UsageError):
    """Two tasks claim the same name."""

    code = "duplicate_task"


class BadArguments(UsageError):
    """The arguments do not fit the task's signature."""

    code = "bad_arguments"


class BadSchedule(UsageError):
    """The schedule can never fire, or cannot be read."""

    code = "bad_schedule"


class ScheduleNotFound(UsageError):
    """There is no such schedule in this tenant."""

    code = "schedule_not_found"


class ScheduleExists(UsageError):
    """The tenant has a schedule of this key already, or it was changed meanwhile."""

    code = "schedule_exists"


class DefinitionNotFound(UsageError):
    """There is no such definition in this tenant."""

    code = "definition_not_found"


class DefinitionExists(UsageError):
    """The tenant has a definition of this key already, or it was changed meanwhile."""

    code = "definition_exists"


class WorkerNotFound(UsageError):
    """No living worker has that id."""

    code = "worker_not_found"


class LeaseNotFound(UsageError):
    """There is no lease of that name."""

    code = "lease_not_found"


class KeyNotFound(UsageError):
    """There is no key of that id."""

    code = "key_not_found"


class LimitNotFound(UsageError):
    """There is no limit of that name."""

    code = "limit_not_found"


class QueueFull(UsageError):
    """As many jobs wait in the queue, or of the tenant, as its limit allows; nothing was enqueued."""

    code = "queue_full"


class ArchiveRunning(UsageError):
    """Somebody archives jobs just now, and one at a time does."""

    code = "archive_running"


class BadSettings(UsageError):
    """A setting, an option or a store's address is not acceptable."""

    code = "bad_settings"


class BadFilter(UsageError):
    """A filter or a cursor cannot be understood."""

    code = "bad_filter"


class PayloadTooLarge(UsageError):
    """Arguments or a result are larger than the limit allows."""

    code = "payload_too_large"


class JobError(TidemillError):
    """Something about one job."""

    code = "job_error"


class JobNotFound(JobError):
    """There is no such job in this tenant."""

    code = "job_not_found"


class JobExists(JobError):
    """A job with this id or this unique key is already there."""

    code = "job_exists"


class IllegalTransition(JobError):
    """The job's present state does not allow that."""

    code = "illegal_transition"


class LeaseLost(JobError):
    """The worker's claim on the job was given to somebody else; nothing was written."""

    code = "lease_lost"


class JobFailed(JobError):
    """The job ended without a result."""

    code = "job_failed"


class JobCancelled(JobError):
    """The job was cancelled."""

    code = "job_cancelled"


class WaitTimeout(JobError):
    """The job did not end within the time given."""

    code = "wait_timeout"


class StoreError(TidemillError):
    """The store could not do what was asked."""

    code = "store_error"


class StoreBusy(StoreError):
    """The store is in use by others just now; nothing was changed, and the same call may succeed in a moment."""

    code = "store_busy"


class StoreUnavailable(StoreError):
    """The store cannot be reached or does not let us in."""

    code = "store_unavailable"


class StoreCorrupt(StoreError):
    """The store's own files are damaged, or hold what Tidemill never wrote."""

    code = "store_corrupt"


class SchemaOutdated(StoreError):
    """The store's tables are missing or older than this code."""

    code = "schema_outdated"


class SchemaTooNew(StoreError):
    """The store's tables were made by a newer Tidemill."""

    code = "schema_too_new"


class SchemaForeign(StoreError):
    """The database belongs to another program."""

    code = "schema_foreign"


class PermanentError(Exception):
    """Raise it in a task to fail the job at once, without a retry."""


class Signal(BaseException):
    """Base of the instructions a task may raise; not errors, so ``except Exception`` does not swallow them."""

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[Signal], args: tuple[object, ...], facts: dict[str, object]) -> Signal:
    """A signal as it was in another process; its constructor's arguments are not its text."""
    signal = kind.__new__(kind, *args)
    signal.__dict__.update(facts)
    return signal


class Retry(Signal):
    """Try this job again, after a delay if one is given; uses an attempt."""

    def __init__(self, after: timedelta | None = None, reason: str | None = None) -> None:
        super().__init__(reason or "retry")
        self.after = after
        self.reason = reason


class Snooze(Signal):
    """Put this job off without using an attempt."""

    def __init__(self, for_: timedelta, reason: str | None = None) -> None:
        super().__init__(reason or "snooze")
        self.for_ = for_
        self.reason = reason


class Cancel(Signal):
    """End this job as cancelled."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "cancel")
        self.reason = reason


class Review(Signal):
    """Ask a person to decide about this job; ``output`` is shown to them."""

    def __init__(self, reason: str, output: object = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.output = output
