"""Tests of `decide`: the transition of every outcome in every situation."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.domain.strategies import NOW, a_claim

from tidemill.domain.decide import COMPLETED, DEFAULT_POLICY, IN_COMPANY, OrphanRule, Policy, decide
from tidemill.domain.job import ErrorInfo, Transition
from tidemill.domain.misfits import reason_of
from tidemill.domain.outcome import (
    Cancelled,
    Crashed,
    Failed,
    Misfit,
    Outcome,
    Released,
    ReviewRequested,
    Snoozed,
    Succeeded,
    Suspended,
    TimedOut,
)
from tidemill.domain.retry import Exponential, Fixed
from tidemill.domain.states import ExecutionState, JobState

S, E = JobState, ExecutionState
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
BOOM = ErrorInfo("ValueError", "boom")
WHY = "ValueError: boom"
LATE = "exceeded timeout of 90 seconds"

WAIT = Policy(retry=Fixed(max_attempts=4, wait=MINUTE))
AT_ONCE = Policy(retry=Fixed(max_attempts=4, wait=timedelta(0)))
FAIL = Policy(orphans=OrphanRule.FAIL)
ASK = Policy(orphans=OrphanRule.REVIEW)

FIRST: dict[str, Any] = {}
LAST = {"attempt": 4}
ONLY = {"max_attempts": 1}
STOP = {"cancel_reason": "no longer wanted"}
EXPIRED = {"expires_at": NOW}
EXPIRES_DURING_THE_WAIT = {"expires_at": NOW + MINUTE}
EXPIRES_AFTER_THE_WAIT = {"expires_at": NOW + MINUTE + timedelta(microseconds=1)}

timed_out = TimedOut(90 * SECOND)
crashed = Crashed("worker w1 is gone")
GONE = crashed.reason
together = Crashed(GONE, alone=False)
released = Released("worker is stopping")
snoozed = Snoozed(MINUTE, "rate limited")
misfit = Misfit(ErrorInfo("BadArguments", "n: no"), "n: no")


def misfit_reason(until: datetime) -> str:
    return reason_of("n: no", until)


Row = tuple[str, Outcome, dict[str, Any], Policy, Transition]

ENDS: list[Row] = [
    ("success", Succeeded("1"), FIRST, WAIT, Transition(S.COMPLETED, E.SUCCEEDED)),
    ("success on the last attempt", Succeeded(), LAST, WAIT, Transition(S.COMPLETED, E.SUCCEEDED)),
    ("success though asked to stop", Succeeded(), STOP, WAIT, Transition(S.COMPLETED, E.SUCCEEDED)),
    ("success after expiry", Succeeded(), EXPIRED, WAIT, Transition(S.COMPLETED, E.SUCCEEDED)),
    ("cancelled", Cancelled(), FIRST, WAIT, Transition(S.CANCELLED, E.CANCELLED, "cancelled")),
    ("cancelled with a reason", Cancelled("why"), STOP, WAIT, Transition(S.CANCELLED, E.CANCELLED, "why")),
    ("cancelled as asked", Cancelled(), STOP, WAIT, Transition(S.CANCELLED, E.CANCELLED, "no longer wanted")),
    (
        "cancelled on the last attempt",
        Cancelled("why"),
        LAST,
        WAIT,
        Transition(S.CANCELLED, E.CANCELLED, "why"),
    ),
    ("review", ReviewRequested("look", "{}"), FIRST, WAIT, Transition(S.REVIEW_NEEDED, E.REVIEW, "look")),
    (
        "review on the last attempt",
        ReviewRequested("look"),
        LAST,
        WAIT,
        Transition(S.REVIEW_NEEDED, E.REVIEW, "look"),
    ),
    (
        "review of the only attempt",
        ReviewRequested("look"),
        ONLY,
        WAIT,
        Transition(S.REVIEW_NEEDED, E.REVIEW, "look"),
    ),
]

FAILURES: list[Row] = [
    ("failed", Failed(BOOM), FIRST, WAIT, Transition(S.SCHEDULED, E.FAILED, WHY, MINUTE)),
    ("failed, no wait", Failed(BOOM), FIRST, AT_ONCE, Transition(S.PENDING, E.FAILED, WHY)),
    ("failed, last", Failed(BOOM), LAST, WAIT, Transition(S.DEAD_LETTERED, E.FAILED, WHY)),
    ("failed, beyond the last", Failed(BOOM), {"attempt": 9}, WAIT, Transition(S.DEAD_LETTERED, E.FAILED, WHY)),
    ("failed, only", Failed(BOOM), ONLY, WAIT, Transition(S.FAILED, E.FAILED, WHY)),
    ("permanent", Failed(BOOM, permanent=True), FIRST, WAIT, Transition(S.FAILED, E.FAILED, WHY)),
    ("permanent, last", Failed(BOOM, permanent=True), LAST, WAIT, Transition(S.FAILED, E.FAILED, WHY)),
    ("permanent wins over a wish", Failed(BOOM, True, True, MINUTE), FIRST, WAIT, Transition(S.FAILED, E.FAILED, WHY)),
    ("not retryable", Failed(BOOM, retryable=False), FIRST, WAIT, Transition(S.FAILED, E.FAILED, WHY)),
    ("retryable", Failed(BOOM, retryable=True), FIRST, WAIT, Transition(S.SCHEDULED, E.FAILED, WHY, MINUTE)),
    ("retryable, last", Failed(BOOM, retryable=True), LAST, WAIT, Transition(S.DEAD_LETTERED, E.FAILED, WHY)),
    ("retryable, only", Failed(BOOM, retryable=True), ONLY, WAIT, Transition(S.FAILED, E.FAILED, WHY)),
    ("own wait", Failed(BOOM, retry_after=HOUR), FIRST, WAIT, Transition(S.SCHEDULED, E.FAILED, WHY, HOUR)),
    ("own wait of zero", Failed(BOOM, retry_after=0 * HOUR), FIRST, WAIT, Transition(S.PENDING, E.FAILED, WHY)),
    ("own wait below zero", Failed(BOOM, retry_after=-HOUR), FIRST, WAIT, Transition(S.PENDING, E.FAILED, WHY)),
    ("failed, asked to stop", Failed(BOOM), STOP, WAIT, Transition(S.CANCELLED, E.FAILED, "no longer wanted")),
    ("failed, expired", Failed(BOOM), EXPIRED, WAIT, Transition(S.CANCELLED, E.FAILED, "expired")),
    ("failed, expires in the wait", Failed(BOOM), EXPIRES_DURING_THE_WAIT, WAIT, Transition(S.CANCELLED, E.FAILED, "expired")),
    ("failed, expires later", Failed(BOOM), EXPIRES_AFTER_THE_WAIT, WAIT, Transition(S.SCHEDULED, E.FAILED, WHY, MINUTE)),
    ("failed, stop wins over expiry", Failed(BOOM), STOP | EXPIRED, WAIT, Transition(S.CANCELLED, E.FAILED, "no longer wanted")),
    ("too late", timed_out, FIRST, WAIT, Transition(S.SCHEDULED, E.TIMED_OUT, LATE, MINUTE)),
    ("too late, no wait", timed_out, FIRST, AT_ONCE, Transition(S.PENDING, E.TIMED_OUT, LATE)),
    ("too late, last", timed_out, LAST, WAIT, Transition(S.TIMED_OUT, E.TIMED_OUT, LATE)),
    ("too late, only", timed_out, ONLY, WAIT, Transition(S.TIMED_OUT, E.TIMED_OUT, LATE)),
    ("too late, asked to stop", timed_out, STOP, WAIT, Transition(S.CANCELLED, E.TIMED_OUT, "no longer wanted")),
    ("too late, expired", timed_out, EXPIRED, WAIT, Transition(S.CANCELLED, E.TIMED_OUT, "expired")),
]  # fmt: skip

WAITED = {"crashes": 2, "state": S.CLAIMED}

CRASHES: list[Row] = [
    ("crash", crashed, FIRST, WAIT, Transition(S.PENDING, E.CRASHED, GONE, crashed=True)),
    ("second crash", crashed, {"crashes": 1}, WAIT, Transition(S.PENDING, E.CRASHED, GONE, crashed=True)),
    ("crash of a suspect that waited", crashed, WAITED, WAIT, Transition(S.PENDING, E.RELEASED, GONE, refund=True)),
    ("crash of a suspect that waited, stop", crashed, WAITED | STOP, WAIT, Transition(S.CANCELLED, E.RELEASED, "no longer wanted")),
    ("crash of one that may have waited", crashed, {"state": S.CLAIMED}, WAIT, Transition(S.PENDING, E.CRASHED, GONE, crashed=True)),
    ("third crash", crashed, {"crashes": 2, "attempt": 3}, WAIT, Transition(S.DEAD_LETTERED, E.CRASHED, f"crash_loop: {GONE}", crashed=True)),
    ("crash in company", together, FIRST, WAIT, Transition(S.PENDING, E.CRASHED, GONE + IN_COMPANY, refund=True, crashed=True)),
    ("crash in company, last", together, LAST, WAIT, Transition(S.PENDING, E.CRASHED, GONE + IN_COMPANY, refund=True, crashed=True)),
    ("crash of a suspect in company", together, {"crashes": 7}, WAIT, Transition(S.PENDING, E.CRASHED, GONE + IN_COMPANY, refund=True)),
    ("crash in company, only", together, ONLY, WAIT, Transition(S.FAILED, E.CRASHED, GONE, crashed=True)),
    ("crash in company, asked to stop", together, STOP, WAIT, Transition(S.CANCELLED, E.CRASHED, "no longer wanted", crashed=True)),
    ("crash in company, expired", together, EXPIRED, WAIT, Transition(S.CANCELLED, E.CRASHED, "expired", crashed=True)),
    ("third crash alone after one in company", crashed, {"crashes": 3, "attempt": 3}, WAIT, Transition(S.DEAD_LETTERED, E.CRASHED, f"crash_loop: {GONE}", crashed=True)),
    ("second crash alone after one in company", crashed, {"crashes": 2, "attempt": 2}, WAIT, Transition(S.PENDING, E.CRASHED, GONE, crashed=True)),
    ("crash, last", crashed, LAST, WAIT, Transition(S.DEAD_LETTERED, E.CRASHED, GONE, crashed=True)),
    ("crash, only", crashed, ONLY, WAIT, Transition(S.FAILED, E.CRASHED, GONE, crashed=True)),
    ("crash, asked to stop", crashed, STOP, WAIT, Transition(S.CANCELLED, E.CRASHED, "no longer wanted", crashed=True)),
    ("crash, expired", crashed, EXPIRED, WAIT, Transition(S.CANCELLED, E.CRASHED, "expired", crashed=True)),
    ("crash, orphans fail", crashed, FIRST, FAIL, Transition(S.FAILED, E.CRASHED, GONE, crashed=True)),
    ("crash, orphans fail, stop", crashed, STOP, FAIL, Transition(S.CANCELLED, E.CRASHED, "no longer wanted", crashed=True)),
    ("crash, orphans to a person", crashed, FIRST, ASK, Transition(S.REVIEW_NEEDED, E.CRASHED, GONE, crashed=True)),
    ("crash, orphans to a person, third", crashed, {"crashes": 2}, ASK, Transition(S.REVIEW_NEEDED, E.CRASHED, GONE, crashed=True)),
    ("crash, orphans to a person, stop", crashed, STOP, ASK, Transition(S.CANCELLED, E.CRASHED, "no longer wanted", crashed=True)),
]  # fmt: skip

PUT_OFF: list[Row] = [
    ("released", released, FIRST, WAIT, Transition(S.PENDING, E.RELEASED, released.reason, refund=True)),
    ("released, last", released, LAST, WAIT, Transition(S.PENDING, E.RELEASED, released.reason, refund=True)),
    ("released, only", released, ONLY, WAIT, Transition(S.PENDING, E.RELEASED, released.reason, refund=True)),
    ("released, asked to stop", released, STOP, WAIT, Transition(S.CANCELLED, E.RELEASED, "no longer wanted")),
    ("released, expired", released, EXPIRED, WAIT, Transition(S.CANCELLED, E.RELEASED, "expired")),
    ("snoozed", snoozed, FIRST, WAIT, Transition(S.SCHEDULED, E.RELEASED, "rate limited", MINUTE, refund=True)),
    ("snoozed, no reason", Snoozed(MINUTE), LAST, WAIT, Transition(S.SCHEDULED, E.RELEASED, "snoozed", MINUTE, refund=True)),
    ("snoozed for no time", Snoozed(0 * MINUTE), FIRST, WAIT, Transition(S.PENDING, E.RELEASED, "snoozed", refund=True)),
    ("snoozed, asked to stop", snoozed, STOP, WAIT, Transition(S.CANCELLED, E.RELEASED, "no longer wanted")),
    ("snoozed beyond expiry", snoozed, EXPIRES_DURING_THE_WAIT, WAIT, Transition(S.CANCELLED, E.RELEASED, "expired")),
    ("suspended", Suspended("signal"), FIRST, WAIT, Transition(S.WAITING, E.SUSPENDED, "signal", refund=True)),
    ("suspended for a time", Suspended("nap", HOUR), LAST, WAIT, Transition(S.WAITING, E.SUSPENDED, "nap", HOUR, refund=True)),
    ("suspended, asked to stop", Suspended("nap"), STOP, WAIT, Transition(S.CANCELLED, E.SUSPENDED, "no longer wanted")),
    ("misfit", misfit, FIRST, WAIT, Transition(S.WAITING, E.RELEASED, misfit_reason(NOW + HOUR), 5 * SECOND, refund=True)),
    ("misfit, third time", replace(misfit, times=2, since=NOW - MINUTE), LAST, WAIT,
     Transition(S.WAITING, E.RELEASED, misfit_reason(NOW - MINUTE + HOUR), 11.25 * SECOND, refund=True)),
    ("misfit, near the end", replace(misfit, times=9, since=NOW - HOUR + SECOND), LAST, WAIT,
     Transition(S.WAITING, E.RELEASED, misfit_reason(NOW + SECOND), SECOND, refund=True)),
    ("misfit, time over", replace(misfit, times=9, since=NOW - HOUR), FIRST, WAIT, Transition(S.FAILED, E.FAILED, "BadArguments: n: no")),
    ("misfit, no wait", replace(misfit, wait=0 * SECOND), FIRST, WAIT, Transition(S.FAILED, E.FAILED, "BadArguments: n: no")),
    ("misfit, asked to stop", misfit, STOP, WAIT, Transition(S.CANCELLED, E.RELEASED, "no longer wanted")),
    ("suspended, expired", Suspended("nap"), EXPIRED, WAIT, Transition(S.WAITING, E.SUSPENDED, "nap", refund=True)),
]  # fmt: skip


@pytest.mark.parametrize("row", [*ENDS, *FAILURES, *CRASHES, *PUT_OFF], ids=lambda row: row[0])
def test_a_row_of_the_decision_table(row: Row) -> None:
    _, outcome, situation, policy, expected = row
    assert decide(a_claim(**situation), outcome, policy, NOW, 0.5) == expected


def test_every_outcome_has_a_row_in_every_relevant_situation() -> None:
    covered = {
        (type(outcome), tuple(situation))
        for _, outcome, situation, _, _ in [*ENDS, *FAILURES, *CRASHES, *PUT_OFF]
    }
    for kind in (Failed, TimedOut, Crashed, Released):
        for situation in (FIRST, LAST, ONLY, STOP, EXPIRED):
            assert (kind, tuple(situation)) in covered


def test_all_successes_share_one_transition() -> None:
    assert decide(a_claim(), Succeeded("1"), DEFAULT_POLICY, NOW, 0.0) is COMPLETED


@pytest.mark.parametrize(
    ("cap", "crashes", "dead"), [(1, 0, True), (2, 0, False), (2, 1, True), (5, 3, False), (5, 4, True)]
)
def test_the_crash_cap_ends_a_job(cap: int, crashes: int, dead: bool) -> None:
    claim = a_claim(crashes=crashes, attempt=crashes + 1, max_attempts=10)
    written = decide(claim, crashed, Policy(crash_cap=cap), NOW, 0.0)
    assert (written.state is S.DEAD_LETTERED) is dead


def test_the_retry_delay_depends_on_attempt_and_jitter() -> None:
    policy = Policy(retry=Exponential(max_attempts=9, wait=10 * SECOND, jitter=0.5))
    waits = [
        decide(a_claim(attempt=n, max_attempts=9), Failed(BOOM), policy, NOW, 0.0).delay for n in (1, 2, 3)
    ]
    assert waits == [5 * SECOND, 10 * SECOND, 20 * SECOND]
    assert decide(a_claim(attempt=3, max_attempts=9), Failed(BOOM), policy, NOW, 0.5).delay == 40 * SECOND


def test_a_crashed_job_is_requeued_without_delay() -> None:
    assert decide(a_claim(), crashed, WAIT, NOW, 0.5).delay == timedelta(0)


def test_the_default_policy() -> None:
    assert DEFAULT_POLICY.crash_cap == 3
    assert DEFAULT_POLICY.orphans is OrphanRule.REQUEUE
    assert DEFAULT_POLICY.retry == Exponential(4, 5 * SECOND, 2.0, 0.5, 300 * SECOND)
