"""Copies of log records and printed lines in the log of the job that wrote them."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

from tidemill.engine.sanitize import scrubbed
from tidemill.tasks.ambient import current_job

MOST_LINES = 10_000
"""Captured lines of one execution. Later ones are only in the log of the process."""

_FULL = f"{MOST_LINES:,} lines of this execution were captured; later ones are only in the log of the worker"
_JOBS = "tidemill.jobs"


class Captured:
    """The number of lines that one execution has captured."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines = 0


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


class _PartialLine:
    """The beginning of a line that a job prints: what the stream still lacks, and what the job's log still lacks."""

    __slots__ = ("unlogged", "unwritten")

    def __init__(self) -> None:
        self.unwritten = self.unlogged = ""


PARTIAL_LINES: dict[Any, dict[JobOutput, _PartialLine]] = {}
"""The lines that running jobs have begun to print, by the context of the job. Nearly always empty."""

_LONGEST_PARTIAL = 65_536


class JobOutput:
    """A standard stream that removes secrets from what jobs print.

    A secret may be printed in several pieces, so a job's text is written line by line, or when the job flushes the
    stream. The rest of the program uses the stream as it is.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.copies = False  #: whether lines are copied into the logs of jobs that capture them

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __iter__(self) -> Any:
        return iter(self.stream)

    def write(self, text: str) -> int:
        """Write a text; inside a job, its whole lines without secrets."""
        context: Any = current_job()
        if context is None or _busy.now or not isinstance(text, str):
            written: int = self.stream.write(text)
            return written
        if text:
            self._print(context, text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write these lines."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write the line that the running job has begun, and flush the stream."""
        line = PARTIAL_LINES.get(current_job(), {}).get(self)
        if line is not None:
            self._write_rest(line)
        self.stream.flush()

    def _print(self, context: Any, text: str) -> None:
        lines = PARTIAL_LINES.get(context)
        line = (lines or {}).get(self) or _PartialLine()
        complete, newline, rest = text.rpartition("\n")
        if newline:
            self.stream.write(scrubbed(f"{line.unwritten}{complete}\n"))
            self._copy(context, f"{line.unlogged}{complete}")
            line = _PartialLine()
        line.unwritten += rest
        line.unlogged += rest
        if len(line.unlogged) > _LONGEST_PARTIAL:
            self._end_line(context, line)
        elif rest:
            PARTIAL_LINES.setdefault(context, {})[self] = line
            return
        if lines is not None and lines.pop(self, None) is not None and not lines:
            PARTIAL_LINES.pop(context, None)

    def _write_rest(self, line: _PartialLine) -> None:
        unwritten, line.unwritten = line.unwritten, ""
        if unwritten:
            self.stream.write(scrubbed(unwritten))

    def _end_line(self, context: Any, line: _PartialLine) -> None:
        self._write_rest(line)
        if line.unlogged:
            self._copy(context, line.unlogged)

    def _copy(self, context: Any, text: str) -> None:
        least = getattr(context, "capture", None)
        if self.copies and least is not None and least <= logging.INFO:
            for line in text.split("\n"):
                _write(context, line, "info", logger="stdout")


def flush_print(context: Any) -> None:
    """Write and copy the beginnings of lines that a job printed last, without a line break."""
    for output, line in PARTIAL_LINES.pop(context, {}).items():
        output._end_line(context, line)


class _Installed:
    """Workers of this process that capture printed lines, and whether the whole process only runs jobs."""

    lock = threading.Lock()
    number = 0
    always = False


def scrub_output() -> None:
    """Remove secrets from what jobs print in this process, which only runs jobs, to its end."""
    with _Installed.lock:
        _Installed.always = True
        sys.stdout = _wrapped(sys.stdout)
        sys.stderr = _wrapped(sys.stderr)


def _wrapped(stream: Any) -> Any:
    return stream if stream is None or isinstance(stream, JobOutput) else JobOutput(stream)


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
            sys.stdout = _wrapped(sys.stdout)
            if isinstance(sys.stdout, JobOutput):
                sys.stdout.copies = True


def end_capture(least: int | None) -> None:
    """Restore standard output after the last worker that captures printed lines."""
    if least is None or least > logging.INFO:
        return
    with _Installed.lock:
        _Installed.number -= 1
        if _Installed.number == 0 and isinstance(sys.stdout, JobOutput):
            sys.stdout.copies = False
            if not _Installed.always:
                sys.stdout = sys.stdout.stream
