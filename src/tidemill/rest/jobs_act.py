"""Deciding about one job: cancel, retry, approve, reject, delete."""

from __future__ import annotations

from starlette.responses import Response

from tidemill.domain.access import Role
from tidemill.domain.states import HELD
from tidemill.rest.call import Call
from tidemill.rest.job_documents import shown
from tidemill.rest.job_models import CommentBody, JobDocument, ReasonBody
from tidemill.rest.routes import Routes

routes = Routes("jobs")


@routes.delete("/api/jobs/{id}", role=Role.ADMIN)
async def delete_job(call: Call) -> Response:
    """Remove an ended job with all that was written about it."""
    job = await call.job()
    await call.act(job.delete)
    return call.empty()


@routes.post(
    "/api/jobs/{id}/cancel", role=Role.OPERATOR, body=ReasonBody, body_optional=True, answer=JobDocument
)
async def cancel_job(call: Call) -> Response:
    """End a job nobody holds; ask the worker of a running one to stop it, which is answered with 202."""
    job = await call.job()
    await call.act(job.cancel, call.body.reason)
    return call.reply(shown(call, job.facts), 202 if job.facts.state in HELD else 200)


@routes.post("/api/jobs/{id}/retry", role=Role.OPERATOR, answer=JobDocument)
async def retry_job(call: Call) -> Response:
    """Give an ended job another chain of attempts."""
    job = await call.job()
    await call.act(job.retry)
    return call.reply(shown(call, job.facts))


@routes.post(
    "/api/jobs/{id}/approve", role=Role.OPERATOR, body=CommentBody, body_optional=True, answer=JobDocument
)
async def approve_job(call: Call) -> Response:
    """Complete a job that waits for a person's decision."""
    job = await call.job()
    await call.act(job.approve, call.body.comment)
    return call.reply(shown(call, job.facts))


@routes.post(
    "/api/jobs/{id}/reject", role=Role.OPERATOR, body=CommentBody, body_optional=True, answer=JobDocument
)
async def reject_job(call: Call) -> Response:
    """Fail a job that waits for a person's decision."""
    job = await call.job()
    await call.act(job.reject, call.body.comment)
    return call.reply(shown(call, job.facts))
