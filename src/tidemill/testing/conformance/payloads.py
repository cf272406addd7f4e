"""Laws of fidelity: stored values come back unchanged, however large or odd."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Details, ErrorInfo, Progress, ProgressReport, Transition
from tidemill.domain.states import ExecutionState, JobState
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    REVIEW,
    T0,
    TICK,
    WORKER,
    S,
    a_job,
    claim_one,
    executions_of,
    finish_all,
    get_one,
    put,
    put_one,
    retry,
)

ODD = [
    "plain",
    "Ünïcödé – “quoted” — ﷽",
    "'single' \"double\" `back`",
    "%s %d %(name)s %%",
    ":now :id ::text $1 ?1 ?",
    "back\\slash \\n \\' \\\\",
    "🦊👩‍👩‍👧‍👦 e\u0301 \u202eright to left",
    "\\u0000",
    "line\nbreak\r\n\ttab",
    "'; drop table tidemill.ready; --",
    "{a,b} [1] {} null NULL",
    "  spaces at both ends  ",
    "\ud7ff\ue000\U0010ffff",
]
"""Texts that have broken other stores."""

every_odd_text = pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))

ARGS = [
    "{}",
    "",
    "null",
    '{"a":  1, "a": 2}',
    '{"b":1,"a":2}',
    '{"zero":"\\u0000"}',
    '{"n":1e400,"m":0.1000,"big":123456789012345678901234567890}',
    '{"text":"🦊 \\ud83e\\udd8a"}',
    "this is no JSON at all %s :now '",
    '"' + "x" * (1024 * 1024 - 2) + '"',
    '"' + "é🦊" * 150_000 + '"',
]
"""Payload texts that no store may interpret."""

every_payload = pytest.mark.parametrize("text", ARGS, ids=range(len(ARGS)))

INSTANTS = [
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2026, 3, 29, 0, 59, 59, 999999, tzinfo=UTC),
    datetime(2038, 1, 19, 3, 14, 8, 1, tzinfo=UTC),
    datetime(2100, 2, 28, 12, 0, 0, 333333, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]


class PayloadLaws:
    """Texts, details and instants come back as they were given."""

    @every_payload
    def test_arguments_and_result_are_stored_verbatim(self, store: Store, text: str) -> None:
        id = put_one(store, args=text)
        assert get_one(store, id).args == text
        claim = claim_one(store, id)
        assert claim.args == text
        finish_all(store, [claim], REVIEW, result=text)
        assert get_one(store, id).result == text
        assert (get_one(store, id).args, executions_of(store, id)[0].number) == (text, 1)

    @every_payload
    def test_the_result_of_an_ended_job_is_stored_verbatim(self, store: Store, text: str) -> None:
        claim = claim_one(store, put_one(store, args=text))
        finish_all(store, [claim], COMPLETED, result=text)
        job = get_one(store, claim.id)
        assert (job.args, job.result) == (text, text)

    @every_payload
    def test_arguments_are_kept_in_every_state(self, store: Store, text: str) -> None:
        id = put_one(store, args=text, delay=TICK)
        assert get_one(store, id).args == text
        store.promote(1, now=T0 + TICK)
        for transition in (
            Transition(S.WAITING, ExecutionState.SUSPENDED, delay=TICK, refund=True),
            Transition(S.SCHEDULED, ExecutionState.FAILED, delay=TICK),
            Transition(S.FAILED, ExecutionState.FAILED),
        ):
            finish_all(store, [claim_one(store, id)], transition)
            assert get_one(store, id).args == text
            store.promote(1, now=T0 + TICK)
        store.move([retry(get_one(store, id))], now=T0)
        assert claim_one(store, id).args == text

    @every_odd_text
    def test_odd_texts_are_kept_in_every_field_of_a_job(self, store: Store, text: str) -> None:
        details = Details(
            correlation_id=text,
            reference=(text, text),
            tags=(text, "", text),
            metadata={text: text, "nested": {text: [text, {"": ""}]}},
            headers={text: text},
            options={text: [text]},
        )
        job = a_job(text, tenant=text, queue=text, args=json.dumps(text), limits=(text,), details=details)
        put(store, job)
        stored = get_one(store, job.id, tenant=text)
        assert (stored.task, stored.tenant, stored.queue, stored.args) == (text, text, text, json.dumps(text))
        assert (stored.limits, stored.details) == ((text,), details)
        assert [(lane.queue, lane.tenant) for lane in store.gates([text])] == [(text, text)]
        claim = claim_one(store, job.id, tasks=[text], queues=[text])
        assert (claim.task, claim.tenant, claim.queue, claim.limits) == (text, text, text, (text,))
        store.report([ProgressReport(claim.id, 1, claim.worker, Progress(message=text, stage=text))], now=T0)
        assert get_one(store, job.id).progress == Progress(message=text, stage=text, at=T0)
        assert store.request_cancel([job.id], tenant=text, reason=text) == {job.id}
        assert get_one(store, job.id).cancel_reason == text

    @pytest.mark.parametrize(
        "state", [JobState.PENDING, JobState.WAITING, JobState.REVIEW_NEEDED, JobState.FAILED]
    )
    @pytest.mark.parametrize("text", [*ODD, ""], ids=range(len(ODD) + 1))
    def test_odd_texts_are_kept_in_reasons_and_errors(self, store: Store, state: JobState, text: str) -> None:
        claim = claim_one(store, put_one(store))
        error = ErrorInfo(text, text, text)
        finish_all(store, [claim], Transition(state, ExecutionState.FAILED, text), error=error)
        job = get_one(store, claim.id)
        (execution,) = executions_of(store, claim.id)
        assert (job.reason, execution.reason, execution.error) == (text, text, error)
        if state is JobState.FAILED:
            assert job.error == error

    def test_an_error_without_a_traceback_has_none(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], Transition(S.FAILED, ExecutionState.FAILED), error=ErrorInfo("E", "m"))
        assert get_one(store, claim.id).error == ErrorInfo("E", "m", None)
        assert get_one(store, claim.id).reason is None

    def test_details_are_kept_in_every_state(self, store: Store) -> None:
        details = Details(
            correlation_id="c",
            parent_id=UUID(int=1),
            reference=("order", ""),
            tags=("b", "a", "b"),
            metadata={
                "n": 1,
                "f": 2.5,
                "none": None,
                "list": [1, [2]],
                "big": 2**53 + 1,
                "yes": True,
                "": {},
            },
            headers={"traceparent": "00-…", "": ""},
            options={"retry": {"max": 3}},
            definition_id=UUID(int=2**128 - 1),
            definition_version=7,
            schedule_id=UUID(int=3),
            fire_at=T0 + TICK,
        )
        id = put_one(store, details=details)
        assert get_one(store, id).details == details
        claim = claim_one(store, id)
        assert get_one(store, id).details == details
        finish_all(store, [claim], Transition(S.FAILED, ExecutionState.FAILED))
        assert get_one(store, id).details == details
        store.move([retry(get_one(store, id))], now=T0)
        assert get_one(store, id).details == details

    def test_a_job_without_details_has_empty_ones(self, store: Store) -> None:
        assert get_one(store, put_one(store)).details == Details()

    @pytest.mark.parametrize("instant", INSTANTS, ids=str)
    def test_instants_are_exact_to_the_microsecond(self, store: Store, instant: datetime) -> None:
        id = put_one(store, run_at=instant, expires_at=instant)
        job = get_one(store, id)
        assert (job.run_at, job.expires_at) == (instant, instant)
        assert job.run_at.utcoffset() == timedelta(0)
        assert job.state is (S.SCHEDULED if instant > T0 else S.PENDING)
        promoted = store.promote(1, now=instant)
        assert promoted.moved == (1 if instant > T0 else 0)
        assert get_one(store, id).run_at == instant

    @pytest.mark.parametrize("instant", INSTANTS, ids=str)
    def test_any_instant_can_be_passed_as_now(self, store: Store, instant: datetime) -> None:
        # A lease must end later.
        instant = min(instant, datetime.max.replace(tzinfo=UTC) - TICK)
        id = put_one(store, now=instant)
        store.register(Worker(WORKER, "at the end of time"), lease=TICK, now=instant)
        claim = claim_one(store, id, now=instant)
        finish_all(store, [claim], now=instant)
        job = get_one(store, id)
        assert {job.created_at, job.run_at, job.claimed_at, job.started_at, job.finished_at} == {instant}

    @pytest.mark.parametrize(
        "timeout", [None, TICK, timedelta(milliseconds=1500), timedelta(days=90), timedelta(seconds=1) + TICK]
    )
    def test_the_timeout_is_stored_exactly(self, store: Store, timeout: timedelta | None) -> None:
        id = put_one(store, timeout=timeout)
        assert get_one(store, id).timeout == timeout
        assert claim_one(store, id).timeout == timeout
        assert get_one(store, id).timeout == timeout

    @pytest.mark.parametrize("attempts", [1, 4, 10_000])
    def test_max_attempts_is_stored(self, store: Store, attempts: int) -> None:
        id = put_one(store, max_attempts=attempts)
        assert (get_one(store, id).max_attempts, claim_one(store, id).max_attempts) == (attempts, attempts)

    def test_instants_of_other_time_zones_are_converted(self, store: Store) -> None:
        there = timezone(timedelta(hours=5, minutes=45))
        id = put_one(store, run_at=(T0 + TICK).astimezone(there), now=T0.astimezone(there))
        job = get_one(store, id)
        assert (job.run_at, job.created_at, job.state) == (T0 + TICK, T0, S.SCHEDULED)
