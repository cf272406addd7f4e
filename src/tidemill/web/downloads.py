"""Arguments and results of jobs as files to download."""

from __future__ import annotations

from starlette.responses import Response, StreamingResponse

from tidemill.domain.job import JobRow
from tidemill.domain.states import JobState
from tidemill.web.problems import Problem
from tidemill.web.request import WebRequest

KEPT = frozenset({JobState.COMPLETED, JobState.REVIEW_NEEDED})


def arguments_of(request: WebRequest, job: JobRow) -> Response:
    """Return the arguments of a job."""
    return _download(request, job.args, f"{job.id}-args.json")


def result_of(request: WebRequest, job: JobRow) -> Response:
    """Return the result of a job, or its output for a reviewer."""
    if job.state not in KEPT or job.result is None:
        raise Problem(404, "no_value", f"job {job.id} is {job.state} and has no result")
    return _download(request, job.result, f"{job.id}-value.json")


def _download(request: WebRequest, text: str, name: str) -> Response:
    size, parts = request.inspection.payload(text)
    headers = {"content-length": str(size), "content-disposition": f'attachment; filename="{name}"'}
    if request.http.method == "HEAD":
        return Response(headers=headers, media_type="application/json")
    return StreamingResponse(parts, headers=headers, media_type="application/json")
