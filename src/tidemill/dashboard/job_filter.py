"""Which jobs a page is about, as its address says it: read, said again in words, and one condition taken away.

Pure. The names in the address are those of the form; ``where`` has those of ``app.jobs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from tidemill.dashboard.typed import read_moment
from tidemill.dashboard.visit import Fields
from tidemill.domain.filters import check_text
from tidemill.domain.insight import FAILURES
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter

SEVERAL = ("state", "task", "queue", "metadata")
SINGLE = ("text", "tag", "reference", "correlation_id", "parent_id", "since", "until")
MOST = 20
"""Of each condition that may be said several times."""

FAILED = [state.value for state in JobState if state in FAILURES]
"""The states of jobs that failed, as an address asks for them."""

LABELS = {
    "text": "text",
    "correlation_id": "correlation",
    "parent_id": "parent",
    "since": "created since",
    "until": "created until",
}


class Chip(NamedTuple):
    """One condition in words, and the query without it."""

    label: str
    value: str
    without: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Asked:
    """What an address asks for."""

    query: dict[str, Any]  #: its conditions as they stand there, a list of texts each
    where: dict[str, Any]  #: the same as ``app.jobs`` takes them, as far as they can be read
    wrong: dict[str, str]  #: what cannot be read, and why
    sort: str
    cursor: str | None

    @property
    def narrows(self) -> bool:
        """Whether there is any condition."""
        return bool(self.query)

    def get(self, name: str) -> str:
        """What stands in a field of the form."""
        return self.query[name][0] if name in self.query else ""

    def chips(self) -> list[Chip]:
        """Every condition, each to be taken away."""
        found = []
        for name, values in self.query.items():
            for value in values:
                rest = [other for other in values if other != value]
                without = {**self.query, name: rest}
                if not rest:
                    del without[name]
                shown = value.replace("_", " ") if name == "state" else value
                found.append(Chip(LABELS.get(name, name), shown, without))
        return found


def read(fields: Fields, now: datetime) -> Asked:
    """The conditions in an address; names that are none of ours are passed over."""
    query = {name: list(dict.fromkeys(fields.all(name)))[:MOST] for name in SEVERAL if fields.get(name)}
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

    take("state", "status", lambda given: [_state(each) for each in given])
    take("task", "task", list)
    take("queue", "queue", list)
    take("metadata", "metadata", lambda given: dict(_pair(each, "=", "customer=acme") for each in given))
    take("text", "text", lambda given: _text(given[0]))
    take("tag", "tag", lambda given: given[0])
    take("reference", "reference", lambda given: _pair(given[0], ":", "user:42"))
    take("correlation_id", "correlation_id", lambda given: given[0])
    take("parent_id", "parent_id", lambda given: _id(given[0]))
    take("since", "created_after", lambda given: read_moment(given[0], now))
    take("until", "created_before", lambda given: read_moment(given[0], now))
    sort = "oldest" if fields.get("sort") == "oldest" else "newest"
    return Asked(query, where, wrong, sort, fields.get("cursor"))


def in_words(counts: dict[JobState, int]) -> str:
    """How many jobs of which states.

    >>> in_words({JobState.TIMED_OUT: 1, JobState.FAILED: 1200})
    '1,200 failed, 1 timed out'
    """
    ordered: Iterable[JobState] = (state for state in JobState if counts.get(state))
    return ", ".join(f"{counts[state]:,} {state.value.replace('_', ' ')}" for state in ordered)


def _state(text: str) -> JobState:
    try:
        return JobState(text)
    except ValueError:
        raise ValueError(f"there is no state {text[:40]!r}") from None


def _pair(text: str, sign: str, example: str) -> tuple[str, str]:
    before, found, after = text.partition(sign)
    if not found or not before:
        raise ValueError(f"{text[:40]!r} is not a pair; write {example}")
    return before, after


def _text(text: str) -> str:
    check_text(text)
    return text


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a job's id") from None
