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
async def delete_job(call: ApiRequest) -> Response:
    """Delete an ended job with its executions and logs."""
    job = await call.job()
    await call.act(job.delete)
    return call.empty()


@routes.post(
    "/api/jobs/{id}/cancel", role=Role.OPERATOR, body=CancelBody, body_optional=True, answer=JobDocument
)
async def cancel_job(call: ApiRequest) -> Response:
    """Cancel a job. If it is running, ask its worker to stop it and respond with 202."""
    job = await call.job()
    await call.act(job.cancel, call.body.reason, children=call.body.children)
    return call.reply(shown(call, job.facts), 202 if job.facts.state in HELD else 200)


@routes.patch("/api/jobs/{id}", role=Role.OPERATOR, body=ChangeBody, answer=JobDocument)
async def change_job(call: ApiRequest) -> Response:
    """Change the queue or priority of a pending or scheduled job."""
    job = await call.job()
    body: ChangeBody = call.body
    if body.priority is not None:
        call.identity.check_priority(body.priority)
    await call.act(job.change, priority=body.priority, queue=body.queue)
    return call.reply(shown(call, job.facts))


@routes.post("/api/jobs/{id}/retry", role=Role.OPERATOR, answer=JobDocument)
async def retry_job(call: ApiRequest) -> Response:
    """Retry an ended job with all its attempts."""
    job = await call.job()
    await call.act(job.retry)
    return call.reply(shown(call, job.facts))


@routes.post("/api/jobs/{id}/run-now", role=Role.OPERATOR, answer=JobDocument)
async def run_job_now(call: ApiRequest) -> Response:
    """Make a scheduled job, or one waiting for its next attempt, pending immediately."""
    job = await call.job()
    await call.act(job.run_now)
    return call.reply(shown(call, job.facts))


@routes.post("/api/jobs/{id}/reschedule", role=Role.OPERATOR, body=RescheduleBody, answer=JobDocument)
async def reschedule_job(call: ApiRequest) -> Response:
    """Change when a job that has not started runs."""
    job = await call.job()
    await call.act(job.reschedule, call.body.run_at)
    return call.reply(shown(call, job.facts))


@routes.post("/api/jobs/{id}/rerun", role=Role.OPERATOR, answer=JobDocument)
async def rerun_job(call: ApiRequest) -> Response:
    """Rerun a job that waits for review, with all its attempts."""
    job = await call.job()
    await call.act(job.rerun)
    return call.reply(shown(call, job.facts))


@routes.post(
    "/api/jobs/{id}/approve", role=Role.OPERATOR, body=CommentBody, body_optional=True, answer=JobDocument
)
async def approve_job(call: ApiRequest) -> Response:
    """Approve a job that waits for review; it completes."""
    job = await call.job()
    await call.act(job.approve, call.body.comment)
    return call.reply(shown(call, job.facts))


@routes.post(
    "/api/jobs/{id}/reject", role=Role.OPERATOR, body=CommentBody, body_optional=True, answer=JobDocument
)
async def reject_job(call: ApiRequest) -> Response:
    """Reject a job that waits for review; it fails."""
    job = await call.job()
    await call.act(job.reject, call.body.comment)
    return call.reply(shown(call, job.facts))
