"""Copies of log records and printed lines in the log of the job that wrote them."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

from tidemill.tasks.ambient import current_job

MOST_LINES = 10_000
"""Captured lines of one execution. Later ones are only in the log of the process."""

_FULL = f"{MOST_LINES:,} lines of this execution were captured; later ones are only in the log of the worker"
_JOBS = "tidemill.jobs"


class Captured:
    """The number of lines that one execution has captured, and the beginning of a printed line."""

    __slots__ = ("lines", "printed")

    def __init__(self) -> None:
        self.lines = 0
        self.printed = ""


class _Busy(threading.local):
    """Whether this thread is capturing a line; what that logs itself is not captured."""

    now = False


_busy = _Busy()


def level_of(number: int) -> str:
    """The level of a job's log line for a level of the logging module."""
    if number < logging.INFO:
        return "debug"
    if number < logging.WARNING:
        return "info"
    return "warning" if number < logging.ERROR else "error"


def _write(context: Any, text: str, level: str, **details: object) -> None:
    captured = getattr(context, "captured", None)
    if captured is None:
        captured = context.captured = Captured()
    if captured.lines > MOST_LINES or _busy.now:
        return
    captured.lines += 1
    _busy.now = True
    try:
        if captured.lines > MOST_LINES:
            context.log(_FULL, level="warning")
        else:
            context.log(text, level=level, **details)
    finally:
        _busy.now = False


class CaptureHandler(logging.Handler):
    """Copies the records that are logged inside a job into the log of the job."""

    def emit(self, record: logging.LogRecord) -> None:
        """Copy the record if its job captures this level."""
        try:
            context: Any = current_job()
            least = getattr(context, "capture", None)
            if least is not None and record.levelno >= least and record.name != _JOBS:
                _write(context, _text(record), level_of(record.levelno), logger=record.name)
        except Exception:  # noqa: BLE001  (logging must not fail the program)
            self.handleError(record)
        # Without any handler, the logging module writes warnings to stderr. This handler must not change that.
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and self._is_alone(record.name):
            last.handle(record)

    def _is_alone(self, name: str) -> bool:
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info and record.exc_info[0] is not None:
        text = f"{text}\n{_FORMAT.formatException(record.exc_info)}"
    return text


_FORMAT = logging.Formatter()
HANDLER = CaptureHandler()


def capture_here() -> None:
    """Add the handler to the root logger. A configuration of logging may have removed it."""
    root = logging.getLogger()
    if HANDLER not in root.handlers:
        root.addHandler(HANDLER)


def is_configured() -> bool:
    """Whether the program has configured the root logger."""
    return any(handler is not HANDLER for handler in logging.getLogger().handlers)


class JobStdout:
    """Standard output that also copies what jobs print into their logs. Everything else is that of the stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __iter__(self) -> Any:
        return iter(self.stream)

    def write(self, text: str) -> int:
        """Write to the stream, and copy whole lines into the log of the running job."""
        written: int = self.stream.write(text)
        context: Any = current_job()
        least = getattr(context, "capture", None)
        if least is not None and least <= logging.INFO and text and not _busy.now:
            _printed(context, text)
        return written

    def writelines(self, lines: Any) -> None:
        """Write these lines."""
        for line in lines:
            self.write(line)


def _printed(context: Any, text: str) -> None:
    captured = getattr(context, "captured", None)
    if captured is None:
        captured = context.captured = Captured()
    *lines, captured.printed = (captured.printed + text).split("\n")
    for line in lines:
        _write(context, line, "info", logger="stdout")


def flush_print(context: Any) -> None:
    """Copy the beginning of a line that a job printed last, without a line break."""
    captured = getattr(context, "captured", None)
    if captured is not None and captured.printed:
        _printed(context, "\n")


class _Installed:
    """Workers of this process that capture printed lines."""

    lock = threading.Lock()
    number = 0


def begin_capture(least: int | None) -> None:
    """Prepare this process for a worker that captures records of this level. ``end_capture`` undoes it."""
    if least is None:
        return
    root = logging.getLogger()
    if not is_configured() and root.level > least:
        # Nothing is written: without a handler, the logging module writes only warnings.
        root.setLevel(least)
    if least <= logging.INFO:
        with _Installed.lock:
            _Installed.number += 1
            if not isinstance(sys.stdout, JobStdout):
                sys.stdout = JobStdout(sys.stdout)


def end_capture(least: int | None) -> None:
    """Restore standard output after the last worker that captures printed lines."""
    if least is None or least > logging.INFO:
        return
    with _Installed.lock:
        _Installed.number -= 1
        if _Installed.number == 0 and isinstance(sys.stdout, JobStdout):
            sys.stdout = sys.stdout.stream
