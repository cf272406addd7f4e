"""Queue and limit pages: backlog, throughput, workers and limit usage."""

from __future__ import annotations

from typing import Any, NamedTuple

from starlette.responses import Response

from tidemill.client.limits import LimitState, allows
from tidemill.client.stats.loads import QueueFacts, is_living, queue_facts, queue_loads, serving, waited_for
from tidemill.dashboard.formats import percent, span
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.breaker import BreakerPhase
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.limits import LimitKind, Rule
from tidemill.domain.records import PauseKind
from tidemill.domain.states import HELD

pages = PageRoutes()

SHOWN = 20
"""Maximum number of listed jobs."""


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

    @property
    def fraction(self) -> float:
        return min(self.used / self.most, 1.0) if self.most else 0.0


@pages.get("/queues", role=Role.VIEWER)
async def queues(visit: PageRequest) -> Response:
    """List all queues, and all limits for users who may see all tenants."""
    found = await visit.read(_list, visit, await _facts(visit))
    return visit.render("queues.html", **found)


async def _facts(visit: PageRequest) -> QueueFacts:
    """Return the cached job counts. Pauses and workers are read on every request."""
    about = ("queues", visit.tenant)
    return await visit.figures(about, queue_facts, visit.app.store, visit.now(), tenant=visit.tenant)


def _list(visit: PageRequest, facts: QueueFacts) -> dict[str, Any]:
    store = visit.app.store
    also = {task.options.queue for task in visit.app.registry}
    loads = queue_loads(store, visit.now(), tenant=visit.tenant, also=also, facts=facts)
    everywhere = visit.identity.tenant == ALL_TENANTS
    return {
        "loads": loads,
        "everything": next((each for each in store.pauses() if each.kind is PauseKind.ALL), None),
        "enabled": all(each.value is not False for each in store.settings() if each.key == "worker_enabled"),
        "limits": _limits(visit) if everywhere else [],
    }


def _limits(visit: PageRequest) -> list[LimitRow]:
    behind, declared = waited_for(visit.app.store), visit.app.limits.declared()
    found = [limit_row(state, behind, declared.get(state.name)) for state in visit.app.limits.list()]
    return sorted(found, key=lambda row: (not row.is_full, row.state.name))


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
async def queue(visit: PageRequest) -> Response:
    """Show one queue: its load, its workers, its running jobs and its limits."""
    found = await visit.read(_look, visit, visit.path["name"], await _facts(visit))
    return visit.render("queue.html", **found)


def _look(visit: PageRequest, name: str, facts: QueueFacts) -> dict[str, Any]:
    store, now = visit.app.store, visit.now()
    everywhere = visit.identity.tenant == ALL_TENANTS
    (load,) = queue_loads(store, now, tenant=visit.tenant, named=name, facts=facts).rows
    living = [worker for worker in store.workers() if is_living(worker, now)] if everywhere else []
    own = {f"queue/{name}", f"depth/queue/{name}", "queue", "depth/queue"}
    where = JobFilter(visit.tenant, states=HELD, queues=frozenset({name}))
    return {
        "name": name,
        "load": load,
        "workers": [worker for worker in living if serving(worker, name)],
        "tasks": [task.name for task in visit.app.registry if task.options.queue == name],
        "held": store.jobs(where, limit=SHOWN).items,
        "limits": [row for row in _limits(visit) if row.state.name in own] if everywhere else [],
    }
