"""Log formats of a worker's processes: plain lines and JSON lines."""

from __future__ import annotations

import json
import logging
import sys
from copy import copy
from datetime import UTC, datetime
from typing import TextIO

from tidemill.engine.log_records import FIELDS, stamp_records

LEVELS = ("debug", "info", "warning", "error")

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "tidemill_context"}


def _shown_name(record: logging.LogRecord) -> str:
    """The logger's name. uvicorn logs everything except requests under ``uvicorn.error``, including its start."""
    return "uvicorn" if record.name == "uvicorn.error" else record.name


class JsonLines(logging.Formatter):
    """One object per record: time, level, logger, message, and the fields given as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": _shown_name(record),
            "message": record.getMessage(),
            "pid": record.process,
        }
        extra = {name: value for name, value in vars(record).items() if name not in _OWN}
        line |= {name: value for name, value in extra.items() if value is not None or name not in FIELDS}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class PlainLines(logging.Formatter):
    """One line per record. Lines logged inside a job name it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s [%(process)d] %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the logging module prescribes the name)
        if (name := _shown_name(record)) != record.name:
            record = copy(record)  # other handlers get the same record
            record.name = name
        line = super().formatMessage(record)
        context = getattr(record, "tidemill_context", None)
        return line if context is None else f"{line} [{record.task} {record.job_id}]"  # type: ignore[attr-defined]


def write_logs(level: str = "info", *, as_json: bool = False, stream: TextIO | None = None) -> None:
    """Write all log records of this process, unless the program has already configured logging itself."""
    root = logging.getLogger()
    stamp_records()
    if root.handlers:
        return
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if as_json else PlainLines())
    root.addHandler(handler)
    root.setLevel(level.upper())
