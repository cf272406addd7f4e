"""Signals to jobs, and events."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.client.signals import Question
from tidemill.domain.access import Role
from tidemill.domain.signals import EmittedEvent, StoredSignal
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import BodyModel, Cursor, Document, Instant, Items, Limit, Name, QueryModel
from tidemill.rest.routes import Routes

routes = Routes("signals")


class SignalBody(BodyModel):
    """A signal to a job."""

    name: Name = Field(examples=["approved"])
    payload: Any = Field(None, description="Any JSON value; the job receives it.")
    key: str | None = Field(None, min_length=1, max_length=300, description="Accepted once per job.")


class SentDocument(Document):
    """Whether the signal is new: false for a key that the job has accepted before."""

    accepted: bool


class SignalQuery(QueryModel):
    """Page of unread signals."""

    limit: Limit = 100
    cursor: int = Field(0, ge=0, le=2**62, description="The `next` of the previous page.")


class SignalDocument(Document):
    """A signal that its job has not taken."""

    position: int
    name: str
    payload: Any
    key: str | None
    source: str | None = Field(examples=["key:ab12cd34 (deploy)"])
    created_at: Instant


class EventBody(BodyModel):
    """An event to jobs that wait for its name."""

    name: Name = Field(examples=["order.paid"])
    payload: Any = None
    match: str = Field(
        "", max_length=300, description="Jobs that wait for a match see only events with the same one."
    )
    id: str | None = Field(
        None, min_length=1, max_length=300, description="Accepted once per tenant and name."
    )


class EventDocument(Document):
    """An event of the last seven days."""

    id: str
    name: str
    match: str
    payload: Any
    source: str | None
    tenant: str
    created_at: Instant | None


class EventQuery(QueryModel):
    """Filter and page of events."""

    name: Name | None = None
    match: str | None = Field(None, max_length=300)
    limit: Limit = 100
    cursor: Cursor = None


class QuestionQuery(QueryModel):
    """Page of questions."""

    limit: Limit = 100
    cursor: UUID | None = Field(None, description="The `next` of the previous page.")


class QuestionDocument(Document):
    """A question of a job to people, which waits for an answer."""

    job: str
    name: str = Field(examples=["Decision"])
    schema_: dict[str, Any] = Field(alias="schema", description="The JSON schema of the answer.")
    to: str | None = Field(examples=["finance"])
    message: str | None
    problem: str | None = Field(description="Why the job refused the answer before.")
    until: Instant | None


class AnswerBody(BodyModel):
    """The answer to the question of a job."""

    answer: Any = Field(description="A JSON value that fits the schema of the question.")


_SENT_BEFORE = {200: "The key was accepted before."}


async def _send(request: ApiRequest) -> Response:
    job = await request.job_row()
    body: SignalBody = request.body
    send = request.app.signals.send
    accepted = await request.act(send, job.id, body.name, body.payload, key=body.key, tenant=job.tenant)
    return request.reply({"accepted": accepted}, 201 if accepted else 200)


@routes.post(
    "/api/jobs/{id}/signal",
    role=Role.OPERATOR,
    body=SignalBody,
    answer=SentDocument,
    status=201,
    also=_SENT_BEFORE,
)
async def signal_job(request: ApiRequest) -> Response:
    """Send a signal to a job, which keeps it until it takes it. 200 means that its key was accepted before."""
    return await _send(request)


@routes.post(
    "/api/jobs/{id}/signals",
    role=Role.OPERATOR,
    body=SignalBody,
    answer=SentDocument,
    status=201,
    also=_SENT_BEFORE,
)
async def add_signal(request: ApiRequest) -> Response:
    """Send a signal to a job; the same as `POST /api/jobs/{id}/signal`."""
    return await _send(request)


@routes.get("/api/jobs/{id}/signals", role=Role.VIEWER, query=SignalQuery, answer=Items[SignalDocument])
async def list_signals(request: ApiRequest) -> Response:
    """List the signals that a job has not taken yet, in order. Payloads need a role that may read secrets."""
    job = await request.job_row()
    query: SignalQuery = request.query
    signals = await request.read(
        request.app.signals.list, job.id, after=query.cursor, limit=query.limit, tenant=job.tenant
    )
    following = str(signals[-1].position) if len(signals) == query.limit else None
    return request.page([_signal(request, signal) for signal in signals], following)


@routes.post(
    "/api/events",
    role=Role.OPERATOR,
    body=EventBody,
    answer=EventDocument,
    status=201,
    also={204: "The id was accepted before."},
)
async def emit_event(request: ApiRequest) -> Response:
    """Emit an event to all jobs that wait for its name. 204 means that its id was accepted before."""
    body: EventBody = request.body
    emit = request.app.signals.emit
    event = await request.act(emit, body.name, body.payload, match=body.match, id=body.id)
    return request.empty() if event is None else request.reply(_event(request, event))


@routes.get("/api/events/emitted", role=Role.VIEWER, query=EventQuery, answer=Items[EventDocument])
async def list_events(request: ApiRequest) -> Response:
    """List the events of the last seven days, newest first; `GET /api/events` is the stream of changes."""
    query: EventQuery = request.query
    events, following = await request.read(
        request.app.signals.events,
        name=query.name,
        match=query.match,
        cursor=query.cursor,
        limit=query.limit,
        tenant=request.tenant,
    )
    return request.page([_event(request, event) for event in events], following)


@routes.get("/api/questions", role=Role.VIEWER, query=QuestionQuery, answer=Items[QuestionDocument])
async def list_questions(request: ApiRequest) -> Response:
    """List the questions of jobs that wait for an answer of a person, by job."""
    query: QuestionQuery = request.query
    questions = await request.read(
        request.app.signals.questions, after=query.cursor, limit=query.limit, tenant=request.tenant
    )
    following = str(questions[-1].job_id) if len(questions) == query.limit else None
    return request.page([_question(question) for question in questions], following)


@routes.post("/api/jobs/{id}/answer", role=Role.OPERATOR, body=AnswerBody, answer=QuestionDocument)
async def answer_question(request: ApiRequest) -> Response:
    """Answer the question that a job asks; the job resumes with the answer."""
    job = await request.job_row()
    answer = request.app.signals.answer
    question = await request.act(answer, job.id, request.body.answer, tenant=job.tenant)
    return request.reply(_question(question))


def _question(question: Question) -> dict[str, Any]:
    document = question._asdict()
    job, name = document.pop("job_id"), document.pop("title")
    return {**document, "job": str(job), "name": name}


def _signal(request: ApiRequest, signal: StoredSignal) -> dict[str, Any]:
    return {
        "position": signal.position,
        "name": signal.name,
        "payload": _payload(request, signal.payload),
        "key": signal.key,
        "source": signal.source,
        "created_at": signal.created_at,
    }


def _event(request: ApiRequest, event: EmittedEvent) -> dict[str, Any]:
    return {**event._asdict(), "id": str(event.id), "payload": _payload(request, event.payload)}


def _payload(request: ApiRequest, text: str | None) -> Any:
    """The payload; masked for roles that may not read secrets, because nothing says which parts are secret."""
    if text is None:
        return None
    return json.loads(text) if request.sees_secrets else "***"
