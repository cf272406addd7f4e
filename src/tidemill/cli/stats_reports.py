"""``tidemill stats NAME``: a named report as a table or JSON.

The fields of the row class determine the columns.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from tidemill.cli.context import CommandContext
from tidemill.cli.screen import (
    Column,
    age,
    percent,
    print_fields,
    print_json,
    print_lines,
    print_table,
    size,
    span,
    thousands,
)
from tidemill.client.jobs.api import SHOWN
from tidemill.client.stats.api import NAMED, WINDOWS, StatsApi
from tidemill.client.stats.reports import Report, ThroughputStep, document
from tidemill.domain.filters import ALL_TENANTS
from tidemill.errors import BadFilter

_LONG = frozenset(
    {
        "task",
        "queue",
        "tenant",
        "message",
        "reason",
        "name",
        "type",
        "host",
        "worker_name",
        "holder_name",
        "policy",
        "tier",
    }
)
_SPARE = frozenset(
    {
        "fingerprint",
        "example",
        "type",
        "host",
        "holder",
        "first_at",
        "tier",
        "worker_name",
        "crashes",
        "last_claim_at",
        "beat_at",
        "cancelled",
        "duration_p50",
        "lag_p50",
    }
)
"""Columns that are omitted on a narrow screen. A worker's id is too, if its name is shown."""

_HEADS = {
    "duration_p50": "run p50", "duration_p95": "run p95", "lag_p50": "wait p50", "lag_p95": "wait p95",
}  # fmt: skip
"""Short headings; the others are the field names."""

_MEASURES = ("int", "float", "timedelta", "datetime")


def names() -> list[str]:
    """Return the names of the reports as the user types them."""
    return [name.replace("_", "-") for name in NAMED]


def show(context: CommandContext, name: str, options: dict[str, Any]) -> None:
    """Run one report with the given options and print it."""
    wanted = name.replace("-", "_").lower()
    if wanted not in NAMED:
        close = difflib.get_close_matches(name.lower(), names(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names())}"
        raise BadFilter(f"there is no report {name!r}; {hint}", name=name)
    ask = getattr(StatsApi(context.client), wanted)
    report = ask(**_taken(name, ask, options))
    if context.as_json:
        print_json(document(report))
    elif isinstance(report, Report):
        _print(report, name)
    else:
        now = context.now()
        print_fields(
            (field.name.replace("_", " "), _cell(field.name, getattr(report, field.name), now))
            for field in fields(report)
        )


def _taken(name: str, ask: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options as arguments of the report; refuse those that it does not accept."""
    takes = inspect.signature(ask).parameters
    how: dict[str, Any] = {}
    for key, value in options.items():
        if value is None or (key == "tenant" and value == ALL_TENANTS and key not in takes):
            continue
        if key not in takes:
            raise BadFilter(f"{name} takes no --{key.replace('_', '-')}; leave it out", option=key)
        how[key] = value
    if wanted := next((key for key, (length, _) in WINDOWS.items() if how.get("window") == length), None):
        how["window"] = wanted if "step" in takes else how["window"]
    return how


def _print(report: Report[Any], name: str) -> None:
    rows: Sequence[Any] = report.rows
    if not rows:
        print_lines([(f"no rows for {name}", "")])
    else:
        shown = fields(rows[0])
        named = all(getattr(row, "name", None) or getattr(row, "worker_name", None) for row in rows)
        columns = [
            Column(
                _HEADS.get(field.name) or field.name.replace("_", " "),
                rank=int(field.name == "cancelled"),
                right=str(field.type).startswith(_MEASURES),
                tail=SHOWN if "UUID" in str(field.type) else 0,
                flexible=field.name in _LONG,
                folds=field.name == "message",
                optional=field.name in _SPARE or (field.name == "worker" and named),
            )
            for field in shown
        ]
        cells = [[_cell(field.name, getattr(row, field.name), report.at) for field in shown] for row in rows]
        print_table(columns, cells, empty="")
    if len(rows) > 1 and isinstance(rows[0], ThroughputStep):
        step = rows[1].at - rows[0].at
        print_lines([(f"jobs that ended, per {span(abs(step))}; p50 and p95 of run and wait time", "dim")])
    if report.sampled and report.since_at is not None:
        print_lines([(f"truncated: jobs that ended in the last {span(report.at - report.since_at)}", "")])


def _cell(name: str, value: object, now: datetime) -> object:
    match value:
        case timedelta():
            return span(value)
        case datetime():
            return age(value, now)
        case float():
            return percent(value) if name.endswith("rate") else f"{value:.2f}"
        case int():
            return size(value) if name == "bytes" else thousands(value)
        case dict():
            return ", ".join(f"{key} {number}" for key, number in value.items()) or None
        case _:
            return value
