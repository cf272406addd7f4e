"""Tenants page: usage, failures, backlog, limits, pauses and weights per tenant."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from starlette.responses import Response

from tidemill.client.control import TENANT_SETTING
from tidemill.client.stats.api import WINDOWS
from tidemill.client.stats.reports import GroupThroughput, Report, TenantLoad
from tidemill.dashboard import charts
from tidemill.dashboard.confirmation import ask
from tidemill.dashboard.form_state import read_reason, undo_resume
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.dashboard.queues import LimitRow, limit_row
from tidemill.domain.access import Role
from tidemill.domain.bounds import check_name
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.records import Pause, PauseKind
from tidemill.errors import BadSettings
from tidemill.web.problems import Problem
from tidemill.web.sessions import UndoForm

pages = PageRoutes()

MOST = 100
"""Tenants per page."""

COUNTED = 50_000
"""Maximum number of waiting jobs to count for one page, divided among its tenants."""


class TenantRow(NamedTuple):
    """A tenant with its load, its limits and its waiting jobs, which are counted up to a limit."""

    name: str
    load: TenantLoad | None
    per_hour: float | None  #: ended jobs
    failures: str | None  #: sparkline of the failed jobs over the window; None if no job failed
    waiting: int
    more: bool  #: more jobs are waiting than were counted
    pause: Pause | None
    weight: float
    limits: list[LimitRow]

    @property
    def typed(self) -> str:
        """Format the weight for an input field: all digits, without separators."""
        return f"{self.weight:.12g}"


@pages.get("/tenants", role=Role.VIEWER)
async def tenants(request: PageRequest) -> Response:
    """List every tenant with ended or waiting jobs, a pause or a weight. A key of one tenant sees only that tenant."""
    return await _page(request)


@pages.get("/tenants/pause", role=Role.OPERATOR, everywhere=True)
async def ask_pause(request: PageRequest) -> Response:
    """Ask for confirmation before a tenant is paused."""
    name = _named(request.query.get("name"))
    waiting = await request.read(lambda: request.inspection.depth(tenant=name, most=COUNTED))
    more = "more than " if waiting >= COUNTED else ""
    return ask(
        request,
        title=f"Pause tenant {name}?",
        words=f"None of its jobs starts until it is resumed; {more}{waiting:,} wait now. Running jobs continue, "
        "and jobs enqueued while it is paused wait.",
        action="/tenants/pause",
        fields={"name": name},
        reason=True,
        button="Pause it",
        back="/tenants",
    )


@pages.post("/tenants/pause", role=Role.OPERATOR, everywhere=True)
async def pause(request: PageRequest) -> Response:
    """Pause a tenant."""
    name = _named(request.form.get("name"))
    await request.act(request.app.control.pause, PauseKind.TENANT, name, reason=read_reason(request.form))
    return request.back(
        "/tenants",
        f"Tenant {name} is paused; running jobs continue.",
        undo=UndoForm("/tenants/resume", {"name": name}),
    )


@pages.post("/tenants/resume", role=Role.OPERATOR, everywhere=True)
async def resume(request: PageRequest) -> Response:
    """Resume a tenant."""
    name = _named(request.form.get("name"))
    ended = await request.act(request.app.control.resume, PauseKind.TENANT, name)
    words = f"Tenant {name} is resumed." if ended else f"Tenant {name} was not paused."
    return request.back("/tenants", words, undo=undo_resume("/tenants/pause", ended))


@pages.post("/tenants/weight", role=Role.SUPER_ADMIN, everywhere=True)
async def weigh(request: PageRequest) -> Response:
    """Set the weight of a tenant in fair scheduling. An empty field restores the default."""
    name, text = _named(request.form.get("name")), request.form.get("weight")
    try:
        if text is None:
            await request.act(request.app.control.set_tenant, name, {}, ["weight"])
            return request.back("/tenants", f"Tenant {name} has the default weight again.")
        await request.act(request.app.control.set_tenant, name, {"weight": _weight(text)})
    except BadSettings as error:
        return await _page(request, 422, wrong=(name, text or "", error.message))
    return request.back("/tenants", f"Tenant {name} has weight {text}.")


async def _page(
    request: PageRequest, status: int = 200, wrong: tuple[str, str, str] | None = None
) -> Response:
    window = request.query.get("window") or "24h"
    if window not in WINDOWS:
        window = "24h"
    ended = await request.cached(
        ("tenants", window, request.tenant),
        request.app.stats.tenants,
        WINDOWS[window][0],
        tenant=request.tenant,
        limit=MOST,
    )
    trend = await request.cached(
        ("tenant failures", window, request.tenant),
        request.app.stats.throughput_by,
        "tenant",
        window,
        tenant=request.tenant,
        limit=MOST,
    )
    values = await request.read(_look, request, ended, trend)
    return request.render(
        "tenants.html", status, window=window, windows=list(WINDOWS), wrong=wrong, most=MOST, **values
    )


def _look(request: PageRequest, report: Report[TenantLoad], trend: Report[GroupThroughput]) -> dict[str, Any]:
    inspection, control, tenant = request.inspection, request.app.control, request.tenant
    loads = {row.tenant: row for row in report.rows}
    waiting = inspection.waiting_tenants()
    pauses = {pause.name: pause for pause in control.pauses() if pause.kind is PauseKind.TENANT}
    weights = {
        setting.key.removeprefix(TENANT_SETTING): _stored_weight(setting.value)
        for setting in control.settings()
        if setting.key.startswith(TENANT_SETTING)
    }
    # The busiest tenants first, in the order of the report; then tenants without ended jobs.
    others = sorted((waiting | set(pauses) | set(weights)) - set(loads))
    names = [*loads, *others] if tenant == ALL_TENANTS else [tenant]
    shown = names[:MOST]
    most = max(COUNTED // max(len(waiting.intersection(shown)), 1), COUNTED // MOST)
    everywhere = request.identity.tenant == ALL_TENANTS
    limits = inspection.tenant_limits(shown, request.now()) if everywhere else {}
    failures = {row.name: charts.spark(row.failed, height=20) for row in trend.rows if any(row.failed)}
    rows = []
    for name in shown:
        depth = inspection.depth(tenant=name, most=most) if name in waiting else 0
        load = loads.get(name)
        rows.append(
            TenantRow(
                name,
                load,
                per_hour(load.jobs, report) if load is not None else None,
                failures.get(name),
                depth,
                depth >= most,
                pauses.get(name),
                weights.get(name, 1.0),
                [limit_row(state, frozenset()) for state in limits.get(name, [])],
            )
        )
    return {
        "rows": rows,
        "left_off": len(names) - len(shown),
    }


def per_hour(jobs: int, report: Report[Any]) -> float | None:
    """Return the average number of jobs an hour over the window of a report.

    >>> from datetime import UTC, datetime
    >>> at = datetime(2026, 1, 2, 12, 30, tzinfo=UTC)
    >>> per_hour(6, Report(at, [], at - timedelta(hours=24))), per_hour(6, Report(at, []))
    (0.25, None)
    """
    if report.since_at is None or report.at <= report.since_at:
        return None
    return jobs / ((report.at - report.since_at) / timedelta(hours=1))


def _named(name: str | None) -> str:
    if name is None:
        raise Problem(422, None, "no tenant is named")
    check_name("tenant", name)
    return name


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        raise BadSettings(f"{text[:40]!r} is not a number; enter a weight such as 2 or 0.5") from None
    if not 0 < weight <= 1e9:
        raise BadSettings(f"weight {text[:40]} is out of range; enter a number greater than zero")
    return int(weight) if weight == int(weight) else weight


def _stored_weight(value: object) -> float:
    weight = value.get("weight") if isinstance(value, Mapping) else None
    return float(weight) if isinstance(weight, int | float) and not isinstance(weight, bool) else 1.0
