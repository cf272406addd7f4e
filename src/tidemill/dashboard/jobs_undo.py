"""UndoForm of a change of queue, priority or time.

The message after the action carries the values before it, so that no state is kept on the server. Undoing is the same action
with these values, and it needs the same permission.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from starlette.responses import Response

from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.job import CHANGEABLE, JobRow
from tidemill.domain.states import JobState
from tidemill.errors import UsageError
from tidemill.web.problems import Problem
from tidemill.web.sessions import UndoForm

pages = PageRoutes()

MOST = 50
"""Maximum number of jobs whose values fit into the cookie of the message."""

LONGEST = 2_600
"""Maximum number of characters of the values."""


def before(act: str, jobs: Iterable[JobRow]) -> UndoForm | None:
    """Return the form that undoes the action on these jobs, or None if it cannot be undone or there are too many."""
    if act not in ("change", "reschedule"):
        return None
    groups: dict[tuple[Any, ...], list[str]] = {}
    for number, job in enumerate(jobs):
        if number >= MOST:
            return None
        if job.state in CHANGEABLE:
            due = job.run_at.isoformat() if job.state is JobState.SCHEDULED else None
            key = (job.queue, job.priority) if act == "change" else (due,)
            groups.setdefault(key, []).append(job.id.hex)
    text = json.dumps([act, [[*key, ids] for key, ids in groups.items()]], separators=(",", ":"))
    return UndoForm("/jobs/undo", {"undo": text}) if groups and len(text) <= LONGEST else None


@pages.post("/jobs/undo", role=Role.OPERATOR)
async def undo(request: PageRequest) -> Response:
    """Give jobs the queue, the priority or the time that they had before an action."""
    act, groups = _read(request.form.get("undo") or "")
    done = 0
    for *values, ids in groups:
        try:
            done += (await request.act(_restore, request, act, values, ids)).done
        except UsageError as error:
            return request.back_to(
                request.form.get("next"), f"Cannot undo: {error.message}.", good=False, otherwise="/jobs"
            )
    words = f"{done:,} {'job' if done == 1 else 'jobs'} changed back."
    return request.back_to(request.form.get("next"), words, good=done > 0, otherwise="/jobs")


def _restore(request: PageRequest, act: str, values: list[Any], ids: list[UUID]) -> Any:
    jobs = request.app.jobs
    where: dict[str, Any] = {"ids": ids, "tenant": request.tenant}
    if act == "change":
        request.identity.check_priority(values[1])
        return jobs.change(to_queue=values[0], priority=values[1], **where)
    # A time that has passed in the meantime, and a job that was pending, are due now.
    if values[0] is None or datetime.fromisoformat(values[0]) <= request.now():
        return jobs.run_now(**where)
    return jobs.reschedule(at=datetime.fromisoformat(values[0]), **where)


def _read(text: str) -> tuple[str, list[Any]]:
    try:
        act, groups = json.loads(text)
        read = []
        for *values, ids in groups:
            jobs = [UUID(id) for id in ids][:MOST]
            if act == "change":
                read.append([str(values[0]), int(values[1]), jobs])
            else:
                read.append([values[0] and datetime.fromisoformat(values[0]).isoformat(), jobs])
    except (ValueError, TypeError, IndexError, AttributeError):
        raise Problem(422, None, "this action can no longer be undone") from None
    if act not in ("change", "reschedule") or len(read) > MOST:
        raise Problem(422, None, "this action can no longer be undone")
    return act, read
