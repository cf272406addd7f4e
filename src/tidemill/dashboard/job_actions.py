"""Actions on one job.

Each action is a form. If an action is refused, the job's page shows why.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from starlette.responses import Response

from tidemill.dashboard.argument_form import PREFIX, arguments_of, read_arguments
from tidemill.dashboard.form_state import FormError, read_reason, read_whole, refuse_to_look
from tidemill.dashboard.jobs_undo import before
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.job import HIGHEST_PRIORITY, LOWEST_PRIORITY
from tidemill.domain.states import ENDED, HELD
from tidemill.errors import JobError, UsageError
from tidemill.web.text_parsers import read_coming

pages = PageRoutes()


@pages.post("/jobs/{id}/retry", role=Role.OPERATOR)
async def retry(request: PageRequest) -> Response:
    """Make the job pending again, with all its attempts."""
    job = await request.job()
    return await _done(request, job.retry, lambda: "The job is pending again, with all its attempts.")


@pages.post("/jobs/{id}/run-now", role=Role.OPERATOR)
async def run_now(request: PageRequest) -> Response:
    """Make a scheduled job due now."""
    job = await request.job()
    return await _done(request, job.run_now, lambda: "The job is pending.")


@pages.post("/jobs/{id}/rerun", role=Role.OPERATOR)
async def rerun(request: PageRequest) -> Response:
    """Run a job that waits for a decision again."""
    job = await request.job()
    return await _done(request, job.rerun, lambda: "The job is pending again, with all its attempts.")


@pages.post("/jobs/{id}/answer", role=Role.OPERATOR)
async def answer(request: PageRequest) -> Response:
    """Answer the question that the job asks."""
    job = await request.job_row()
    signals = request.app.signals
    asked = await request.read(signals.questions, job=job.id, tenant=job.tenant)
    if not asked:
        return request.back(f"/jobs/{job.id}", "The job no longer asks a question.", good=False)
    text, errors = read_arguments(request.form, arguments_of(asked[0].schema))
    if errors:
        wrong = "; ".join(f"{name.removeprefix(PREFIX)}: {error}" for name, error in errors.items())
        return request.back(f"/jobs/{job.id}", in_a_sentence(ValueError(wrong)), good=False)
    return await _done(
        request,
        signals.answer,
        lambda: "The job continues with the answer.",
        job.id,
        json.loads(text),
        tenant=job.tenant,
    )


@pages.post("/jobs/{id}/cancel", role=Role.OPERATOR)
async def cancel(request: PageRequest) -> Response:
    """Cancel the job, or ask its worker to stop it."""
    job = await request.job()
    if request.form.get("children") == "1":
        # The children may be jobs of any task.
        request.check()
    return await _done(
        request,
        job.cancel,
        lambda: "Its worker was asked to stop it." if job.status in HELD else f"The job is {job.status}.",
        read_reason(request.form),
        children=request.form.get("children") == "1",
    )


@pages.post("/jobs/{id}/reschedule", role=Role.OPERATOR)
async def reschedule(request: PageRequest) -> Response:
    """Change when the job is due."""
    job = await request.job()
    try:
        at = read_coming(request.form.get("at") or "", request.now())
    except ValueError as error:
        return request.back(f"/jobs/{job.id}", in_a_sentence(error), good=False)
    return await _done(
        request, job.reschedule, lambda: f"The job is due at {job.run_at:%Y-%m-%d %H:%M:%S} UTC.", at
    )


@pages.post("/jobs/{id}/change", role=Role.OPERATOR)
async def change(request: PageRequest) -> Response:
    """Change the queue or the priority."""
    job = await request.job()
    try:
        queue, priority = read_change(request)
    except (FormError, UsageError) as error:
        return request.back(f"/jobs/{job.id}", in_a_sentence(error), good=False)
    if queue:
        request.check(job.row.task, queue)
    same_queue, same_priority = queue == job.queue, priority == job.priority
    return await _done(
        request,
        job.change,
        lambda: f"The job is in queue {job.queue} with priority {job.priority}.",
        queue=None if same_queue and not same_priority else queue,
        priority=None if same_priority and not same_queue else priority,
    )


def read_change(request: PageRequest) -> tuple[str | None, int | None]:
    """Return the queue and the priority in the form; None for an empty field."""
    priority = read_whole(request.form, "priority", least=LOWEST_PRIORITY, most=HIGHEST_PRIORITY)
    if priority is not None:
        request.identity.check_priority(priority)
    return request.form.get("queue"), priority


@pages.post("/jobs/{id}/approve", role=Role.OPERATOR)
async def approve(request: PageRequest) -> Response:
    """Approve a job that waits for review."""
    job = await request.job()
    return await _done(
        request, job.approve, lambda: "Approved: the job is completed.", read_reason(request.form, "comment")
    )


@pages.post("/jobs/{id}/reject", role=Role.OPERATOR)
async def reject(request: PageRequest) -> Response:
    """Reject a job that waits for review."""
    job = await request.job()
    return await _done(
        request, job.reject, lambda: "Rejected: the job has failed.", read_reason(request.form, "comment")
    )


@pages.get("/jobs/{id}/delete", role=Role.ADMIN)
async def ask_delete(request: PageRequest) -> Response:
    """Ask for confirmation before a job is deleted."""
    refuse_to_look(request)
    job = await request.job_row()
    return request.render("job_delete.html", job=job, possible=job.state in ENDED and job.archived_at is None)


@pages.post("/jobs/{id}/delete", role=Role.ADMIN)
async def delete(request: PageRequest) -> Response:
    """Delete a job with its logs and executions."""
    job = await request.job()
    try:
        await request.act(job.delete)
    except JobError as error:
        return request.back(f"/jobs/{job.id}", _sentence(error.message), good=False)
    return request.back("/jobs", f"Job {job.id} of task {job.task} is deleted.")


@pages.post("/jobs/{id}/restore", role=Role.ADMIN)
async def restore(request: PageRequest) -> Response:
    """Put an archived job back into the live tables, and retry it if the form asks for that."""
    job = await request.job()
    retry = request.form.get("retry") == "1"
    done = await request.act(request.app.archive.restore, [job.id], retry=retry, tenant=job.tenant)
    if done.restored:
        words = "The job is restored and pending again." if done.retried else "The job is restored."
        return request.back(f"/jobs/{job.id}", words)
    if done.live:
        return request.back(f"/jobs/{job.id}", "The job is live already.", good=False)
    return request.back(f"/jobs/{job.id}", "Its archived document is damaged or missing.", good=False)


@pages.get("/jobs/{id}/erase", role=Role.ADMIN)
async def ask_erase(request: PageRequest) -> Response:
    """Ask for confirmation before a job is erased."""
    refuse_to_look(request)
    job = await request.job_row()
    possible = job.state in ENDED
    copies = ""
    if possible:
        found = await request.read(request.app.archive.erase, dry_run=True, ids=[job.id], tenant=job.tenant)
        copies = ", ".join(f"{count} in {tier}" for tier, count in found.tiers.items())
    return request.render("job_erase.html", job=job, possible=possible, copies=copies)


@pages.post("/jobs/{id}/erase", role=Role.ADMIN)
async def erase(request: PageRequest) -> Response:
    """Erase a job in every tier."""
    job = await request.job()
    try:
        await request.act(request.app.archive.erase, ids=[job.id], tenant=job.tenant)
    except JobError as error:
        return request.back(f"/jobs/{job.id}", _sentence(error.message), good=False)
    return request.back("/jobs", f"Job {job.id} of task {job.task} is erased.")


async def _done(
    request: PageRequest, act: Callable[..., Any], words: Callable[[], str], *args: Any, **how: Any
) -> Response:
    id = request.id()
    changes = request.operation.path.rpartition("/")[2]
    jobs_before = await request.read(request.inspection.live_jobs, [id], tenant=request.tenant)
    try:
        await request.act(act, *args, **how)
    # The job has changed state, or the input is invalid.
    except (JobError, UsageError) as error:
        return _back(request, id, _sentence(error.message), good=False)
    return _back(request, id, words(), undo=before(changes, jobs_before))


def _back(request: PageRequest, id: UUID, words: str, **how: Any) -> Response:
    """Return to the page with the form, which may be the list, or to the job."""
    if request.form.get("next"):
        return request.back_to(request.form.get("next"), words, otherwise=f"/jobs/{id}", **how)
    return request.back(f"/jobs/{id}", words, **how)


def in_a_sentence(error: Exception) -> str:
    """Return an error's message as a sentence."""
    return _sentence(str(error))


def _sentence(text: str) -> str:
    """Capitalise a message and add a full stop.

    >>> _sentence("cannot retry it")
    'Cannot retry it.'
    """
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
