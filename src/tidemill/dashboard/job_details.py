"""Values of one job that the job page and the side panel show."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tidemill.client.documents import plain
from tidemill.dashboard import snippets
from tidemill.dashboard.page_request import PageRequest
from tidemill.domain import tracebacks
from tidemill.domain.decide import Action, expected
from tidemill.domain.estimate import eta_of, fraction_done
from tidemill.domain.failures import failure_of
from tidemill.domain.job import CHANGEABLE, JobRow
from tidemill.domain.large_values import read_reference, size_words
from tidemill.domain.masks import masked_unique_key
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.domain.stats import FAILURES
from tidemill.domain.trace_context import trace_id


def shown(request: PageRequest, row: JobRow) -> dict[str, Any]:
    """Return the template values from the job itself, with secrets masked for this user."""
    row = request.cleared(row)
    now, progress = request.now(), row.progress
    args = request.masked(plain(row.args))
    options = _options(request, row)
    named = args if isinstance(args, dict) else {}
    address = f"{request.http.url.scheme}://{request.http.url.netloc}{request.where('/api/jobs')}"
    error = row.error
    trace = error.traceback if error is not None else None
    return {
        "job": row,
        "args": args,
        "result": request.masked(plain(row.result)),
        "large_args": read_reference(row.args),
        "large_result": read_reference(row.result),
        "sees_secrets": request.sees_secrets,
        "size_words": size_words,
        "limits": request.masked_names(list(row.limits)),
        "unique_key": row.unique_key if request.sees_secrets else masked_unique_key(row.unique_key),
        "metadata": request.masked(dict(row.details.metadata)),
        "trace_id": trace_id(row.details.headers),
        "took": took(row, now),
        "progress": progress,
        "fraction": fraction_done(row) if progress is not None and progress.fraction is not None else None,
        "eta": eta_of(row, now),
        "trace": tracebacks.parts(trace) if trace else [],
        "place": tracebacks.users_place(trace) if trace else None,
        "can": possible(row),
        "error_group": None if request.hides_arguments else _group(row),
        "as_python": snippets.as_python(row.task, named, options),
        "as_curl": snippets.as_curl(address, row.task, named, options),
    }


def _group(row: JobRow) -> str | None:
    """Return the group of errors that a failed job is in. A rejected review is in none."""
    if row.state not in FAILURES or (row.error is None and row.state is JobState.FAILED):
        return None
    return failure_of(row.task, row.state, row.error, row.reason).fingerprint


def possible(row: JobRow) -> frozenset[str]:
    """Return the actions that this job's state allows; none for an archived job."""
    if row.archived_at is not None:
        return frozenset()
    actions = {
        name
        for name, action in (
            ("retry", Action.RETRY),
            ("run_now", Action.RUN_NOW),
            ("reschedule", Action.RESCHEDULE),
            ("rerun", Action.RERUN),
            ("approve", Action.APPROVE),
            ("reject", Action.REJECT),
        )
        if row.state in expected(action)
    }
    if row.state in expected(Action.CANCEL) | HELD:
        actions.add("cancel")
    if row.state in CHANGEABLE:
        actions.add("change")
    if row.state in ENDED:
        actions.add("delete")
    return frozenset(actions)


def _options(request: PageRequest, row: JobRow) -> dict[str, Any]:
    """Return the options, besides the arguments, that enqueue the same job again."""
    registry = request.app.registry
    usual = registry.get(row.task).options if row.task in registry else None
    options: dict[str, Any] = {}
    if usual is None or usual.queue != row.queue:
        options["queue"] = row.queue
    if row.priority != (0 if usual is None else usual.priority):
        options["priority"] = row.priority
    if row.details.tags:
        options["tags"] = list(row.details.tags)
    return options


def took(job: JobRow, now: datetime) -> timedelta | None:
    """Return how long the last execution took, or has taken so far."""
    if job.started_at is None or (job.finished_at is None and job.state is not JobState.RUNNING):
        return None
    return max((job.finished_at or now) - job.started_at, timedelta(0))
