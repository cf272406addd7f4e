"""The search for log lines of all jobs, and its cursors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.bounds import text_flaw
from tidemill.domain.filters import LOOK, check_text
from tidemill.domain.job import LogEntry
from tidemill.errors import BadFilter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR = re.compile(r"(-?[0-9]{1,18})\.([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class LogFilter:
    """The conjunction of all given conditions on log lines; an empty condition does not restrict.

    The text is searched in the message. ASCII letters match in either case, and there are no wildcards.
    """

    tenant: str
    levels: frozenset[str] | None = None
    tasks: frozenset[str] = frozenset()
    job_id: UUID | None = None
    since: datetime | None = None  #: lines from this instant on
    until: datetime | None = None  #: lines before this instant
    text: str | None = None
    look: int = LOOK  #: how many lines one page scans for the text, the tasks and the tenant

    def __post_init__(self) -> None:
        if not self.tenant:
            raise BadFilter("a filter needs a tenant; give its name, or ALL_TENANTS")
        for name in ("since", "until"):
            value: datetime | None = getattr(self, name)
            if value is not None and value.tzinfo is None:
                raise BadFilter(f"{name} has no time zone; give an aware datetime", field=name)
        if self.text == "":
            raise BadFilter("text is empty; give one, or leave it out", field="text")
        if self.text is not None:
            check_text(self.text)
        for name, texts in (("tenant", (self.tenant,)), ("task", self.tasks)):
            for text in texts:
                if flaw := text_flaw(text):
                    raise BadFilter(f"{name} is {text!r}, which has {flaw}; no job has that", field=name)


class FoundLine(NamedTuple):
    """A log line that a search found, and the job that wrote it."""

    position: int
    entry: LogEntry
    task: str
    queue: str
    tenant: str


class LogPlace(NamedTuple):
    """The place of a line in the order of a search: its time, then its position."""

    at: datetime
    position: int

    def cursor(self) -> str:
        """The cursor that continues a search after this line.

        >>> LogPlace(datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC), 7).cursor()
        '1000005.7'
        """
        return f"{(self.at - _EPOCH) // timedelta(microseconds=1)}.{self.position}"


def read_log_cursor(cursor: str) -> LogPlace:
    """The place after which a search continues.

    >>> read_log_cursor("1000005.7").position
    7
    """
    match = _CURSOR.fullmatch(cursor)
    try:
        if match is not None:
            return LogPlace(_EPOCH + timedelta(microseconds=int(match[1])), int(match[2]))
    except OverflowError:
        pass
    raise BadFilter("invalid cursor; start again without it", cursor=cursor)
