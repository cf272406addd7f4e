"""Archive page: the state of retention, its policies, tiers and runs, and a run on demand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from starlette.responses import Response

from tidemill.archive.status import PolicyStatus
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.errors import ArchiveRunning

pages = PageRoutes()

RUN_BUDGET = 10.0
"""Seconds for an archive run that someone waits for."""


class TierRow(NamedTuple):
    """One tier of a store, with what the policies have moved there."""

    store: str
    tier: str
    archived: int
    size: int
    last_at: datetime | None
    policies: list[str]


@pages.get("/archive", role=Role.VIEWER, everywhere=True)
async def archive(request: PageRequest) -> Response:
    """Show what retention does, and where archived jobs are."""
    status = await request.read(request.app.archive.status)
    return request.render("archive.html", retention=status, tiers=tiers(status.policies), budget=RUN_BUDGET)


@pages.post("/archive/run", role=Role.ADMIN, everywhere=True)
async def run(request: PageRequest) -> Response:
    """Archive due jobs now, for a few seconds at most."""
    try:
        done = await request.act(request.app.archive.run, budget=RUN_BUDGET)
    except ArchiveRunning as error:
        return request.back("/archive", f"{error.message}.", good=False)
    jobs = "1 job was" if done.archived == 1 else f"{done.archived:,} jobs were"
    more = "; more jobs are due, run it again" if done.more else ""
    return request.back("/archive", f"{jobs} archived{more}.", good=not done.failed)


def tiers(policies: Sequence[PolicyStatus]) -> list[TierRow]:
    """Return the tiers to which policies move jobs, in the order of the policies."""
    rows: dict[tuple[str, str], TierRow] = {}
    for policy in policies:
        if policy.to is None or policy.tier is None:
            continue
        row = rows.get((policy.to, policy.tier)) or TierRow(policy.to, policy.tier, 0, 0, None, [])
        last = max(filter(None, (row.last_at, policy.last_at)), default=None)
        rows[policy.to, policy.tier] = row._replace(
            archived=row.archived + policy.archived,
            size=row.size + policy.bytes,
            last_at=last,
            policies=[*row.policies, policy.name],
        )
    return list(rows.values())
