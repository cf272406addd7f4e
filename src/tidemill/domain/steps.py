"""Names, records and bounds of the steps of a durable function.

A step is found again by its name, never by its order. Its record is a checkpoint whose name begins with ``step/``. Names that begin
with ``step/@`` belong to the engine: the versions that ran the job, and the failed tries of a step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from tidemill.domain.bounds import text_flaw
from tidemill.domain.masks import HIDDEN
from tidemill.errors import TooManySteps, UsageError

PREFIX = "step/"
VERSION = "@version/"
TRY = "@try/"

UNDO_OPTION = "undo"
"""The option of a compensation: the job and the step that it compensates, and the parameters for the step's result."""

LONGEST_NAME = 200
"""Characters of a step's name with its key and its number."""

MOST_STEPS = 10_000
MOST_RECORDED = 16 * 1024 * 1024
"""Records of one job, and bytes of all of them."""

MOST_RESULT = 256 * 1024
"""Bytes of one step's result as JSON."""

SHORT_RETRY = timedelta(seconds=2)
"""A step waits in place for a retry that comes sooner than this; otherwise the job is suspended."""

SHORT_SLEEP = timedelta(seconds=1)
"""A shorter sleep happens in place."""


@lru_cache(maxsize=4_096)
def plain_name(name: str) -> str:
    """A checked name without a key. Cached, because every replayed step passes here."""
    return step_name(name)


def step_name(name: object, key: object = None) -> str:
    """The name under which a step is recorded, without its number.

    >>> step_name("charge"), step_name("charge", 42)
    ('charge', 'charge[42]')
    """
    if not isinstance(name, str) or not name or not name.isprintable() or name.strip() != name:
        raise UsageError(
            f"{name!r} is not a step's name; give printable characters, without blanks at its ends"
        )
    if name.startswith("@") or "#" in name:
        raise UsageError(
            f"{name!r} is not a step's name: it begins with '@' or has a '#', which are reserved"
        )
    full = name if key is None else f"{name}[{key}]"
    if len(full) > LONGEST_NAME - 6 or text_flaw(full):
        raise UsageError(
            f"the step name {full[:60]!r}… has {len(full)} characters or a character that cannot be stored;"
            f" name and key together may have {LONGEST_NAME - 6}"
        )
    return full


def numbered(name: str, count: int) -> str:
    """The name of the ``count``-th step of a name in one execution.

    >>> numbered("charge", 1), numbered("charge", 3)
    ('charge', 'charge#3')
    """
    return name if count == 1 else f"{name}#{count}"


class StepView(NamedTuple):
    """One recorded step, for people: its name, what was recorded, and how long it took."""

    name: str
    kind: str  #: value, error, sleep, signal, timeout, job, jobs, …
    value: Any = None  #: the result; for an error its type and message
    took: float | None = None  #: seconds
    tries: int = 1


# Records -----------------------------------------------------------------------------------------------------------------


def value_record(value: str, fingerprint: str, milliseconds: float) -> str:
    """The record of a result, which is JSON already. It comes last, so that a reader needs not parse it twice."""
    return f'{{"f":{json.dumps(fingerprint)},"ms":{milliseconds:.3f},"v":{value}}}'


def error_record(
    type: str, message: str, fingerprint: str, milliseconds: float, arguments: list[Any] | None = None
) -> str:
    """The record of a failure that the function caught."""
    return note_record(
        "error", f=fingerprint, ms=round(milliseconds, 3), type=type, message=message, arguments=arguments
    )


def note_record(kind: str, **fields: Any) -> str:
    """The record of anything else: a sleep, a signal, a group of jobs."""
    return json.dumps({"is": kind, **fields}, separators=(",", ":"), ensure_ascii=False)


def recorded_value(record: str) -> str | None:
    """The JSON text of a recorded result; None if the record is of another kind.

    >>> recorded_value(value_record('[1]', "f", 0.5))
    '[1]'
    """
    if not record.startswith('{"f":'):
        return None
    # The fingerprint has no quotation mark that is not escaped, so the first match is the field.
    return record[record.index(',"v":') + 5 : -1]


def has_fingerprint(record: str, fingerprint: str) -> bool:
    """Whether a recorded result has this fingerprint."""
    return record.startswith(_start_of(fingerprint))


@lru_cache(maxsize=1_000)
def _start_of(fingerprint: str) -> str:
    return f'{{"f":{json.dumps(fingerprint)},'


def read_note(record: str) -> dict[str, Any]:
    """The fields of a record; ``is`` names its kind."""
    data = json.loads(record)
    if not isinstance(data, dict):
        raise UsageError("a step's record is not an object; it was not written by Tidemill")
    return {"is": "value", **data}


def read_instant(note: Mapping[str, Any], field: str = "at") -> datetime:
    """An instant of a record."""
    return datetime.fromisoformat(note[field])


# Reading a job's records -------------------------------------------------------------------------------------------------


def step_records(checkpoints: Mapping[str, str]) -> dict[str, str]:
    """The records among a job's checkpoints, by the names of their steps."""
    return {name[len(PREFIX) :]: value for name, value in checkpoints.items() if name.startswith(PREFIX)}


def versions_of(records: Iterable[str]) -> list[int]:
    """The versions of the task that recorded steps, the oldest first."""
    return sorted(int(name[len(VERSION) :]) for name in records if name.startswith(VERSION))


def tries_of(records: Iterable[str], name: str) -> int:
    """How many tries of a step have failed, as far as they are recorded."""
    prefix = f"{TRY}{name}/"
    return max((int(entry[len(prefix) :]) for entry in records if entry.startswith(prefix)), default=0)


def step_views(checkpoints: Mapping[str, str]) -> list[StepView]:
    """A job's recorded steps, by name."""
    records = step_records(checkpoints)
    names = [name for name in records if not name.startswith("@")]
    return [_view(name, records[name], 1 + tries_of(records, name)) for name in names]


def _view(name: str, record: str, tries: int) -> StepView:
    note = read_note(record)
    took = note["ms"] / 1000 if "ms" in note else None
    if note["is"] == "value":
        return StepView(name, "value", _shown(note.get("v")), took, tries)
    if note["is"] == "error":
        return StepView(name, "error", f"{note['type'].partition(':')[2]}: {note['message']}", took, tries)
    rest = {field: value for field, value in note.items() if field not in ("is", "ms", "f")}
    return StepView(name, note["is"], rest, took, tries)


def _shown(value: Any) -> Any:
    """A result for people: a sealed one is hidden."""
    return HIDDEN if isinstance(value, dict) and value.keys() == {"$sealed"} else value


def check_room(steps: int, size: int) -> None:
    """Refuse another step of a job that has too many, or whose records are too large."""
    if steps > MOST_STEPS or size > MOST_RECORDED:
        what = f"{steps:,} steps" if steps > MOST_STEPS else f"{size:,} bytes of recorded steps"
        raise TooManySteps(
            f"the job has {what}; at most {MOST_STEPS:,} steps and {MOST_RECORDED:,} bytes are recorded for one job."
            " Call ctx.again(…) to continue in a new job",
            steps=steps,
            size=size,
        )
