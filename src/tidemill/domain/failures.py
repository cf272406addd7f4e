"""Failures of jobs, and the groups that they form.

A group has one cause: the class of the error and the innermost frame of the user's code. Without such a frame it has one task.
The fingerprint of a group contains no part of a message, so that it reveals nothing about a job's arguments.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import ErrorInfo
from tidemill.domain.states import JobState
from tidemill.domain.stats import MESSAGE
from tidemill.domain.tracebacks import users_place

KEPT = timedelta(days=60)
"""How long failures are counted."""

MERGED_AFTER = timedelta(hours=1)
"""After this time, failures whose job is no longer stored are merged per hour, without their messages."""

MOST_GROUPS = 1_000
"""The most groups that one query returns."""

_TYPE = 200
_PLACE = 200
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>)\]}]+", re.IGNORECASE)
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,8}")
_QUOTED = re.compile(r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|`[^`]*`")
_ID = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b0x[0-9a-f]+\b", re.IGNORECASE
)
_PATH = re.compile(r"(?<![\w:/.])(?:[A-Za-z]:\\|~?/)[^\s'\",;:()<>\[\]{}]+(?:[/\\][^\s'\",;:()<>\[\]{}]*)*")
_HEX = re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![A-Za-z_0-9])[-+]?\d+(?:[.,:]\d+)*")

_MASKS = (
    (_URL, "<url>"),
    (_EMAIL, "<email>"),
    (_ID, "#"),
    (_QUOTED, "…"),
    (_PATH, "<path>"),
    (_HEX, "#"),
    (_NUMBER, "#"),
)


def masked(message: str) -> str:
    """A message without the parts that differ from job to job: addresses, paths, quoted text, ids and numbers.

    >>> masked("order 4711 of 'ann' not found after 3.5 s")
    'order # of … not found after # s'
    >>> masked("550 mailbox unavailable: ada@example.org")
    '# mailbox unavailable: <email>'
    >>> masked("GET https://api.example.org/v1/42 failed: cannot open /srv/data/a1.csv (deadbeef01)")
    'GET <url> failed: cannot open <path> (#)'
    """
    # No store accepts NUL or half of a surrogate pair.
    clean = message[: 5 * MESSAGE].replace("\0", " ").encode("utf-8", "replace").decode()
    text = " ".join(clean.split())
    for pattern, word in _MASKS:
        text = pattern.sub(word, text)
    return text[:MESSAGE]


def place_of(traceback: str | None) -> str | None:
    """The innermost frame of the user's code: the last two parts of its file, and the function.

    Lines and the folders above differ between releases and machines.

    >>> place_of('  File "/srv/7/shop/pay.py", line 7, in charge\\n    x()')
    'shop/pay.py in charge'
    """
    frame = None if traceback is None else users_place(traceback)
    if frame is None:
        return None
    parts = [part for part in re.split(r"[/\\]", frame.file) if part]
    folders = [_NUMBER.sub("#", _HEX.sub("#", part)) for part in parts[-2:-1]]
    file = "/".join([*folders, *parts[-1:]])
    return f"{file} in {frame.name}"[:_PLACE] if frame.name else file[:_PLACE]


class Failure(NamedTuple):
    """Where a failure belongs: its group, and its variant within the group."""

    fingerprint: str
    variant: str
    type: str | None  #: class of the error; None if no error was raised
    place: str | None
    message: str  #: masked


def failure_of(task: str, state: JobState, error: ErrorInfo | None, reason: str | None) -> Failure:
    """The group and the variant of a job that failed."""
    place = place_of(error.traceback) if error is not None else None
    kind = error.type[:_TYPE] if error is not None else None
    message = masked((error.message if error is not None else reason) or "")
    cause = (kind or "", place) if place is not None else (kind or state.value, "", task)
    return Failure(_digest(*cause, length=16), _digest(message, length=8), kind, place, message)


def _digest(*texts: str, length: int) -> str:
    data = "\x1f".join(texts).encode("utf-8", "backslashreplace")
    return hashlib.sha256(data).hexdigest()[:length]


class StoredFailure(NamedTuple):
    """Recorded failures: of one job, or merged ones of an hour."""

    at: datetime  #: of the last one
    first_at: datetime
    tenant: str
    task: str
    failure: Failure
    job: UUID | None  #: None for merged ones
    jobs: int = 1


class FailureGroup(NamedTuple):
    """The failures of one group within a window."""

    fingerprint: str
    jobs: int
    tasks: int
    tenants: int
    first_at: datetime  #: of all stored failures of the group, also before the window
    last_at: datetime
    task: str  #: of the latest failure
    type: str | None
    place: str | None
    message: str  #: masked, of the latest failure; empty once its job is no longer stored
    example: UUID | None  #: the job that failed last, if it may still be stored


class FailurePart(StrEnum):
    """The property by which the failures of a group are counted."""

    VARIANT = "variant"
    TASK = "task"
    TENANT = "tenant"


class FailureCount(NamedTuple):
    """The failures of one variant, task or tenant of a group."""

    name: str
    jobs: int
    last_at: datetime
    message: str  #: masked, of the latest failure
    example: UUID | None


class MarkStatus(StrEnum):
    """A status that a person gives to a group."""

    OPEN = "open"
    MUTED = "muted"
    RESOLVED = "resolved"


class ErrorMark(NamedTuple):
    """The last statement of a person about a group. ``tenant`` is ``*`` for a statement about all tenants."""

    tenant: str
    fingerprint: str
    status: MarkStatus
    at: datetime | None = None  #: set by the store
    by: str | None = None


class ErrorStatus(StrEnum):
    """The status of a group."""

    OPEN = "open"
    REGRESSED = "regressed"  #: it was resolved, and has failed again since
    MUTED = "muted"
    RESOLVED = "resolved"


def marks_of(marks: Iterable[ErrorMark], tenant: str) -> dict[str, ErrorMark]:
    """The mark that applies to each group, as one tenant sees it.

    A tenant's own mark applies, unless a later one is about all tenants.
    """
    chosen: dict[str, ErrorMark] = {}
    for mark in marks:
        if mark.tenant not in (tenant, ALL_TENANTS):
            continue
        before = chosen.get(mark.fingerprint)
        if before is None or _later(mark, before):
            chosen[mark.fingerprint] = mark
    return chosen


def _later(mark: ErrorMark, other: ErrorMark) -> bool:
    if mark.at is None or other.at is None:
        return other.at is None
    return mark.at > other.at


def status_of(mark: ErrorMark | None, last_at: datetime) -> ErrorStatus:
    """The status of a group whose last failure was at that time."""
    if mark is None or mark.status is MarkStatus.OPEN:
        return ErrorStatus.OPEN
    if mark.status is MarkStatus.MUTED:
        return ErrorStatus.MUTED
    is_back = mark.at is not None and last_at > mark.at
    return ErrorStatus.REGRESSED if is_back else ErrorStatus.RESOLVED


def is_new(first_at: datetime, deployed_at: datetime | None) -> bool:
    """Whether a group failed for the first time after the latest deploy."""
    return deployed_at is not None and first_at >= deployed_at


def is_regressed_since(mark: ErrorMark | None, last_at: datetime, deployed_at: datetime | None) -> bool:
    """Whether a group was resolved before the latest deploy and has failed since then."""
    if mark is None or mark.at is None or deployed_at is None:
        return False
    regressed = status_of(mark, last_at) is ErrorStatus.REGRESSED
    return regressed and mark.at < deployed_at <= last_at
