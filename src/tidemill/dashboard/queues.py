"""Queue and limit pages: backlog, throughput, workers and limit usage."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from starlette.responses import Response

from tidemill.client.limits import LimitState, allows
from tidemill.client.stats.loads import QueueCounts, is_living, serving
from tidemill.dashboard.ended_charts import depth_sparks, ended_charts, sparks, window_of
from tidemill.dashboard.formats import percent, span
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.breaker import BreakerPhase
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.limits import LimitKind, Rule
from tidemill.domain.records import PauseKind
from tidemill.domain.states import HELD

pages = PageRoutes()

SHOWN = 20
"""Maximum number of listed jobs."""

MOST_HELD = 1_000
"""Maximum number of held jobs that are counted by worker."""


MOST_WAITING = 50_000
"""Maximum number of waiting jobs to count for one page, divided among its limits."""

LEAST_WAITING = 500
"""Number of waiting jobs that is counted for each limit in any case."""


class LimitRow(NamedTuple):
    """A limit with its current usage."""

    state: LimitState
    allows: str
    used: int
    most: int | None  #: None: no maximum to compare with
    is_full: bool
    waited_for: bool
    keys: list[LimitRow]
    declared: str | None  #: the rule in code, if an operator has overridden it
    waiting: int | None = None  #: jobs that wait behind it; None if they are not counted
    more: bool = False  #: more jobs are waiting than were counted

    @property
    def queue(self) -> str | None:
        """The queue that it limits."""
        return _place(self.state.name, "queue")

    @property
    def tenant(self) -> str | None:
        """The tenant that it limits."""
        return _place(self.state.name, "tenant")

    @property
    def fraction(self) -> float:
        return min(self.used / self.most, 1.0) if self.most else 0.0


@pages.get("/queues", role=Role.VIEWER)
async def queues(request: PageRequest) -> Response:
    """List all queues, and all limits for users who may see all tenants."""
    values = await request.read(_list, request, await _counts(request))
    paths = await request.cached(("queue sparks", request.tenant), sparks, request, "queue")
    depths = await request.cached(("queue depths", request.tenant), depth_sparks, request)
    return request.render("queues.html", paths=paths, depths=depths, **values)


async def _counts(request: PageRequest) -> QueueCounts:
    """Return the cached job counts. Pauses and workers are read on every request."""
    about = ("queues", request.tenant)
    return await request.cached(about, request.inspection.queue_counts, request.now(), tenant=request.tenant)


def _list(request: PageRequest, figures: QueueCounts) -> dict[str, Any]:
    also = {task.options.queue for task in request.app.registry}
    loads = request.inspection.queue_loads(request.now(), figures, tenant=request.tenant, also=also)
    everywhere, control = request.identity.tenant == ALL_TENANTS, request.app.control
    return {
        "loads": loads,
        "everything": next((pause for pause in control.pauses() if pause.kind is PauseKind.ALL), None),
        "enabled": all(
            setting.value is not False for setting in control.settings() if setting.key == "worker_enabled"
        ),
        "limits": _limits(request) if everywhere else [],
    }


def _limits(request: PageRequest) -> list[LimitRow]:
    behind, declared = request.inspection.limits_in_use(), request.app.limits.declared()
    rows = [limit_row(state, behind, declared.get(state.name)) for state in request.app.limits.list()]
    counted = sum(is_counted(part) for row in rows for part in (row, *row.keys))
    most = max(MOST_WAITING // max(counted, 1), LEAST_WAITING)
    return sorted((_with_waiting(request, row, most) for row in rows), key=fullest)


def fullest(row: LimitRow) -> tuple[bool, float, bool, str]:
    """Sort limits and keys: full ones first, then by the share in use, then those that jobs wait for."""
    return not row.is_full, -row.fraction, not row.waited_for, row.state.name


def is_counted(row: LimitRow) -> bool:
    """Whether the waiting jobs behind a limit are exactly the pending jobs of one queue or one tenant."""
    return row.waited_for and (row.queue is not None or row.tenant is not None)


def _with_waiting(request: PageRequest, row: LimitRow, most: int) -> LimitRow:
    """Count the jobs that wait behind a limit and behind each of its keys, up to ``most`` each."""
    keys = sorted((_with_waiting(request, key, most) for key in row.keys), key=fullest)
    if not is_counted(row):
        return row._replace(keys=keys)
    waiting = request.inspection.depth(queue=row.queue, tenant=row.tenant, most=most)
    return row._replace(keys=keys, waiting=waiting, more=waiting >= most)


def _place(name: str, scope: str) -> str | None:
    """Return the queue or tenant that a limit's name ends with.

    >>> _place("queue/mail/eu", "queue"), _place("queue", "queue"), _place("send", "queue")
    ('mail/eu', None, None)
    """
    head, _, rest = name.partition("/")
    return rest or None if head == scope else None


def limit_row(state: LimitState, behind: frozenset[str], declared: Rule | None = None) -> LimitRow:
    """Prepare a limit and its keys for the template."""
    rule = state.rule
    most = rule.burst if rule.burst is not None else rule.max
    used = state.used
    if rule.kind is LimitKind.RATE and rule.burst is not None and state.room is not None:
        # A token bucket reports its free tokens.
        used = rule.burst - state.room
    keyed = bool(state.keys) or (state.room is None and rule.max > 0)
    return LimitRow(
        state,
        allows(rule, span, percent),
        used,
        None if keyed or rule.max <= 0 or rule.kind is LimitKind.BREAKER else most,
        state.is_full or state.phase is BreakerPhase.OPEN,
        state.name in behind,
        [limit_row(key, behind) for key in state.keys],
        allows(declared, span, percent) if declared is not None and rule.pinned else None,
    )


@pages.get("/queues/{name:path}", role=Role.VIEWER)
async def queue(request: PageRequest) -> Response:
    """Show one queue: its load, its workers, its running jobs and its limits."""
    name, window = request.path["name"], window_of(request)
    values = await request.read(_look, request, name, await _counts(request))
    about = ("queue", name, window, request.tenant)
    shown = await request.cached(about, ended_charts, request, window, queue=name)
    return request.render("queue.html", **values, **shown)


def _look(request: PageRequest, name: str, figures: QueueCounts) -> dict[str, Any]:
    inspection, now = request.inspection, request.now()
    everywhere = request.identity.tenant == ALL_TENANTS
    (load,) = inspection.queue_loads(now, figures, tenant=request.tenant, named=name).rows
    living = [worker for worker in inspection.workers() if is_living(worker, now)] if everywhere else []
    held = inspection.held_jobs(tenant=request.tenant, limit=MOST_HELD, now=now)
    by_worker = Counter(row.worker for row in held if row.queue == name)
    own = {f"queue/{name}", f"depth/queue/{name}", "queue", "depth/queue"}
    return {
        "name": name,
        "load": load,
        "workers": sorted(
            ((worker, by_worker[worker.id]) for worker in living if serving(worker, name)),
            key=lambda pair: (-pair[1], pair[0].name),
        ),
        "tasks": [task.name for task in request.app.registry if task.options.queue == name],
        "held": inspection.newest_jobs(tenant=request.tenant, states=HELD, queue=name, limit=SHOWN),
        "limits": [row for row in _limits(request) if row.state.name in own] if everywhere else [],
    }
