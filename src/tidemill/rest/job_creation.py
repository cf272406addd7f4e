"""``POST /api/jobs``: creation of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response

from tidemill.client.access import acting
from tidemill.client.enqueue.options import NO_OPTIONS, CallOptions
from tidemill.client.enqueue.writes import snapshot
from tidemill.domain.access import Role
from tidemill.domain.job import JobRow, NewJob
from tidemill.domain.trace_context import TRACEPARENT, TRACESTATE, trace_headers, trace_id
from tidemill.domain.unique import Unique
from tidemill.errors import TaskNotFound
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.idempotency import Idempotent, check_same, read_key
from tidemill.rest.job_documents import RECEIPT, shown
from tidemill.rest.job_models import JobBody, JobDocument, UniqueBody, read_policy, span
from tidemill.rest.routes import Routes
from tidemill.tasks.ambient import tenant_scope
from tidemill.tasks.task import Declared
from tidemill.web.problems import Problem

routes = Routes("jobs")

LARGE = 32 * 1024
"""Arguments of more bytes are parsed on a thread, to keep the event loop free."""

_OPEN = frozenset({"task", "args", "correlation_id", "tags", "metadata", "reference"})
"""Fields that callers without a key may set."""

_PLAIN = frozenset(
    {"queue", "priority", "correlation_id", "audit", "reference", "parent_id", "tags", "metadata", "record"}
)
"""Options that are passed through unchanged."""

_TIMES = frozenset({"run_after", "delay", "expires", "timeout"})


@routes.post("/api/jobs", role=Role.OPERATOR, body=JobBody, answer=JobDocument, status=201, creates=True)
async def create_job(request: ApiRequest) -> Response:
    """Create a job.

    The arguments are checked first. `Idempotency-Key` makes a repeated request harmless; `Prefer: respond-async` answers 202.
    """
    body: JobBody = request.body
    anonymous = request.identity is request.service.guard.anonymous
    if anonymous and (more := sorted(body.model_fields_set - _OPEN)):
        raise Problem(403, None, f"setting {more[0]} requires an API key")
    declared = _declared(request, body.task)
    options = _options(request, body, declared)
    request.check(declared.name, options.given("queue", declared.options.queue))
    if request.identity.max_priority is not None:
        request.identity.check_priority(options.given("priority", declared.options.priority))
    text = to_json(body.args).decode() if body.args else "{}"
    if len(text) > LARGE:
        args = await request.read(declared.arguments.load, text)
    else:
        args = declared.arguments.load(text)
    with acting(request.identity.who), tenant_scope(request.home):
        place, (enqueued,) = await request.service.client.enqueuer.aenqueue(declared, options, [((), args)])
        if request.service.has_several_stores and place != request.service.store_name:
            request.move_to(place)
        if isinstance(enqueued, JobRow) and isinstance(options.unique, Idempotent):
            check_same(enqueued, request.inspection.planned(declared, options, args))
    now = request.now()
    created = isinstance(enqueued, NewJob)
    document = shown(request, snapshot(enqueued, now) if isinstance(enqueued, NewJob) else enqueued, now)
    if anonymous:
        document = {name: document[name] for name in RECEIPT}
    return _receipt(request, document, created=created)


@routes.post(
    "/api/jobs/create", role=Role.OPERATOR, body=JobBody, answer=JobDocument, status=201, creates=True
)
async def create_job_by_webhook(request: ApiRequest) -> Response:
    """The same as `POST /api/jobs`, for webhooks."""
    return await create_job(request)


def _declared(request: ApiRequest, task: str) -> Declared:
    try:
        return request.service.client.registry.get(task)
    # The address exists; the body is wrong. So this is not a 404.
    except TaskNotFound as error:
        raise Problem(422, error.code, f"task: {error.message}", field="task") from None


def _receipt(request: ApiRequest, document: dict[str, Any], *, created: bool) -> Response:
    headers = {"location": request.where(f"/api/jobs/{document['id']}")}
    if not created:
        headers["idempotent-replayed"] = "true"
    status = 201 if created else 200
    if "respond-async" in request.headers.get("prefer", "").lower():
        headers["preference-applied"] = "respond-async"
        status = 202
    return request.reply(document, status, headers)


def _options(request: ApiRequest, body: JobBody, declared: Declared) -> CallOptions:
    """Return the options for ``using``. Omitted fields keep the task's own values."""
    given = body.model_fields_set
    options: dict[str, Any] = {}
    # A tenant that the request names is an option. That of the key is the scope of the call instead, because the client
    # reuses its template for calls without options.
    if body.tenant is not None or request.tenant != request.identity.tenant:
        options["tenant"] = request.chosen(body.tenant) or request.tenant
    for name in given & _PLAIN:
        value = getattr(body, name)
        if value not in (None, [], {}):
            options["parent" if name == "parent_id" else name] = value
    if not given.isdisjoint(_TIMES):
        options |= _times(body)
    if "retry" in given:
        options["retry"] = None if body.retry is None else read_policy(body.retry)
    if TRACEPARENT in request.headers:
        options["headers"] = trace_headers(
            request.headers[TRACEPARENT], ",".join(request.http.headers.getlist(TRACESTATE))
        )
    if "correlation_id" not in options and (correlation := _correlation(request, options.get("headers", {}))):
        options["correlation_id"] = correlation
    rule = _rule(request, body.unique, declared)
    if rule is not None:
        options["unique"] = rule
    return NO_OPTIONS.merged(options) if options else NO_OPTIONS


def _times(body: JobBody) -> dict[str, Any]:
    """Return when the job runs and expires, and its time limit; a number counts seconds."""
    times: dict[str, Any] = {}
    for name in ("run_after", "delay", "expires"):
        value = getattr(body, name)
        if value is not None:
            times[name] = span(value) if isinstance(value, int | float) else value
    # Null is a value of its own: no limit.
    if "timeout" in body.model_fields_set:
        times["timeout"] = span(body.timeout)
    return times


def _correlation(request: ApiRequest, headers: Mapping[str, str]) -> str | None:
    """Return the request's correlation id, else its trace id."""
    scope = request.http.scope
    if scope["tidemill.bad_correlation"]:
        raise Problem(
            422,
            "bad_correlation_id",
            "x-correlation-id: use 1 to 64 letters, digits and ._:/+=@- or omit the header",
        )
    if scope["tidemill.correlated"]:
        return request.correlation
    return trace_id(headers) if headers else None


def _rule(request: ApiRequest, unique: UniqueBody | None, declared: Declared) -> Unique | None:
    key = request.headers.get("idempotency-key")
    if key is not None:
        if unique is not None or declared.options.unique is not None:
            whose = "the request" if unique is not None else f"task {declared.name}"
            raise Problem(
                422,
                "idempotency_not_possible",
                f"{whose} has its own uniqueness rule, and a job has only one key; omit Idempotency-Key",
            )
        return Idempotent(key=read_key(key), within=request.service.settings.idempotency_window)
    if unique is None:
        return None
    return Unique(
        by=tuple(unique.by),
        within=span(unique.within),
        states=unique.states,
        on_conflict=unique.on_conflict,
        failed=unique.failed,
    )
