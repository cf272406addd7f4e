"""How much of an ended job is kept: every execution, the last one, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tidemill.domain.states import JobState
from tidemill.errors import BadSettings


class Record(StrEnum):
    """The option ``record`` of a task or a call."""

    FULL = "full"
    """The job and every execution."""

    LAST = "last"
    """The job and its last execution."""

    NONE = "none"
    """Nothing of a job that succeeds; every other job as with ``full``."""


class Keep(StrEnum):
    """The rows that a store keeps when it applies a finish."""

    ALL = "all"
    """The job, this execution and the earlier ones."""

    LAST = "last"
    """The job and this execution; the rows of earlier executions are deleted."""

    NOTHING = "nothing"
    """No row: the job is deleted with its executions, details, logs, checkpoints and stored blobs."""


def rows_kept(record: Record, state: JobState, token: int) -> Keep:
    """The rows to keep of a job that goes to this state. The first execution of a job has no earlier ones.

    >>> rows_kept(Record.NONE, JobState.COMPLETED, 1), rows_kept(Record.NONE, JobState.FAILED, 1)
    (<Keep.NOTHING: 'nothing'>, <Keep.ALL: 'all'>)
    """
    if record is Record.NONE and state is JobState.COMPLETED:
        return Keep.NOTHING
    return Keep.LAST if record is Record.LAST and token > 1 else Keep.ALL


def stored_record(record: Record, options: Mapping[str, object]) -> Record:
    """The option of a task, overridden by the options stored with the job."""
    given = options.get("record")
    return Record(str(given)) if given in set(Record) else record


def read_record(given: object) -> Record:
    """Read the option ``record`` as users write it."""
    try:
        return Record(given)  # type: ignore[arg-type]
    except ValueError:
        raise BadSettings(
            f"record is {given!r}; choose one of {', '.join(Record)}", option="record"
        ) from None
