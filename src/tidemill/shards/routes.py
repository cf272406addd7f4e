"""Where each store verb goes in an app with shards, and how the answers of several shards become one.

``VERBS`` has every verb that the client calls. The verbs of workers are missing on purpose: a worker serves one shard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain
from operator import attrgetter
from typing import Any

from tidemill.domain.depths import add_depth_series
from tidemill.domain.failures import FailureCount, FailureGroup
from tidemill.domain.filters import Page, Sort
from tidemill.domain.limits import Use
from tidemill.domain.log_search import FoundLine, LogPlace, read_log_cursor
from tidemill.domain.merged_pages import MergedReader
from tidemill.domain.merged_stats import (
    add_counts,
    add_crowds,
    add_declared,
    add_depths,
    add_ended,
    add_ever,
    add_flow_totals,
    add_grouped_series,
    add_series,
    add_times_by,
    earliest,
    summed,
)
from tidemill.domain.schedules import Due, Fired
from tidemill.domain.signals import Posted
from tidemill.domain.stats import TaskBacklog
from tidemill.stores.signals import Delivered, UnreadSignals

Answers = Sequence[Any]
Options = Mapping[str, Any]
Merge = Callable[[Answers, Options], Any]
"""Makes one answer of those of several shards; the options are the keywords of the call."""


class RouteScope(Enum):
    """The part of a call that decides to which shards it goes."""

    TENANT = auto()  #: the keyword ``tenant``
    FILTER = auto()  #: the tenant of the filter that comes first
    ROWS = auto()  #: the tenant of each row in the first argument; rows of several tenants are divided
    ROW = auto()  #: the tenant of the row that comes first
    GROUPS = auto()  #: the tenant of the first row in the first argument
    ALL = auto()  #: nothing: every shard
    HOME = auto()  #: nothing: the home store


@dataclass(frozen=True, slots=True)
class VerbRoute:
    """The route of one verb."""

    scope: RouteScope
    merge: Merge
    writes: bool = False
    creates: bool = False  #: whether it adds rows, which belong into the current shard of their tenant, a new one included
    owned: bool = (
        False  #: whether it fails in a shard without the row that it names, so that the next one is asked
    )


# Merges ----------------------------------------------------------------------------------------------------------------


def joined(answers: Answers, _: Options) -> list[Any]:
    """All rows, in the order of the shards."""
    return list(chain.from_iterable(answers))


def once(answers: Answers, _: Options) -> list[Any]:
    """All rows; of rows with the same id, the one of the current shard, which comes first."""
    return list({row.id: row for row in reversed(joined(answers, {}))}.values())[::-1]


def by_id(answers: Answers, options: Options) -> list[Any]:
    """All rows by id, as many as the call asks for."""
    return sorted(once(answers, {}), key=attrgetter("id"))[: options.get("limit")]


def newest(answers: Answers, options: Options) -> list[Any]:
    """All rows, the newest id first, as many as the call asks for."""
    return sorted(once(answers, {}), key=attrgetter("id"), reverse=True)[: options.get("limit", 100)]


def ordered(key: Callable[[Any], Any], *, limit: int | None = None, reverse: bool = False) -> Merge:
    """All rows in an order, as many as the call asks for."""

    def merge(answers: Answers, options: Options) -> list[Any]:
        rows = sorted(joined(answers, {}), key=key, reverse=reverse)
        return rows[: options.get("limit", limit)]

    return merge


def union(answers: Answers, _: Options) -> frozenset[Any]:
    """All ids."""
    return frozenset(chain.from_iterable(answers))


def mapped(answers: Answers, _: Options) -> dict[Any, Any]:
    """All values by key; the current shard takes precedence."""
    return {key: value for answer in reversed(answers) for key, value in answer.items()}


def first(answers: Answers, _: Options) -> Any:
    """The first answer that is not empty, else the last one."""
    return next((answer for answer in answers if answer), answers[-1])


def nothing(_: Answers, __: Options) -> None:
    """No answer."""


def total(answers: Answers, _: Options) -> Any:
    """The sum of numbers."""
    return sum(answers)


def any_of(answers: Answers, _: Options) -> bool:
    """Whether any answer is true."""
    return any(answers)


def _counts(answers: Answers, options: Options) -> Any:
    counts = add_counts(answers)
    left: int | None = options.get("most")
    if left is None:
        return counts
    shown = {}
    for state, number in counts.items():
        shown[state] = min(number, left)
        left -= shown[state]
    return {state: number for state, number in shown.items() if number}


def _depth(answers: Answers, options: Options) -> int:
    most: int = options["most"]
    return min(sum(answers), most)


def _distinct(key: Callable[[Any], Any]) -> Merge:
    """All rows, one of each key; the first shard's."""

    def merge(answers: Answers, _: Options) -> list[Any]:
        return list({key(row): row for row in reversed(joined(answers, {}))}.values())[::-1]

    return merge


def _page(answers: Sequence[Page[Any]], options: Options) -> Page[Any]:
    """A page of rows in the order of their ids. One cursor, the last id, serves all shards."""
    readers = [_reader(page) for page in answers]
    merged = MergedReader(readers, attrgetter("id"), options.get("sort", Sort.NEWEST))
    return merged.page(options.get("limit", 100), options.get("after"))


def _reader(page: Page[Any]) -> Callable[[int, str | None], Page[Any]]:
    return lambda _limit, _after: page


def _lines(answers: Sequence[Page[FoundLine]], options: Options) -> Page[FoundLine]:
    """A page of log lines, newest first. It ends where a shard has stopped, because the others may not pass that line."""
    ends = [read_log_cursor(page.next) for page in answers if page.next is not None]
    horizon = max(ends, default=None)
    lines = sorted((line for page in answers for line in page.items), key=_place, reverse=True)
    shown = [line for line in lines if horizon is None or _place(line) >= horizon]
    limit = options.get("limit", 100)
    if len(shown) > limit:
        return Page(shown[:limit], _place(shown[limit - 1]).cursor())
    return Page(shown, None if horizon is None else horizon.cursor())


def _place(line: FoundLine) -> LogPlace:
    return LogPlace(line.entry.at, line.position)


def _posted(answers: Answers, _: Options) -> list[Posted]:
    """The answer of the shard that has the job, for each signal."""
    return [
        next((answer for answer in rows if answer is not Posted.MISSING), Posted.MISSING)
        for rows in zip(*answers, strict=True)
    ]


def _delivered(answers: Sequence[Delivered], _: Options) -> Delivered:
    """The answer of the shard that has the job."""
    return next((delivered for delivered in answers if delivered.answer is not Posted.MISSING), answers[0])


def _events(answers: Answers, options: Options) -> list[Any]:
    rows = sorted(once(answers, {}), key=attrgetter("created_at", "id"), reverse=options.get("newest", False))
    return rows[: options.get("limit", 100)]


def _fires(answers: Sequence[Sequence[Fired]], options: Options) -> list[Fired]:
    """Fires, newest first. A move to another shard copies some of them."""
    rows = {fire.key: fire for fire in joined(answers, {})}.values()
    return sorted(rows, key=attrgetter("fire_at"), reverse=True)[: options.get("limit", 100)]


def _uses(answers: Sequence[Sequence[Use]], _: Options) -> list[Use]:
    """Add the use of limits by name. The clocks and breakers are those of the first shard."""
    rows = summed(
        (use for answer in answers for use in answer),
        attrgetter("name"),
        lambda one, other: one._replace(
            used=one.used + other.used,
            begun=one.begun + other.begun,
            full_until_at=max(filter(None, (one.full_until_at, other.full_until_at)), default=None),
            oldest_at=earliest(one.oldest_at, other.oldest_at),
            breaker=one.breaker or other.breaker,
        ),
    )
    return list(rows.values())


def _failure_groups(answers: Sequence[Sequence[FailureGroup]], options: Options) -> list[FailureGroup]:
    """The groups with the most failures; the latest failure of all shards describes a group."""

    def add(one: FailureGroup, other: FailureGroup) -> FailureGroup:
        latest = max(one, other, key=attrgetter("last_at"))
        return latest._replace(
            jobs=one.jobs + other.jobs,
            tasks=max(one.tasks, other.tasks),
            tenants=one.tenants + other.tenants,
            first_at=min(one.first_at, other.first_at),
        )

    rows = summed(joined(answers, {}), attrgetter("fingerprint"), add).values()
    return sorted(rows, key=lambda row: (-row.jobs, row.fingerprint))[: options.get("limit", 100)]


def _failure_counts(answers: Sequence[Sequence[FailureCount]], options: Options) -> list[FailureCount]:
    def add(one: FailureCount, other: FailureCount) -> FailureCount:
        return max(one, other, key=attrgetter("last_at"))._replace(jobs=one.jobs + other.jobs)

    rows = summed(joined(answers, {}), attrgetter("name"), add).values()
    return sorted(rows, key=lambda row: (-row.jobs, row.name))[: options.get("limit", 20)]


def _failure_series(answers: Sequence[Mapping[str, list[int]]], _: Options) -> dict[str, list[int]]:
    sums: dict[str, list[int]] = {}
    for answer in answers:
        for name, steps in answer.items():
            before = sums.get(name, [0] * len(steps))
            sums[name] = [one + other for one, other in zip(before, steps, strict=True)]
    return sums


def _backlogs(answers: Sequence[Sequence[TaskBacklog]], _: Options) -> list[TaskBacklog]:
    rows = summed(
        joined(answers, {}),
        attrgetter("task"),
        lambda one, other: TaskBacklog(
            one.task, one.pending + other.pending, min(one.oldest_at, other.oldest_at)
        ),
    )
    return sorted(rows.values(), key=attrgetter("oldest_at"))


def _due(answers: Sequence[Due], _: Options) -> Due:
    rows = joined([answer.schedules for answer in answers], {})
    return Due(rows, earliest(*(answer.next_fire_at for answer in answers)))


def _unread(answers: Sequence[UnreadSignals], _: Options) -> UnreadSignals:
    return UnreadSignals(
        sum(answer.unread for answer in answers), earliest(*(answer.oldest_at for answer in answers))
    )


_CLAIMED = attrgetter("claimed_at")


def _tenant(merge: Merge, *, writes: bool = False, owned: bool = False) -> VerbRoute:
    return VerbRoute(RouteScope.TENANT, merge, writes=writes, owned=owned)


def _all(merge: Merge, *, writes: bool = False) -> VerbRoute:
    return VerbRoute(RouteScope.ALL, merge, writes=writes)


_HOME = VerbRoute(RouteScope.HOME, first)
_HOME_WRITE = VerbRoute(RouteScope.HOME, first, writes=True)

VERBS: Mapping[str, VerbRoute] = {
    # Jobs
    "enqueue": VerbRoute(RouteScope.ROWS, joined, writes=True, creates=True),
    "move": VerbRoute(RouteScope.ROWS, union, writes=True),
    "change": VerbRoute(RouteScope.ROWS, union, writes=True),
    "request_cancel": _tenant(union, writes=True),
    "delete": _tenant(union, writes=True),
    "get": _tenant(by_id),
    "jobs": VerbRoute(RouteScope.FILTER, _page),
    "count": VerbRoute(RouteScope.FILTER, _counts),
    "executions": _tenant(joined),
    "logs": _tenant(first),
    "search_logs": VerbRoute(RouteScope.FILTER, _lines),
    "checkpoints": _tenant(mapped),
    "stream": _tenant(first),
    "stream_names": _tenant(mapped),
    "blob_parts": _all(first),
    # Statistics
    "standing": _tenant(_counts),
    "declared": _tenant(lambda answers, _: add_declared(answers)),
    "lately": _tenant(ordered(attrgetter("task"))),
    "ended_by": _tenant(lambda answers, options: add_ended(answers, options.get("limit", 100))),
    "series": _tenant(lambda answers, _: add_series(answers)),
    "series_by": _tenant(lambda answers, options: add_grouped_series(answers, options.get("limit", 8))),
    "times_by": _tenant(lambda answers, _: add_times_by(answers)),
    "ended_ever": _all(lambda answers, _: add_ever(answers)),
    "depths": _tenant(lambda answers, _: add_depths(answers)),
    "depth_series": _all(lambda answers, options: add_depth_series(answers, options.get("limit", 200))),
    "crowd": _tenant(lambda answers, _: add_crowds(answers)),
    "holding": _tenant(ordered(_CLAIMED, limit=100)),
    "holders": _tenant(ordered(attrgetter("worker"))),
    "depth": _tenant(_depth),
    # Workers and coordination
    "lanes": _all(joined),
    "gates": _all(joined),
    "workers": _all(joined),
    "leases": _all(joined),
    "orphans": _all(joined),
    "overdue": _all(joined),
    "acquire": _HOME_WRITE,
    "renew": _HOME_WRITE,
    "release": _HOME_WRITE,
    "hold": _HOME_WRITE,
    "server": _HOME,
    "schema": _HOME,
    "now": _HOME,
    "check": _HOME,
    # Definitions, schedules and fires
    "put_definition": VerbRoute(RouteScope.ROW, first, writes=True, creates=True),
    "definitions": _tenant(once),
    "definition_versions": _tenant(first),
    "enable_definitions": _tenant(union, writes=True),
    "drop_definitions": _tenant(union, writes=True),
    "put_schedules": VerbRoute(RouteScope.ROWS, union, writes=True, creates=True),
    "schedules": _tenant(once),
    "enable_schedules": _tenant(union, writes=True),
    "drop_schedules": _tenant(union, writes=True),
    "note_fires": VerbRoute(RouteScope.ROWS, union, writes=True, creates=True),
    "fires": _tenant(_fires),
    "due": _all(_due),
    "last_fires": _all(mapped),
    "active_jobs": _all(joined),
    "occurrences": _all(joined),
    "followed": _all(union),
    "release_of": _HOME,
    "put_release": _HOME_WRITE,
    "declare_tasks": VerbRoute(RouteScope.ALL, nothing, writes=True),
    "declared_tasks": _all(_distinct(attrgetter("name"))),
    # Failures
    "failure_groups": _tenant(_failure_groups),
    "failure_series": _tenant(_failure_series),
    "failure_counts": _tenant(_failure_counts),
    "error_marks": _tenant(_distinct(attrgetter("tenant", "fingerprint"))),
    "put_error_marks": VerbRoute(RouteScope.ROWS, nothing, writes=True),
    "backlogs": _tenant(_backlogs),
    "deploys": _all(joined),
    "note_deploy": _HOME_WRITE,
    # Limits and settings
    "rules": _HOME,
    "uses": _all(_uses),
    "pauses": _all(_distinct(attrgetter("kind", "name"))),
    "settings": _HOME,
    # Flows
    "start_flow": VerbRoute(RouteScope.GROUPS, first, writes=True, creates=True),
    "attach": _tenant(nothing, writes=True, owned=True),
    "grow_group": _tenant(nothing, writes=True, owned=True),
    "change_flow": _tenant(first, writes=True),
    "reopen": _tenant(union, writes=True, owned=True),
    "edges_of": _all(joined),
    "joins_of": _all(joined),
    "flow": _tenant(once),
    "flows": VerbRoute(RouteScope.FILTER, newest),
    "flow_jobs": _tenant(by_id),
    "group_jobs": _tenant(first),
    "group_counts": _all(joined),
    "group_results": _tenant(first),
    "flow_totals": _tenant(lambda answers, _: add_flow_totals(answers)),
    "stalled_flows": _tenant(by_id),
    "archived_flows": _tenant(once),
    "search_archived_flows": VerbRoute(RouteScope.FILTER, newest),
    # Signals and events
    "post_signals": VerbRoute(RouteScope.ROWS, _posted, writes=True),
    "deliver_signal": VerbRoute(RouteScope.ROW, _delivered, writes=True),
    "signals": _tenant(first),
    "waits": _tenant(joined),
    "questions": _tenant(ordered(attrgetter("job_id"), limit=100)),
    "unread_signals": _all(_unread),
    "emit": VerbRoute(RouteScope.ROWS, union, writes=True, creates=True),
    "events": _tenant(_events),
    "append_events": VerbRoute(RouteScope.ROWS, total, writes=True, creates=True),
    "event_backlogs": _all(joined),
    "drop_subscription": VerbRoute(RouteScope.ALL, total, writes=True),
    "stored_alerts": _all(ordered(attrgetter("opened_at"), limit=100, reverse=True)),
    "acknowledge_alerts": VerbRoute(RouteScope.ALL, union, writes=True),
    # Archive
    "archived": _tenant(once),
    "search_archive": VerbRoute(RouteScope.FILTER, _page),
    "archive_places": _all(lambda answers, _: sorted({*chain.from_iterable(answers)})),
    "archivable": _all(ordered(attrgetter("finished_at"))),
    "archived_due": _all(joined),
    "ended_beyond": _all(first),
    "due_flows": _all(joined),
    # Keys and the audit
    "record": VerbRoute(RouteScope.ROWS, joined, writes=True, creates=True),
    "audit": _tenant(joined),
    "audit_gaps": _all(joined),
    "put_keys": _HOME_WRITE,
    "keys": _HOME,
    "revoke_keys": _HOME_WRITE,
    "put_sessions": _HOME_WRITE,
    "sessions": _HOME,
    "end_sessions": _HOME_WRITE,
    # Placements
    "placed": _HOME,
    "place": _HOME_WRITE,
    "replace": _HOME_WRITE,
    "copy_placements": _HOME_WRITE,
}
"""The verbs that the client may call without naming a shard."""
