"""``POST /api/jobs/bulk``: one thing done to many jobs, page by page."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tidemill.client.jobs import BATCH
from tidemill.domain.access import Role
from tidemill.domain.decide import Action, expected
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.rest.call import Call
from tidemill.rest.job_models import ActedDocument, BulkBody
from tidemill.rest.routes import Routes

routes = Routes("jobs")

_STATES = {
    "cancel": expected(Action.CANCEL) | HELD,
    "retry": expected(Action.RETRY),
    "delete": ENDED,
}


@routes.post("/api/jobs/bulk", role=Role.OPERATOR, body=BulkBody, answer=ActedDocument)
async def act_on_jobs(call: Call) -> Response:
    """Cancel, retry or delete the jobs that match, the oldest first.

    At most `limit` of them in one call; `more` says whether to call again. Deleting needs the role `admin`.
    """
    body: BulkBody = call.body
    if body.action == "delete":
        call.need(Role.ADMIN)
    conditions = body.filter.conditions()
    said = dict(conditions)
    asked = frozenset(JobState(name) for name in conditions.pop("status", ()))
    states = (asked & _STATES[body.action]) if asked else _STATES[body.action]
    if not states:
        return call.reply({"done": 0, "skipped": 0, "more": False})
    conditions |= {"status": states, "tenant": call.tenant}
    # Those of this moment are meant: a retried job that fails again is not retried for ever.
    conditions["created_before"] = min(conditions.get("created_before", call.now()), call.now())
    done = seen = 0
    cursor: str | None = None
    while seen < body.limit:
        page = await call.read(
            call.app.jobs.list,
            limit=min(BATCH, body.limit - seen),
            cursor=cursor,
            sort="oldest",
            **conditions,
        )
        if page.items:
            done += await call.act(_do, call, body, [job.id for job in page.items], said)
            seen += len(page.items)
        cursor = page.next
        if cursor is None:
            break
    return call.reply({"done": done, "skipped": seen - done, "more": cursor is not None})


def _do(call: Call, body: BulkBody, ids: list[Any], said: dict[str, Any]) -> int:
    where: dict[str, Any] = {"ids": ids, "tenant": call.tenant, "asked": said}
    match body.action:
        case "cancel":
            return call.app.jobs.cancel(reason=body.reason, **where).done
        case "retry":
            return call.app.jobs.retry(**where).done
        case _:
            return call.app.jobs.delete(**where).done
