"""Log formats of a worker's processes: plain lines and JSON lines."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from tidemill.domain.terminal_text import clean
from tidemill.engine.log_capture import is_configured
from tidemill.engine.log_files import KEEP, DailyFileHandler
from tidemill.engine.log_records import FIELDS, stamp_records
from tidemill.engine.sanitize import scrubbed, scrubbed_details

LEVELS = ("debug", "info", "warning", "error")

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "tidemill_context",
    "tidemill_raised",
}


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
            "message": scrubbed(record.getMessage()),
            "pid": record.process,
        }
        extra = {name: value for name, value in vars(record).items() if name not in _OWN}
        for name, value in extra.items():
            if value is not None or name not in FIELDS:
                line[name] = scrubbed_details(value)
        if record.exc_info:
            line["traceback"] = scrubbed(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


class PlainLines(logging.Formatter):
    """One line per record, without characters that control a terminal. Lines logged inside a job name it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s [%(process)d] %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return clean(scrubbed(super().format(record)), lines=True)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the logging module prescribes the name)
        if (name := _shown_name(record)) != record.name:
            record = copy(record)  # other handlers get the same record
            record.name = name
        line = super().formatMessage(record)
        context = getattr(record, "tidemill_context", None)
        return line if context is None else f"{line} [{record.task} {record.job_id}]"  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class LogOutput:
    """Where and how the processes of a worker write their log records."""

    level: str = "info"
    as_json: bool = False
    file: str | None = None  #: daily files instead of stderr
    keep: int = KEEP  #: days for which daily files are kept

    def words(self) -> list[str]:
        """Return the options with which another process is started to write the same log."""
        words = ["--log-level", self.level, *(["--log-json"] if self.as_json else [])]
        return words if self.file is None else [*words, "--log-file", self.file, "--log-keep", str(self.keep)]

    @classmethod
    def taken(cls, options: Mapping[str, Any]) -> LogOutput:
        """Return the output that parsed options name."""
        file = options.get("log_file")
        return cls(
            options["log_level"],
            options["log_json"],
            None if file is None else str(file),
            options["log_keep"],
        )


class _Written:
    """The output that this process writes, for the processes it starts."""

    output: LogOutput | None = None


def output_words() -> list[str]:
    """Return the options with which a child process writes the log of this one; none if the program has its own log."""
    return [] if _Written.output is None else _Written.output.words()


def add_log_arguments(parser: argparse.ArgumentParser, *, level: str | None = "info") -> None:
    """Add the options of ``LogOutput`` to the parser of an internal program."""
    parser.add_argument("--log-level", choices=LEVELS, default=level)
    parser.add_argument("--log-json", action="store_true")
    parser.add_argument("--log-file")
    parser.add_argument("--log-keep", type=int, default=KEEP)


def write_logs(
    level: str = "info",
    *,
    as_json: bool = False,
    file: str | None = None,
    keep: int = KEEP,
    stream: TextIO | None = None,
    capture: int | None = None,
) -> None:
    """Write all log records of this process, unless the program has already configured logging itself.

    ``capture`` is the lowest level that jobs capture. The root logger must let such records pass.
    """
    root = logging.getLogger()
    stamp_records()
    if is_configured():
        return
    handler = (
        logging.StreamHandler(stream or sys.stderr) if file is None else DailyFileHandler(file, keep=keep)
    )
    handler.setFormatter(JsonLines() if as_json else PlainLines())
    handler.setLevel(level.upper())
    root.addHandler(handler)
    root.setLevel(level.upper() if capture is None else min(handler.level, capture))
    _Written.output = LogOutput(level, as_json, file, keep)


def write_output(output: LogOutput, *, capture: int | None = None) -> None:
    """Write the records of this process to this output, unless the program has configured logging itself."""
    write_logs(output.level, as_json=output.as_json, file=output.file, keep=output.keep, capture=capture)
