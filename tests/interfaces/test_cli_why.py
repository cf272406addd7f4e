"""Explanations of why a job is not running, and their order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tidemill.client.jobs.why import LimitUsage, WhyInput, explain, reasons
from tidemill.clock import ManualClock
from tidemill.domain.cluster import Worker, WorkerState
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow, NewJob
from tidemill.domain.lanes import ClaimRequest, Watermarks
from tidemill.domain.limits import Rule, Use
from tidemill.domain.records import Pause, PauseKind, Setting
from tidemill.domain.states import ENDED, JobState
from tidemill.ids import new_id
from tidemill.stores.memory import MemoryStore

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER, EARLIER = NOW + timedelta(minutes=5), NOW - timedelta(minutes=5)


def job(state: JobState = JobState.PENDING, **facts: object) -> JobRow:
    plain = JobRow(
        id=new_id(),
        task="send",
        state=state,
        tenant="acme",
        queue="mail",
        priority=0,
        args="{}",
        attempt=0,
        max_attempts=4,
        crashes=0,
        token=0,
        run_at=EARLIER,
        created_at=EARLIER,
    )
    return replace(plain, **facts)  # type: ignore[arg-type]


def worker(**facts: object) -> Worker:
    plain = Worker(new_id(), "w1", host="h", pid=7, concurrency=2, expires_at=LATER, beat_at=NOW)
    return replace(plain, **facts)  # type: ignore[arg-type]


def codes(it: JobRow, around: WhyInput) -> list[str]:
    found = reasons(it, around, NOW)
    assert all(reason.text.endswith((".", "!", "?")) for reason in found)
    return [reason.code for reason in found]


FREE = WhyInput([worker()])


def test_an_unblocked_job_is_reported_to_start_soon() -> None:
    assert codes(job(), FREE) == ["soon"]


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_ended_job_reports_how_and_why(state: JobState) -> None:
    (found,) = reasons(job(state, reason="no route", finished_at=EARLIER), FREE, NOW)
    assert found.code == "ended"
    assert " 5 minutes ago: no route." in found.text
    assert ("A retry starts over with" in found.text) is (state is not JobState.COMPLETED)


def test_the_reason_of_an_ended_job_is_not_repeated() -> None:
    (found,) = reasons(job(JobState.CANCELLED, reason="cancelled", finished_at=EARLIER), FREE, NOW)
    assert found.text == "It was cancelled 5 minutes ago. A retry starts over with 4 attempts."
    (found,) = reasons(job(JobState.DEAD_LETTERED, reason="crash_loop", finished_at=EARLIER), FREE, NOW)
    assert found.text.startswith("It was dead-lettered 5 minutes ago: crash_loop.")


@pytest.mark.parametrize(
    ("kind", "name"),
    [(PauseKind.ALL, "*"), (PauseKind.QUEUE, "mail"), (PauseKind.TASK, "send"), (PauseKind.TENANT, "acme")],
)
def test_a_pause_of_its_queue_task_or_tenant_is_reported_with_who_and_why(kind: PauseKind, name: str) -> None:
    found = reasons(job(), replace(FREE, pauses=[Pause(kind, name, "flood", "ann", EARLIER)]), NOW)
    assert found[0].code == f"paused_{kind}"
    assert found[0].text.endswith("was paused by ann 5 minutes ago: flood.")


@pytest.mark.parametrize("kind", [PauseKind.QUEUE, PauseKind.TASK, PauseKind.TENANT])
def test_a_pause_of_another_queue_task_or_tenant_is_no_reason(kind: PauseKind) -> None:
    assert codes(job(), replace(FREE, pauses=[Pause(kind, "other")])) == ["soon"]


@pytest.mark.parametrize(
    ("crew", "code"),
    [
        ([], "no_workers"),
        ([worker(expires_at=EARLIER)], "no_workers"),
        ([worker(state=WorkerState.STOPPED)], "no_workers"),
        ([worker(queues=("other",))], "no_worker_for_queue"),
        ([worker(tasks=("other",))], "no_worker_for_task"),
        ([worker(queues=("other",)), worker(tasks=("other",))], "no_worker_for_task"),
        ([worker(state=WorkerState.DRAINING)], "draining"),
        ([worker(queues=("mail",), tasks=("send",))], "soon"),
    ],
)
def test_a_job_without_a_suitable_worker_reports_what_is_missing(crew: list[Worker], code: str) -> None:
    assert codes(job(), WhyInput(crew)) == [code]


@pytest.mark.parametrize(
    ("crew", "code"),
    [
        ([worker(node="a")], "soon"),
        ([worker(node="a", queues=("mail",))], "soon"),
        ([worker(node="b")], "no_worker_for_queue"),
        ([worker(node="b"), worker(node="a", state=WorkerState.DRAINING)], "draining"),
    ],
)
def test_a_job_of_one_node_waits_for_that_node_only(crew: list[Worker], code: str) -> None:
    assert codes(job(queue="@a"), WhyInput(crew)) == [code]


@pytest.mark.parametrize(
    ("crew", "text"),
    [
        ([worker(tasks=("other",))], "The only living worker does not know task send."),
        ([worker(tasks=("other",))] * 2, "None of the 2 living workers knows task send."),
        (
            [worker(queues=("other",)), worker(tasks=("other",))],
            "The only living worker for queue mail does not know task send.",
        ),
        ([worker(queues=("other",))], "The only living worker does not serve queue mail."),
        (
            [worker(state=WorkerState.DRAINING)],
            "The only worker that could run it is draining, so no worker will claim it; start another worker.",
        ),
    ],
)
def test_missing_workers_are_described_in_a_sentence(crew: list[Worker], text: str) -> None:
    (found,) = reasons(job(), WhyInput(crew), NOW)
    assert found.text == text


def test_workers_are_busy_when_none_of_them_has_a_free_slot() -> None:
    one, two = worker(), worker()
    assert codes(job(), WhyInput([one, two], held={one.id: 2, two.id: 2})) == ["busy"]
    assert codes(job(), WhyInput([one, two], held={one.id: 2, two.id: 1})) == ["soon"]
    unknown = worker(concurrency=0)
    assert codes(job(), WhyInput([unknown], held={unknown.id: 99})) == ["soon"]


def test_the_most_important_reason_comes_first() -> None:
    around = WhyInput(
        [],
        [Pause(PauseKind.QUEUE, "mail"), Pause(PauseKind.ALL, "*")],
        ahead=3,
        limits=LimitUsage({"gpu": Rule("gpu", max=1)}, {"gpu": Use("gpu", 1)}),
        switched_off=Setting("worker_enabled", False),
    )
    it = job(expires_at=EARLIER, limits=("gpu",))
    assert codes(it, around) == [
        "expired", "worker_disabled", "paused_all", "paused_queue", "limit_full", "no_workers", "behind_others",
    ]  # fmt: skip


def test_a_scheduled_job_reports_when_and_a_retried_one_after_which_error() -> None:
    (delayed,) = reasons(job(JobState.SCHEDULED, run_at=LATER), FREE, NOW)
    assert delayed.code == "scheduled"
    assert "in 5 minutes, at 2026-01-01 12:05:00 UTC" in delayed.text
    (again,) = reasons(job(JobState.SCHEDULED, run_at=LATER, attempt=2, reason="OSError: x"), FREE, NOW)
    assert again.code == "retrying"
    assert "attempt 3 of 4" in again.text
    assert again.text.endswith("after: OSError: x.")
    (due,) = reasons(job(JobState.SCHEDULED), WhyInput(), NOW)
    assert due.code == "due"
    assert "start one" in due.text


def test_a_parked_job_reports_what_it_waits_for() -> None:
    assert codes(job(JobState.WAITING, reason="children"), FREE) == ["waiting"]
    (found,) = reasons(job(JobState.REVIEW_NEEDED, reason="is this right?"), FREE, NOW)
    assert found.text == "It waits for a person's decision: is this right? Approve or reject it."


def test_a_held_job_reports_its_worker_its_start_and_its_state() -> None:
    one = worker()
    running = job(JobState.RUNNING, worker=one.id, started_at=EARLIER, attempt=1)
    (found,) = reasons(running, WhyInput([one]), NOW)
    assert found == (
        "running", "It has been running for 5 minutes on worker w1 on h, process 7, attempt 1 of 4."
    )  # fmt: skip
    assert codes(replace(running, state=JobState.CLAIMED), WhyInput([one])) == ["claimed"]
    assert codes(replace(running, timeout=timedelta(minutes=1)), WhyInput([one])) == [
        "running",
        "overdue",
    ]
    assert codes(replace(running, cancel_reason="enough"), WhyInput([one])) == [
        "cancel_requested", "running",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("around", "who"),
    [
        (WhyInput([], reclaimer="w9"), "w9 does the duties"),
        (WhyInput([worker()]), "a living worker reclaims it"),
        (WhyInput([]), "start one"),
    ],
)
def test_an_orphaned_job_reports_the_process_that_will_reclaim_it(around: WhyInput, who: str) -> None:
    found = reasons(job(JobState.RUNNING, worker=new_id(), started_at=EARLIER), around, NOW)
    assert found[0].code == "orphaned"
    assert who in found[0].text


# From a store ------------------------------------------------------------------------------------------------------------


def enqueued(store: MemoryStore, **facts: object) -> UUID:
    made = NewJob(new_id(), "send", queue="mail")._replace(**facts)  # type: ignore[arg-type]
    return store.enqueue([made])[0].id


def asked(store: MemoryStore, id: UUID, clock: ManualClock) -> list[str]:
    (found,) = store.get([id], tenant=ALL_TENANTS)
    return [reason.code for reason in explain(store, found, clock.now())]


def test_explain_reads_workers_pauses_leases_and_jobs_ahead_from_the_store() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    first = enqueued(store)
    second = enqueued(store)
    urgent = enqueued(store, priority=5)
    elsewhere = enqueued(store, queue="other")
    assert asked(store, first, clock) == ["no_workers", "behind_others"]
    one = store.register(Worker(new_id(), "w1", concurrency=1), lease=timedelta(seconds=30))
    assert asked(store, urgent, clock) == ["soon"]
    assert asked(store, elsewhere, clock) == ["soon"]
    (found,) = store.get([second], tenant=ALL_TENANTS)
    assert "2 pending jobs come before it" in explain(store, found, clock.now())[0].text

    marks = Watermarks()
    marks.seen(store.lanes())
    (claim,) = store.claim(ClaimRequest(one.id, marks.lanes(), 1))
    assert claim.id == urgent
    assert asked(store, urgent, clock) == ["running"]
    assert asked(store, first, clock) == ["busy"]
    store.pause([Pause(PauseKind.TASK, "send")])
    assert asked(store, first, clock) == ["paused_task", "busy"]

    clock.advance(timedelta(seconds=31))
    assert asked(store, urgent, clock) == ["orphaned", "running"]
    store.close()


def test_a_long_queue_is_counted_without_reading_it() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    store.enqueue([NewJob(new_id(), "send", queue="mail") for _ in range(450)])
    clock.advance(timedelta(seconds=1))
    last = enqueued(store)
    (found,) = store.get([last], tenant=ALL_TENANTS)
    texts = [reason.text for reason in explain(store, found, clock.now())]
    assert any(text.startswith("At least 450 pending jobs come before it") for text in texts)
    store.close()
