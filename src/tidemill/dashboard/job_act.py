"""Deciding about one job: retry, cancel, approve, reject, delete. Each is a form; what cannot be done is said on the job's page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from tidemill.dashboard.filled import read_reason, refuse_to_look
from tidemill.dashboard.pages import Pages
from tidemill.dashboard.visit import Visit
from tidemill.domain.access import Role
from tidemill.domain.states import ENDED, HELD
from tidemill.errors import JobError

pages = Pages()


@pages.post("/jobs/{id}/retry", role=Role.OPERATOR)
async def retry(visit: Visit) -> Response:
    """Another chain of attempts."""
    job = await visit.job()
    return await _done(visit, job.retry, lambda: "The job is pending again, with all its attempts.")


@pages.post("/jobs/{id}/cancel", role=Role.OPERATOR)
async def cancel(visit: Visit) -> Response:
    """End it, or ask its worker to stop it."""
    job = await visit.job()
    return await _done(
        visit,
        job.cancel,
        lambda: "Its worker was asked to stop it." if job.status in HELD else "The job is cancelled.",
        read_reason(visit.form),
    )


@pages.post("/jobs/{id}/approve", role=Role.OPERATOR)
async def approve(visit: Visit) -> Response:
    """Complete a job that waits for a person."""
    job = await visit.job()
    return await _done(
        visit, job.approve, lambda: "Approved: the job is completed.", read_reason(visit.form, "comment")
    )


@pages.post("/jobs/{id}/reject", role=Role.OPERATOR)
async def reject(visit: Visit) -> Response:
    """Fail a job that waits for a person."""
    job = await visit.job()
    return await _done(
        visit, job.reject, lambda: "Rejected: the job has failed.", read_reason(visit.form, "comment")
    )


@pages.get("/jobs/{id}/delete", role=Role.ADMIN)
async def ask_delete(visit: Visit) -> Response:
    """What would be removed."""
    refuse_to_look(visit)
    job = await visit.facts()
    return visit.render("job_delete.html", job=job, possible=job.state in ENDED)


@pages.post("/jobs/{id}/delete", role=Role.ADMIN)
async def delete(visit: Visit) -> Response:
    """Remove it with all that was written about it."""
    job = await visit.job()
    try:
        await visit.act(job.delete)
    except JobError as error:
        return visit.back(f"/jobs/{job.id}", _sentence(error.message), good=False)
    return visit.back("/jobs", f"Job {job.id} of task {job.task} is deleted.")


async def _done(visit: Visit, act: Callable[..., Any], words: Callable[[], str], *args: Any) -> Response:
    id = visit.id()
    try:
        await visit.act(act, *args)
    except JobError as error:  # it has moved on: its page says where it is now
        return visit.back(f"/jobs/{id}", _sentence(error.message), good=False)
    return visit.back(f"/jobs/{id}", words())


def _sentence(text: str) -> str:
    """Words of an error as a sentence.

    >>> _sentence("cannot retry it")
    'Cannot retry it.'
    """
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
