"""Log records that carry the fields of the job they were logged in."""

from __future__ import annotations

import logging
from typing import Any

from tidemill.tasks.ambient import current_job

FIELDS = ("job_id", "task", "attempt", "queue", "tenant", "correlation_id")
"""The fields of every record that was logged inside a job."""

_stamps = "_tidemill_stamps"


class JobRecord(logging.LogRecord):
    """A log record with the fields of the job it was logged in.

    The fields are added when the record's message is formatted, which is the first thing a formatter does. Until then
    they are not keys of the record, so that a caller's own ``extra={"task": …}`` does not conflict. A caller's value
    wins.
    """

    tidemill_context: Any = None

    def getMessage(self) -> str:  # noqa: N802  (the logging module prescribes the name)
        for name in FIELDS:
            self.__dict__.setdefault(name, self._field(name))
        return super().getMessage()

    def __getattr__(self, name: str) -> Any:
        if name in FIELDS:
            return self._field(name)
        raise AttributeError(name)

    def _field(self, name: str) -> Any:
        context = self.__dict__.get("tidemill_context")
        if context is None:
            return None
        if name in ("job_id", "correlation_id"):
            return str(getattr(context, name))
        return getattr(context.job, name)


def stamp_records() -> None:
    """Make every record carry the fields of the job it is logged in, or None outside of jobs.

    Calling it twice is harmless.
    """
    make = logging.getLogRecordFactory()
    if getattr(make, _stamps, False):
        return

    def stamped(*args: Any, **options: Any) -> logging.LogRecord:
        record = make(*args, **options)
        if type(record) is logging.LogRecord:  # a record of another class keeps its class
            record.__class__ = JobRecord
            record.tidemill_context = current_job()
        return record

    setattr(stamped, _stamps, True)
    logging.setLogRecordFactory(stamped)
