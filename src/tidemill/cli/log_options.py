"""The options of commands that write a log: level, format, daily file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tidemill.cli.suggestions import OneOf
from tidemill.engine.log_files import KEEP
from tidemill.engine.log_formats import LEVELS, LogOutput

LOG_OPTIONS = (
    click.option(
        "--log-level",
        type=OneOf(LEVELS),
        default="info",
        show_default=True,
        help="Lowest level to log.",
    ),
    click.option("--log-json", is_flag=True, help="Log one JSON object per line."),
    click.option(
        "--log-file",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Log to one file per day instead of stderr; logs/worker.log becomes logs/worker-2026-11-18.log.",
    ),
    click.option(
        "--log-keep",
        type=click.IntRange(0),
        metavar="DAYS",
        default=KEEP,
        show_default=True,
        help="Days for which the files of --log-file are kept.",
    ),
)


def with_log_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a log to a command. ``taken_logs`` reads them."""
    for option in reversed(LOG_OPTIONS):
        command = option(command)
    return command


def taken_logs(options: dict[str, Any]) -> LogOutput:
    """Remove the options of the log from those of a command, and return its output."""
    return LogOutput.taken(
        {name: options.pop(name) for name in ("log_level", "log_json", "log_file", "log_keep")}
    )
