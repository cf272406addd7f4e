"""Job filters in the query string of a page.

Pure. Query parameters have the names of the form fields; ``where`` has the names of ``app.jobs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from tidemill.domain.filters import check_text
from tidemill.domain.states import JobState
from tidemill.domain.stats import FAILURES
from tidemill.errors import BadFilter
from tidemill.web.parsers import Fields
from tidemill.web.text_parsers import read_moment, read_span

SEVERAL = ("status", "task", "queue", "metadata", "arg")
SINGLE = (
    "text", "tag", "definition", "definition_version", "schedule", "fire_at", "flow", "reference", "correlation_id",
    "parent_id", "error", "error_group", "worker", "took", "since", "until",
)  # fmt: skip
MOST = 20
"""Maximum number of values of a repeatable condition."""

_OLD_NAMES = {"status": "state"}
"""Former names of parameters, still accepted in old addresses."""

_STATUSES = ", ".join(JobState)

FAILED = [state.value for state in JobState if state in FAILURES]
"""The states of failed jobs, as query values."""

TIERS = {"live": "live jobs", "tables": "and archive tables", "all": "and archive files"}
"""The choices of tiers, each including those before it, as query values and in words."""

SCANNED = ("text", "arg", "error", "worker", "took")
"""Conditions for which a page examines a bounded number of jobs, and which cannot be counted."""

TABS = {
    "all": (),
    "running": ("running", "claimed"),
    "pending": ("pending",),
    "scheduled": ("scheduled",),
    "waiting": ("waiting",),
    "review": ("review_needed",),
    "failed": ("failed", "timed_out"),
    "dead": ("dead_lettered",),
    "cancelled": ("cancelled",),
    "completed": ("completed",),
}
"""The tabs of the jobs page, each with its states."""

LABELS = {
    "took": "took over",
    "error_group": "error group",
    "text": "text",
    "correlation_id": "correlation",
    "parent_id": "parent",
    "definition_version": "version",
    "fire_at": "fire",
    "since": "created since",
    "until": "created until",
}


class Chip(NamedTuple):
    """One condition in words, and the query without it."""

    label: str
    value: str
    without: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class FilterInput:
    """The filter that an address specifies."""

    query: dict[str, Any]  #: the conditions as given, each a list of strings
    where: dict[str, Any]  #: the valid conditions, as arguments of ``app.jobs``
    wrong: dict[str, str]  #: error messages of the invalid conditions
    sort: str
    cursor: str | None
    tiers: str = "live"  #: one of ``TIERS``

    @property
    def scans(self) -> bool:
        """Whether a page examines a bounded number of jobs."""
        return self.tiers != "live" or any(name in self.query for name in SCANNED)

    @property
    def tab(self) -> str | None:
        """The tab that contains all states of the filter."""
        states = set(self.query.get("status", ()))
        if not states:
            return "all"
        return next((name for name, own in TABS.items() if states <= set(own)), None)

    def in_tab(self, name: str) -> dict[str, list[str]]:
        """Return the query with the states of a tab."""
        rest = {key: value for key, value in self.query.items() if key != "status"}
        return {**rest, "status": list(TABS[name])} if TABS[name] else rest

    @property
    def narrows(self) -> bool:
        """Whether there is any condition."""
        return bool(self.query)

    @property
    def address(self) -> dict[str, Any]:
        """The conditions and the tiers, as query values."""
        return self.query if self.tiers == "live" else {**self.query, "tiers": self.tiers}

    def get(self, name: str) -> str:
        """Return the value of a form field."""
        return self.query[name][0] if name in self.query else ""

    def chips(self) -> list[Chip]:
        """Return all conditions, each with the query that removes it."""
        pairs = []
        for name, values in self.query.items():
            for value in values:
                rest = [other for other in values if other != value]
                without = {**self.query, name: rest}
                if not rest:
                    del without[name]
                label, shown = LABELS.get(name, name), value
                if name == "status":
                    shown = value.replace("_", " ")
                elif name == "arg":
                    label, _, shown = value.partition("=")
                    label = f"arg.{label}"
                pairs.append(Chip(label, shown, without))
        return pairs


def read(fields: Fields, now: datetime) -> FilterInput:
    """Parse the conditions in an address. Unknown parameters are ignored."""
    given = {name: [*fields.all(name), *fields.all(_OLD_NAMES.get(name, ""))] for name in SEVERAL}
    query = {name: list(dict.fromkeys(texts))[:MOST] for name, texts in given.items() if texts}
    query |= {name: [value] for name in SINGLE if (value := fields.get(name)) is not None}
    where: dict[str, Any] = {}
    wrong: dict[str, str] = {}

    def take(name: str, as_name: str, make: Callable[[list[str]], Any]) -> None:
        if name in query:
            try:
                where[as_name] = make(query[name])
            except BadFilter as error:
                wrong[name] = error.message
            except ValueError as error:
                wrong[name] = str(error)

    take("status", "status", lambda given: [_status(item) for item in given])
    take("task", "task", list)
    take("queue", "queue", list)
    take("metadata", "metadata", lambda given: dict(_pair(item, "=", "customer=acme") for item in given))
    take("text", "text", lambda given: _text(given[0]))
    take("tag", "tag", lambda given: given[0])
    take("reference", "reference", lambda given: _pair(given[0], ":", "user:42"))
    take("correlation_id", "correlation_id", lambda given: given[0])
    take("parent_id", "parent_id", lambda given: _id(given[0]))
    take("definition", "definition", lambda given: given[0])
    take("definition_version", "definition_version", lambda given: _version(given[0]))
    take("schedule", "schedule", lambda given: given[0])
    take("fire_at", "fire_at", lambda given: _instant(given[0]))
    take("flow", "flow", lambda given: _id(given[0]))
    take("arg", "args", lambda given: dict(_pair(item, "=", "account=42") for item in given))
    take("error", "error", lambda given: given[0])
    take("error_group", "error_group", lambda given: given[0])
    take("worker", "worker", lambda given: given[0])
    take("took", "took_over", lambda given: read_span(given[0]))
    take("since", "created_after", lambda given: read_moment(given[0], now))
    take("until", "created_before", lambda given: read_moment(given[0], now))
    sort = "oldest" if fields.get("sort") == "oldest" else "newest"
    tiers = fields.get("tiers")
    return FilterInput(
        query,
        where,
        wrong,
        sort,
        fields.get("cursor"),
        tiers if tiers is not None and tiers in TIERS else "live",
    )


def in_words(counts: dict[JobState, int]) -> str:
    """Format a number of jobs per state.

    >>> in_words({JobState.TIMED_OUT: 1, JobState.FAILED: 1200})
    '1,200 failed, 1 timed out'
    """
    ordered: Iterable[JobState] = (state for state in JobState if counts.get(state))
    return ", ".join(f"{counts[state]:,} {state.value.replace('_', ' ')}" for state in ordered)


def _status(text: str) -> JobState:
    try:
        return JobState(text)
    except ValueError:
        raise ValueError(f"there is no status {text[:40]!r}; expected one of {_STATUSES}") from None


def _pair(text: str, sign: str, example: str) -> tuple[str, str]:
    before, separator, after = text.partition(sign)
    if not separator or not before:
        raise ValueError(f"{text[:40]!r} is not a pair; write {example}")
    return before, after


def _text(text: str) -> str:
    check_text(text)
    return text


def _version(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        raise ValueError(f"{text[:40]!r} is not a version; give a whole number")
    return int(text)


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ValueError(f"{text[:40]!r} is not an instant; write 2026-03-01T06:00:00Z")
    return at


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a job's id") from None
