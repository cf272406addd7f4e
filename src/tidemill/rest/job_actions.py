"""Actions on one job."""

from __future__ import annotations

from starlette.responses import Response

from tidemill.domain.access import Role
from tidemill.domain.states import HELD
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_documents import shown
from tidemill.rest.job_models import CancelBody, ChangeBody, CommentBody, JobDocument, RescheduleBody
from tidemill.rest.routes import Routes

routes = Routes("jobs")


@routes.delete("/api/jobs/{id}", role=Role.ADMIN)
async def delete_job(request: ApiRequest) -> Response:
    """Delete an ended job with its executions and logs."""
    job = await request.job()
    await request.act(job.delete)
    return request.empty()


@routes.post(
    "/api/jobs/{id}/cancel", role=Role.OPERATOR, body=CancelBody, body_optional=True, answer=JobDocument
)
async def cancel_job(request: ApiRequest) -> Response:
    """Cancel a job. If it is running, ask its worker to stop it and respond with 202."""
    job = await request.job()
    if request.body.children:
        # The children may be jobs of any task.
        request.check()
    await request.act(job.cancel, request.body.reason, children=request.body.children)
    return request.reply(shown(request, job.row), 202 if job.row.state in HELD else 200)


@routes.patch("/api/jobs/{id}", role=Role.OPERATOR, body=ChangeBody, answer=JobDocument)
async def change_job(request: ApiRequest) -> Response:
    """Change the queue or priority of a pending or scheduled job."""
    job = await request.job()
    body: ChangeBody = request.body
    if body.priority is not None:
        request.identity.check_priority(body.priority)
    if body.queue is not None:
        request.check(job.row.task, body.queue)
    await request.act(job.change, priority=body.priority, queue=body.queue)
    return request.reply(shown(request, job.row))


@routes.post("/api/jobs/{id}/retry", role=Role.OPERATOR, answer=JobDocument)
async def retry_job(request: ApiRequest) -> Response:
    """Retry an ended job with all its attempts."""
    job = await request.job()
    await request.act(job.retry)
    return request.reply(shown(request, job.row))


@routes.post("/api/jobs/{id}/run-now", role=Role.OPERATOR, answer=JobDocument)
async def run_job_now(request: ApiRequest) -> Response:
    """Make a scheduled job, or one waiting for its next attempt, pending immediately."""
    job = await request.job()
    await request.act(job.run_now)
    return request.reply(shown(request, job.row))


@routes.post("/api/jobs/{id}/reschedule", role=Role.OPERATOR, body=RescheduleBody, answer=JobDocument)
async def reschedule_job(request: ApiRequest) -> Response:
    """Change when a job that has not started runs."""
    job = await request.job()
    await request.act(job.reschedule, request.body.run_at)
    return request.reply(shown(request, job.row))


@routes.post("/api/jobs/{id}/rerun", role=Role.OPERATOR, answer=JobDocument)
async def rerun_job(request: ApiRequest) -> Response:
    """Rerun a job that waits for review, with all its attempts."""
    job = await request.job()
    await request.act(job.rerun)
    return request.reply(shown(request, job.row))


@routes.post(
    "/api/jobs/{id}/approve", role=Role.OPERATOR, body=CommentBody, body_optional=True, answer=JobDocument
)
async def approve_job(request: ApiRequest) -> Response:
    """Approve a job that waits for review; it completes."""
    job = await request.job()
    await request.act(job.approve, request.body.comment)
    return request.reply(shown(request, job.row))


@routes.post(
    "/api/jobs/{id}/reject", role=Role.OPERATOR, body=CommentBody, body_optional=True, answer=JobDocument
)
async def reject_job(request: ApiRequest) -> Response:
    """Reject a job that waits for review; it fails."""
    job = await request.job()
    await request.act(job.reject, request.body.comment)
    return request.reply(shown(request, job.row))
