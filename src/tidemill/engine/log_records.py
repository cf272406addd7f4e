"""Log records that carry the fields of the job they were logged in."""

from __future__ import annotations

import logging
import sys
from typing import Any

from tidemill.domain.trace_context import trace_id
from tidemill.engine.log_capture import capture_here
from tidemill.tasks.ambient import current_job

FIELDS = ("job_id", "task", "attempt", "queue", "tenant", "correlation_id", "trace_id")
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
        return field_of(context, name)


def field_of(context: Any, name: str) -> Any:
    """The value of one field for a running job."""
    if name == "trace_id":
        return current_trace() or trace_id(context.headers)
    if name in ("job_id", "correlation_id"):
        return str(getattr(context, name))
    return getattr(context.job, name)


def current_trace() -> str | None:
    """The trace id of the current OpenTelemetry span, if the program uses OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    get_span = getattr(trace, "get_current_span", None)  # another thread may be importing it
    if get_span is None:
        return None
    span = get_span().get_span_context()
    return f"{span.trace_id:032x}" if span.is_valid else None


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
            context = record.tidemill_context = current_job()
            if getattr(context, "capture", None) is not None:
                capture_here()
        return record

    setattr(stamped, _stamps, True)
    logging.setLogRecordFactory(stamped)
