"""``POST /api/jobs/bulk``: bulk actions on jobs, in batches."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tidemill.client.jobs.actions import BATCH, check_change
from tidemill.domain.access import Role
from tidemill.domain.decide import Action, expected
from tidemill.domain.job import CHANGEABLE
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.errors import BadFilter
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_models import ActedDocument, BulkBody
from tidemill.rest.routes import Routes

routes = Routes("jobs")

_STATES = {
    "cancel": expected(Action.CANCEL) | HELD,
    "retry": expected(Action.RETRY),
    "delete": ENDED,
    "change": CHANGEABLE,
}


@routes.post("/api/jobs/bulk", role=Role.OPERATOR, body=BulkBody, answer=ActedDocument)
async def act_on_jobs(request: ApiRequest) -> Response:
    """Cancel, retry, change or delete the jobs that match, oldest first.

    `change` sets the `queue`, the `priority` or both of pending and scheduled jobs. One call processes at most `limit` jobs;
    `more` indicates whether to call again. Deleting requires the role `admin`.
    """
    body: BulkBody = request.body
    request.need(f"jobs.{body.action}")
    if body.action == "change":
        check_change(body.queue, body.priority)
        if body.priority is not None:
            request.identity.check_priority(body.priority)
    elif body.queue is not None or body.priority is not None:
        raise BadFilter(
            f"queue and priority are only for the action change, not for {body.action}; omit them"
        )
    conditions = body.filter.conditions()
    request.check_selection(conditions)
    audited = dict(conditions)
    wanted = frozenset(JobState(name) for name in conditions.pop("status", ()))
    states = (wanted & _STATES[body.action]) if wanted else _STATES[body.action]
    if not states:
        return request.reply({"done": 0, "skipped": 0, "more": False})
    conditions |= {"status": states, "tenant": request.tenant}
    # Jobs that are created during the loop are not affected.
    conditions["created_before"] = min(conditions.get("created_before", request.now()), request.now())
    done = seen = 0
    cursor: str | None = None
    while seen < body.limit:
        page = await request.read(
            request.app.jobs.list,
            limit=min(BATCH, body.limit - seen),
            cursor=cursor,
            # Workers start with the oldest jobs, so cancel the newest first.
            sort="newest" if body.action == "cancel" else "oldest",
            **conditions,
        )
        if page.items:
            done += await request.act(_do, request, body, [job.id for job in page.items], audited)
            seen += len(page.items)
        cursor = page.next
        if cursor is None:
            break
    return request.reply({"done": done, "skipped": seen - done, "more": cursor is not None})


def _do(request: ApiRequest, body: BulkBody, ids: list[Any], audited: dict[str, Any]) -> int:
    where: dict[str, Any] = {"ids": ids, "tenant": request.tenant, "asked": audited}
    match body.action:
        case "cancel":
            return request.app.jobs.cancel(reason=body.reason, **where).done
        case "retry":
            return request.app.jobs.retry(**where).done
        case "change":
            return request.app.jobs.change(priority=body.priority, to_queue=body.queue, **where).done
        case _:
            return request.app.jobs.delete(**where).done
