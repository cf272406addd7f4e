"""How a worker's processes write their log: plain lines for people, or one JSON object per line for programs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One object per record: time, level, logger, message, and whatever was given as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def write_logs(level: str = "info", *, as_json: bool = False, stream: TextIO | None = None) -> None:
    """Have everything logged in this process written, unless the program has already arranged for its log itself."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(stream or sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s [%(process)d] %(message)s")
    handler.setFormatter(JsonLines() if as_json else plain)
    root.addHandler(handler)
    root.setLevel(level.upper())
