"""``POST /api/jobs``: creation of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response

from tidemill.client.access import acting
from tidemill.client.core import client_of
from tidemill.client.enqueue.options import NO_OPTIONS, CallOptions
from tidemill.client.enqueue.routes import snapshot
from tidemill.domain.access import Role
from tidemill.domain.job import JobRow, NewJob
from tidemill.domain.trace_context import TRACEPARENT, TRACESTATE, trace_headers, trace_id
from tidemill.domain.unique import Unique
from tidemill.errors import TaskNotFound
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.idempotency import Idempotent, check_same, read_key
from tidemill.rest.job_documents import RECEIPT, shown
from tidemill.rest.job_models import JobBody, JobDocument, UniqueBody, read_policy, span
from tidemill.rest.problems import Problem
from tidemill.rest.routes import Routes
from tidemill.tasks.task import Declared

routes = Routes("jobs")

LARGE = 32 * 1024
"""Arguments of more bytes are parsed on a thread, to keep the event loop free."""

_OPEN = frozenset({"task", "args", "correlation_id", "tags", "metadata", "reference"})
"""Fields that callers without a key may set."""

_PLAIN = (
    "queue", "priority", "correlation_id", "audit", "reference", "parent_id", "tags", "metadata",
)  # fmt: skip
"""Options that are passed through unchanged."""


@routes.post("/api/jobs", role=Role.OPERATOR, body=JobBody, answer=JobDocument, status=201, creates=True)
async def create_job(call: ApiRequest) -> Response:
    """Create a job.

    The arguments are checked first. `Idempotency-Key` makes a repeated request harmless; `Prefer: respond-async` answers 202.
    """
    return await _create(call)


@routes.post(
    "/api/jobs/create", role=Role.OPERATOR, body=JobBody, answer=JobDocument, status=201, creates=True
)
async def create_job_by_webhook(call: ApiRequest) -> Response:
    """The same as `POST /api/jobs`, for webhooks."""
    return await _create(call)


async def _create(call: ApiRequest) -> Response:
    body: JobBody = call.body
    anonymous = call.identity is call.service.guard.nobody
    if anonymous and (more := sorted(body.model_fields_set - _OPEN)):
        raise Problem(403, None, f"setting {more[0]} requires an API key")
    try:
        declared = call.app.registry.get(body.task)
    # The address exists; the body is wrong. So this is not a 404.
    except TaskNotFound as error:
        raise Problem(422, error.code, f"task: {error.message}", field="task") from None
    options = _options(call, body, declared)
    call.identity.check_priority(options.given("priority", declared.options.priority))
    text = to_json(body.args).decode() if body.args else "{}"
    if len(text) > LARGE:
        args = await call.read(declared.arguments.load, text)
    else:
        args = declared.arguments.load(text)
    with acting(call.identity.who):
        (made,) = await client_of(call.app).enqueuer.aenqueue(declared, options, [((), args)])
    if isinstance(made, NewJob):
        job, created = snapshot(made, call.now()), True
    else:
        job, created = made, False
        if isinstance(options.unique, Idempotent):
            check_same(job, _asked(call, declared, options, args))
    document = shown(call, job)
    if anonymous:
        document = {name: document[name] for name in RECEIPT}
    headers = {"location": call.where(f"/api/jobs/{job.id}")}
    if not created:
        headers["idempotent-replayed"] = "true"
    status = 201 if created else 200
    if "respond-async" in call.request.headers.get("prefer", "").lower():
        headers["preference-applied"] = "respond-async"
        status = 202
    return call.reply(document, status, headers)


def _asked(call: ApiRequest, declared: Declared, options: CallOptions, args: dict[str, Any]) -> JobRow:
    """Return the job that this request would create without an existing one."""
    (asked,) = client_of(call.app).enqueuer.build(declared, options, [((), args)])
    return snapshot(asked, call.now())


def _options(call: ApiRequest, body: JobBody, declared: Declared) -> CallOptions:
    """Return the options for ``using``. Omitted fields keep the task's own values."""
    said: dict[str, Any] = {"tenant": call.chosen(body.tenant) or call.home}
    said |= {name: value for name in _PLAIN if (value := getattr(body, name)) not in (None, [], {})}
    if "parent_id" in said:
        said["parent"] = said.pop("parent_id")
    for name in ("run_after", "expires"):
        if (value := getattr(body, name)) is not None:
            said[name] = span(value) if isinstance(value, int | float) else value
    if body.delay is not None:
        said["delay"] = span(body.delay)
    if "timeout" in body.model_fields_set:
        said["timeout"] = span(body.timeout)
    if "retry" in body.model_fields_set:
        said["retry"] = None if body.retry is None else read_policy(body.retry)
    said["headers"] = trace_headers(
        call.request.headers.get(TRACEPARENT), ",".join(call.request.headers.getlist(TRACESTATE))
    )
    if "correlation_id" not in said and (correlation := _correlation(call, said["headers"])):
        said["correlation_id"] = correlation
    rule = _rule(call, body.unique, declared)
    if rule is not None:
        said["unique"] = rule
    return NO_OPTIONS.merged(said)


def _correlation(call: ApiRequest, headers: Mapping[str, str]) -> str | None:
    """Return the request's correlation id, else its trace id."""
    if call.request.scope["tidemill.bad_correlation"]:
        raise Problem(
            422,
            "bad_correlation_id",
            "x-correlation-id: use 1 to 64 letters, digits and ._:/+=@- or omit the header",
        )
    return call.correlation if call.request.scope["tidemill.correlated"] else trace_id(headers)


def _rule(call: ApiRequest, said: UniqueBody | None, declared: Declared) -> Unique | None:
    key = call.request.headers.get("idempotency-key")
    if key is not None:
        if said is not None or declared.options.unique is not None:
            whose = "the request" if said is not None else f"task {declared.name}"
            raise Problem(
                422,
                "idempotency_not_possible",
                f"{whose} has its own uniqueness rule, and a job has only one key; omit Idempotency-Key",
            )
        return Idempotent(key=read_key(key), within=call.service.settings.idempotency_window)
    if said is None:
        return None
    return Unique(
        by=tuple(said.by), within=span(said.within), states=said.states, on_conflict=said.on_conflict
    )
