"""Waits of durable functions for signals, events and answers of people.

A wait looks first, then suspends the job. A resumed job looks again, so an early wake-up does no harm. The deadline of a wait is
recorded when the job is suspended for the first time, and a time-out is a record like any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tidemill.domain.graph import Wait
from tidemill.domain.job import Claim
from tidemill.domain.signals import ASKED, QUESTION
from tidemill.domain.steps import PREFIX, note_record, read_instant, read_note
from tidemill.engine.step_operations import FindEvent, StoreTime, TakeSignal
from tidemill.engine.steps import StepLog, Talk
from tidemill.engine.suspension import Suspension
from tidemill.errors import BadArguments, UsageError
from tidemill.stores.base import Store
from tidemill.tasks.codec import ResultCodec
from tidemill.tasks.steps import Step

DEADLINE = "@wait/"
"""The prefix of the record with the deadline of a wait."""
_TICK = timedelta(microseconds=1)


def wait_for(log: StepLog, name: str, timeout: timedelta | None, type: Any) -> Talk[Any]:
    """``ctx.wait_for``: the payload of the next signal of a name; None at the time-out."""
    full, record = yield from _begin(log, name)
    if record is None:
        wait = Wait(name)
        record = yield from _receive(log, full, wait, timeout, f"waits for the signal {name!r}", {})
    return _value(full, record, type)


def wait_for_event(
    log: StepLog, name: str, match: str, since: datetime | None, timeout: timedelta | None, type: Any
) -> Talk[Any]:
    """``ctx.wait_for_event``: the payload of the next event of a name; None at the time-out.

    A second wait for the same name and match sees only events after the first one's.
    """
    base = f"event/{name}" if not match else f"event/{name}[{match}]"
    full, record = yield from _begin(log, base)
    if record is None:
        records = yield from log.records()
        seen = [read_note(text) for key, text in records.items() if key.partition("#")[0] == base]
        after = [read_instant(note) + _TICK for note in seen if note["is"] == "event"]
        start = max([*after, *([] if since is None else [since])], default=None)
        wait = Wait(name, match, event=True, since=start)
        about = f"waits for the event {name!r}" + (f" that matches {match!r}" if match else "")
        record = yield from _receive(log, full, wait, timeout, about, {})
    return _value(full, record, type)


def ask(
    log: StepLog, model: Any, name: str, to: str | None, message: str | None, timeout: timedelta | None
) -> Talk[Any]:
    """``ctx.ask``: the answer of a person, which fits the model; None at the time-out.

    The process that takes an answer checks it by the schema. An answer that the model itself refuses, by a validator of its own, is
    asked for again with the reason.
    """
    codec = ResultCodec(f"the answer to {name}", model)
    problem: str | None = None
    while True:
        full, record = yield from _begin(log, f"{QUESTION}{name}")
        if record is None:
            question = {
                "name": name,
                "schema": model.model_json_schema(),
                "to": to,
                "message": message,
                "problem": problem,
            }
            about = f"waits for an answer to {name!r}" + (f" of {to}" if to else "")
            record = yield from _receive(log, full, Wait(full), timeout, about, question)
        note = read_note(record)
        if note["is"] == "timeout":
            return None
        try:
            return codec.load(json.dumps(note["v"]))
        except BadArguments as error:
            problem = error.message
            log._say(f"the answer to {name} was refused, and is asked for again: {problem}", "warning")


def _begin(log: StepLog, name: str) -> Talk[tuple[str, str | None]]:
    records = yield from log.records()
    full = log.enter(Step(name).full_name)
    return full, records.get(full)


def _receive(
    log: StepLog, full: str, wait: Wait, timeout: timedelta | None, about: str, question: Mapping[str, Any]
) -> Talk[str]:
    """The record of a wait: that of a signal or event that is there, that of its time-out, or none: then the job is suspended."""
    records = yield from log.records()
    known = records.get(DEADLINE + full)
    until = None if known is None else read_note(known)["until"]
    now: datetime | None = None
    if until is not None or (known is None and timeout is not None):
        # The time is read before the look: after the deadline, a look finds everything that was accepted before it.
        now = yield StoreTime()
    deadline: datetime | None = None
    if known is not None:
        deadline = None if until is None else datetime.fromisoformat(until)
    elif timeout is not None:
        assert now is not None
        deadline = now + timeout
    record: str | None
    if wait.event:
        record = yield FindEvent(wait.name, wait.match, wait.since)
        if record is not None and deadline is not None and read_instant(read_note(record)) > deadline:
            record = None
        if record is not None:
            yield from log.write(full, record)
    else:
        record = yield TakeSignal((wait.name,), PREFIX + full, deadline)
        if record is not None:
            log.keep(full, record)
    if record is not None:
        return record
    if deadline is not None and now is not None and deadline <= now:
        record = note_record("timeout", at=deadline.isoformat(), name=wait.name)
        yield from log.write(full, record)
        return record
    new = {}
    if known is None:
        new[DEADLINE + full] = note_record("wait", until=None if deadline is None else deadline.isoformat())
        if question:
            new[ASKED + full] = note_record(
                "ask", **question, until=None if deadline is None else deadline.isoformat()
            )
    return (yield from log.suspend(full, Suspension(about, deadline, waits=(wait,), records=new)))


def _value(full: str, record: str, type: Any) -> Any:
    note = read_note(record)
    match note["is"]:
        case "timeout":
            return None
        case "signal" | "event":
            if type is None:
                return note["v"]
            try:
                return ResultCodec(f"the payload of {full}", type).load(json.dumps(note["v"]))
            except BadArguments as error:
                raise UsageError(f"{full} brought a payload that does not fit: {error.message}") from None
        case kind:
            raise UsageError(f"step {full} was recorded as a {kind}; give the new wait another name")


def found_event(store: Store, claim: Claim, name: str, match: str, since: datetime | None) -> str | None:
    """The record of the first event of a name (and match) since an instant, or since the job was created."""
    events = store.events(
        tenant=claim.tenant, name=name, match=match or None, since=since or claim.created_at, limit=1
    )
    if not events:
        return None
    (event,) = events
    id: UUID = event.id
    payload = None if event.payload is None else json.loads(event.payload)
    at = None if event.created_at is None else event.created_at.isoformat()
    return note_record(
        "event", name=name, id=str(id), match=event.match, source=event.source, at=at, v=payload
    )
