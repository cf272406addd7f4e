"""``tidemill stats NAME``: one of the named questions, as a table or as JSON. What a row holds, its class says."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from tidemill.cli.desk import Desk
from tidemill.cli.screen import (
    Column,
    age,
    percent,
    print_facts,
    print_json,
    print_lines,
    print_table,
    size,
    span,
    thousands,
)
from tidemill.client.operations import NAMED, Operations
from tidemill.client.questions import WINDOWS
from tidemill.client.reports import Report, document
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
    }
)
"""What is left out first where there is no room; so is a worker's id where its name is there."""

_MEASURES = ("int", "float", "timedelta", "datetime")


def names() -> list[str]:
    """The questions as they are typed."""
    return [name.replace("_", "-") for name in NAMED]


def show(desk: Desk, name: str, said: dict[str, Any]) -> None:
    """Ask one question with what was said about it, and print the answer."""
    wanted = name.replace("-", "_").lower()
    if wanted not in NAMED:
        raise BadFilter(f"there is no question {name!r}; there are {', '.join(names())}", name=name)
    ask = getattr(Operations(desk.client), wanted)
    found = ask(**_taken(name, ask, said))
    if desk.as_json:
        print_json(document(found))
    elif isinstance(found, Report):
        _print(found, name)
    else:
        now = desk.now()
        print_facts(
            (field.name.replace("_", " "), _cell(field.name, getattr(found, field.name), now))
            for field in fields(found)
        )


def _taken(name: str, ask: Any, said: dict[str, Any]) -> dict[str, Any]:
    """What was said, as the question takes it; what it does not take is refused."""
    takes = inspect.signature(ask).parameters
    how: dict[str, Any] = {}
    for key, value in said.items():
        if value is None or (key == "tenant" and value == ALL_TENANTS and key not in takes):
            continue
        if key not in takes:
            raise BadFilter(f"{name} takes no --{key.replace('_', '-')}; leave it out", option=key)
        how[key] = value
    if wanted := next((key for key, (length, _) in WINDOWS.items() if how.get("window") == length), None):
        how["window"] = wanted if "step" in takes else how["window"]
    return how


def _print(found: Report[Any], name: str) -> None:
    rows: Sequence[Any] = found.rows
    if not rows:
        print_lines([(f"nothing to tell about {name}", "")])
    else:
        shown = fields(rows[0])
        named = all(getattr(row, "name", None) or getattr(row, "worker_name", None) for row in rows)
        columns = [
            Column(
                field.name.replace("_", " "),
                right=str(field.type).startswith(_MEASURES),
                flexible=field.name in _LONG,
                folds=field.name == "message",
                optional=field.name in _SPARE or (field.name == "worker" and named),
            )
            for field in shown
        ]
        cells = [[_cell(field.name, getattr(row, field.name), found.at) for field in shown] for row in rows]
        print_table(columns, cells, empty="")
    if found.sampled and found.since_at is not None:
        print_lines(
            [(f"there was more: this is what ended in the last {span(found.at - found.since_at)}", "")]
        )


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
