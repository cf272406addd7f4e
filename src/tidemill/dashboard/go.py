"""``/go``: what the command palette lists, and the job with an abbreviated id."""

from __future__ import annotations

import json

from starlette.responses import RedirectResponse, Response

from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.errors import BadSettings, JobNotFound

pages = PageRoutes()

MOST_SCHEDULES = 500
"""Maximum number of schedules in the palette."""


@pages.get("/go", role=Role.VIEWER)
async def go(request: PageRequest) -> Response:
    """Return the tasks, queues and schedules that the user may see, or redirect to the job with this id."""
    text = request.query.get("id")
    if text is not None:
        try:
            id = await request.read(request.inspection.resolve, text, tenant=request.tenant)
        except (BadSettings, JobNotFound) as error:
            return request.back("/jobs", f"{error.message.partition(chr(10))[0]}.", good=False)
        return RedirectResponse(request.url(f"/jobs/{id}"), 303)
    registry = request.app.registry
    queues = sorted({task.options.queue for task in registry})
    names = [
        *(
            [name, "task", request.url(f"/tasks/{name}")]
            for name in registry.names()
            if request.permits("tasks.read", name)
        ),
        *(
            [name, "queue", request.url(f"/queues/{name}")]
            for name in queues
            if request.permits("queues.read", queue=name)
        ),
    ]
    if request.identity.role.allows(Role.ADMIN):
        names.append(["New schedule", "page", request.url("/schedules/new")])
    schedules = await request.read(request.inspection.schedules, tenant=request.tenant)
    names += [
        [row.key, "schedule", request.url(f"/schedules/{row.id}")]
        for row in schedules[:MOST_SCHEDULES]
        if request.permits("schedules.read", row.task, None, row.key)
    ]
    # A browser that took the answer for a page must not find a tag in it.
    return Response(json.dumps(names).replace("<", "\\u003c"), media_type="application/json")
