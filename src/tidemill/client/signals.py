"""``app.signals``: signals to jobs, and events."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from pydantic_core import PydanticSerializationError, to_json

from tidemill.client._base import async_twin
from tidemill.client.access import TenantApi, named, note, who
from tidemill.client.enqueue.options import id_of
from tidemill.client.own_connection import asignal_on, signal_on
from tidemill.domain.bounds import LONGEST_KEY, MOST_CHECKPOINT, check_size, check_text
from tidemill.domain.calls import call_for
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.json_schema import schema_problems
from tidemill.domain.signals import (
    ANSWER,
    ASKED,
    MOST_UNREAD,
    QUESTION,
    EmittedEvent,
    NewSignal,
    Posted,
    StoredSignal,
    StoredWait,
    check_message_name,
    check_signal_key,
    event_id,
)
from tidemill.domain.steps import PREFIX
from tidemill.errors import (
    BadArguments,
    BadFilter,
    BadSettings,
    IllegalTransition,
    JobNotFound,
    StoreBusy,
    StoreError,
    TooManySignals,
)
from tidemill.ids import new_id

if TYPE_CHECKING:
    from tidemill.stores.base import Store
    from tidemill.stores.signals import Receiver

RECEIVERS_AT_ONCE = 500
"""How many jobs one ``emit`` wakes itself; the leader wakes the others."""


class Question(NamedTuple):
    """A question of a job to people, which waits for an answer."""

    job_id: UUID
    name: str  #: of the signal that answers it
    title: str
    schema: Mapping[str, Any]
    to: str | None
    message: str | None
    problem: str | None  #: why the job refused the answer before
    until: datetime | None  #: when the job continues without an answer


class Signals(TenantApi):
    """Signals to jobs and events of a tenant."""

    def send(
        self,
        job: Any,
        name: str,
        payload: object = None,
        *,
        key: str | None = None,
        connection: object | None = None,
        tenant: str | None = None,
        store: str | None = None,
        by: str | None = None,
    ) -> bool:
        """Send a signal to a job; it is kept until the job takes it. Returns False for a key that was accepted before.

        ``job`` is a handle or an id. With ``connection``, the signal is part of the transaction that is open on it. ``by`` names
        another sender than the acting one.
        Raises ``JobNotFound``, ``IllegalTransition`` for an ended job, and ``TooManySignals``.
        """
        signal = self._signal(job, name, payload, key, tenant, by)
        if connection is not None:
            answer = signal_on(connection, self._client.store(store, signal.tenant), signal, now=self._pin)
            return self._judge(answer, signal)
        place = self._place(signal, store)
        target = self._client.store(place)
        woken: list[Receiver] = []
        try:
            accepted, woken = self._delivered(target, signal)
        except StoreBusy:
            # Another transaction holds the job. It will look for signals itself, so only the signal is stored.
            with target.transaction():
                accepted = self._posted(target, signal)
        if woken:
            target.notify(
                [call_for(1, signal.job_id.int), *(f"ready:{receiver.queue}" for receiver in woken)]
            )
        elif accepted:
            # A job that was suspended at the same time did not see the signal before its commit.
            self._wake(target, [signal.job_id])
        return accepted

    def _delivered(self, store: Store, signal: NewSignal) -> tuple[bool, list[Receiver]]:
        """Store a signal and wake its job. Returns whether the signal was accepted, and the woken jobs."""
        if named() is None:
            answer, woken = store.deliver_signal(signal, now=self._pin)
            return self._judge(answer, signal), woken
        with store.transaction():
            accepted = self._posted(store, signal)
            return accepted, store.wake_receivers([signal.job_id], now=self._pin) if accepted else []

    def _posted(self, store: Store, signal: NewSignal) -> bool:
        (answer,) = store.post_signals([signal], now=self._pin)
        accepted = self._judge(answer, signal)
        if accepted and named() is not None:
            self._audit(store, signal)
        return accepted

    async def asend(
        self,
        job: Any,
        name: str,
        payload: object = None,
        *,
        key: str | None = None,
        connection: object | None = None,
        tenant: str | None = None,
        store: str | None = None,
        by: str | None = None,
    ) -> bool:
        """Async version of ``send``."""
        if connection is None:
            sent: bool = await self._client.in_thread(
                lambda: self.send(job, name, payload, key=key, tenant=tenant, store=store, by=by)
            )
            return sent
        signal = self._signal(job, name, payload, key, tenant, by)
        answer = await asignal_on(connection, self._client.store(store, signal.tenant), signal, now=self._pin)
        return self._judge(answer, signal)

    def list(
        self,
        job: Any,
        *,
        after: int = 0,
        limit: int = 100,
        tenant: str | None = None,
        store: str | None = None,
    ) -> Sequence[StoredSignal]:
        """Return the signals that a job has not taken yet, in order, after a position."""
        row, place = self._client.find(_job_id(job), tenant=self._tenant(tenant), store=store)
        return self._client.store(place).signals(row.id, tenant=row.tenant, after=after, limit=limit)

    alist = async_twin(list)  # noqa: A003  (the method above)

    def emit(
        self,
        name: str,
        payload: object = None,
        *,
        match: object = "",
        id: str | UUID | None = None,
        tenant: str | None = None,
        store: str | None = None,
        by: str | None = None,
    ) -> EmittedEvent | None:
        """Emit an event: jobs that wait for its name, or for its name and ``match``, resume.

        ``id`` makes it idempotent: an event with an id that the tenant has used for this name is not stored, and the answer
        is None. ``by`` names another sender than the acting one. Events are kept for seven days.
        """
        owner = self._tenant(tenant)
        if owner == ALL_TENANTS:
            raise BadSettings("an event belongs to one tenant; give its name")
        check_message_name("event", name)
        text = "" if match is None else str(match)
        check_text("match", text, LONGEST_KEY)
        check_text("id", None if id is None else str(id), LONGEST_KEY)
        event = EmittedEvent(
            new_id() if id is None else event_id(owner, name, str(id)),
            owner,
            name,
            text,
            _encoded("the payload", payload),
            by or who(),
        )
        target = self._client.store(self._client.place_of(owner) if store is None else store)
        leaving = None if store is not None else self._client.placement.leaving_shard(owner)
        if leaving is not None:
            # A job that waits for the event may still be in the shard that its tenant leaves.
            old = self._client.store(leaving)
            if not old.emit([event], now=self._pin):
                return None
            self._wake(old, event_id=event.id)
        with target.transaction():
            fresh = target.emit([event], now=self._pin)
            if fresh and named() is not None:
                after = {"id": str(event.id), "match": text} if text else {"id": str(event.id)}
                self._note_in(target, "event.emitted", f"event:{name}", owner, after)
        if not fresh:
            return None
        self._wake(target, event_id=event.id)
        return event

    aemit = async_twin(emit)

    def events(
        self,
        *,
        name: str | None = None,
        match: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
        tenant: str | None = None,
        store: str | None = None,
    ) -> tuple[Sequence[EmittedEvent], str | None]:
        """Return one page of events, the newest first, and the cursor of the next page (None: there is none)."""
        before = None if cursor is None else _read_cursor(cursor)
        page = self._client.store(store).events(
            tenant=self._tenant(tenant), name=name, match=match, before=before, newest=True, limit=limit
        )
        return page, _cursor(page[-1]) if len(page) == limit else None

    aevents = async_twin(events)

    # Questions to people -------------------------------------------------------------------------------------------------

    def questions(
        self,
        *,
        job: Any = None,
        after: UUID | None = None,
        limit: int = 100,
        tenant: str | None = None,
        store: str | None = None,
    ) -> Sequence[Question]:
        """Return the questions (``ctx.ask``) that wait for an answer, by job; only those of one job if it is given."""
        owner = self._tenant(tenant)
        place = store
        if job is not None:
            row, place = self._client.find(_job_id(job), tenant=owner, store=store)
            waits = self._client.store(place).waits([row.id], tenant=owner)
        else:
            waits = self._client.store(place).questions(tenant=owner, after=after, limit=limit)
        target = self._client.store(place)
        asked = [wait for wait in waits if not wait.event and wait.name.startswith(QUESTION)]
        records = {id: target.checkpoints(id, tenant=owner) for id in {wait.job_id for wait in asked}}
        found = [read_question(wait, records[wait.job_id]) for wait in asked]
        return [question for question in found if question is not None]

    aquestions = async_twin(questions)

    def answer(
        self, job: Any, answer: object, *, tenant: str | None = None, store: str | None = None
    ) -> Question:
        """Answer the question that a job asks, and return that question. The job resumes with the answer.

        Raises ``BadArguments`` for an answer that does not fit, and ``IllegalTransition`` if the job asks nothing.
        """
        id = _job_id(job)
        row, place = self._client.find(id, tenant=self._tenant(tenant), store=store)
        questions = self.questions(job=id, tenant=row.tenant, store=place)
        if not questions:
            raise IllegalTransition(f"job {id} asks nothing; it is {row.state}", id=id, status=row.state)
        question = questions[0]
        text = _encoded("the answer", answer)
        value = None if text is None else json.loads(text)
        if problems := schema_problems(question.schema, value):
            raise BadArguments(
                f"the answer to {question.title} does not fit: {'; '.join(problems[:10])}", problems=problems
            )
        signal = NewSignal(id, row.tenant, question.name, text, f"{ANSWER}{question.name}", who())
        target = self._client.store(place)
        with target.transaction():
            (posted,) = target.post_signals([signal], now=self._pin)
            if not self._judge(posted, signal):
                raise IllegalTransition(
                    f"the question {question.title} of job {id} was answered before", id=id
                )
            after = {"question": question.title, "to": question.to}
            self._note_in(target, "job.answered", f"job:{id}", row.tenant, after)
        self._wake(target, [id])
        return question

    aanswer = async_twin(answer)

    # -------------------------------------------------------------------------------------------------------------------

    def _signal(
        self, job: Any, name: str, payload: object, key: str | None, tenant: str | None, by: str | None
    ) -> NewSignal:
        check_message_name("signal", name)
        check_text("key", key, LONGEST_KEY)
        check_signal_key(key)
        text = _encoded("the payload", payload)
        return NewSignal(_job_id(job), self._tenant(tenant), name, text, key, by or who())

    def _place(self, signal: NewSignal, store: str | None) -> str | None:
        """The store of the job. An app with one store needs no search."""
        if store is not None or self._client.placement.is_single:
            return store
        return self._client.find(signal.job_id, tenant=signal.tenant, store=None)[1]

    def _judge(self, answer: Posted, signal: NewSignal) -> bool:
        id = signal.job_id
        match answer:
            case Posted.ACCEPTED:
                return True
            case Posted.REPEATED:
                return False
            case Posted.FULL:
                raise TooManySignals(
                    f"job {id} has {MOST_UNREAD:,} signals that it has not taken; send this one again later",
                    id=id,
                )
            case Posted.ENDED:
                raise IllegalTransition(f"job {id} has ended, so it takes no more signals", id=id)
            case _:
                raise JobNotFound(f"there is no live job {id}", id=id)

    def _audit(self, store: Store, signal: NewSignal) -> None:
        after: dict[str, object] = {"name": signal.name}
        if signal.key is not None:
            after["key"] = signal.key
        self._note_in(store, "job.signalled", f"job:{signal.job_id}", signal.tenant, after)

    def _note_in(
        self, store: Store, action: str, subject: str, tenant: str, after: Mapping[str, object]
    ) -> None:
        note(store, action, subject, tenant, after=after, now=self._pin)

    def _wake(self, store: Store, ids: Sequence[UUID] | None = None, event_id: UUID | None = None) -> None:
        # The message is stored. If this fails, the leader wakes the receivers within seconds.
        with contextlib.suppress(StoreError):
            woken = store.wake_receivers(ids, event_id=event_id, limit=RECEIVERS_AT_ONCE, now=self._pin)
            topics = {f"ready:{receiver.queue}" for receiver in woken}
            if woken:
                topics.add(call_for(len(woken), woken[0].id.int))
            if len(woken) >= RECEIVERS_AT_ONCE:
                topics.add("signals")
            if topics:
                store.notify(sorted(topics))


def read_question(wait: StoredWait, checkpoints: Mapping[str, str]) -> Question | None:
    """The question that a suspended job asks, from its records; None if there is none of that name."""
    text = checkpoints.get(f"{PREFIX}{ASKED}{wait.name}")
    if text is None:
        return None
    note = json.loads(text)
    until = note.get("until")
    return Question(
        wait.job_id,
        wait.name,
        note["name"],
        note["schema"],
        note.get("to"),
        note.get("message"),
        note.get("problem"),
        None if until is None else datetime.fromisoformat(until),
    )


def _job_id(job: Any) -> UUID:
    id = id_of(job)
    if id is None:
        raise JobNotFound("None is not a job's id")
    return id


def _encoded(what: str, payload: object) -> str | None:
    if payload is None:
        return None
    try:
        text = to_json(payload).decode()
    except (PydanticSerializationError, UnicodeError, ValueError) as error:
        raise BadArguments(f"{what} cannot be written as JSON: {error}") from None
    check_size(what, text, MOST_CHECKPOINT)
    return text


def _cursor(event: EmittedEvent) -> str:
    assert event.created_at is not None
    return f"{event.created_at.isoformat()}_{event.id.hex}"


def _read_cursor(text: str) -> tuple[datetime, UUID]:
    at, _, id = text.rpartition("_")
    try:
        return datetime.fromisoformat(at), UUID(id)
    except ValueError:
        raise BadFilter(
            f"cursor {text!r} cannot be read; give the one of the page before", field="cursor"
        ) from None
