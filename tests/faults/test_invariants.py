"""Tests of the chaos invariants with handmade evidence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest
from tests.faults.cluster import FaultLog
from tests.faults.invariants_more import INVARIANTS, judge
from tests.faults.ledger import END, Line
from tests.faults.sampler import Ended, LeaseTerm
from tests.faults.scenario import NOON, OTHER, PID, SECOND, WORKER, Scenario, span
from tests.faults.traffic import Cancelled

from tidemill.domain.job import Details
from tidemill.domain.states import ExecutionState, JobState

_E, _S = ExecutionState, JobState


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


def test_a_correct_run_breaks_no_invariant(scenario: Scenario) -> None:
    scenario.job()
    scenario.job("doomed", state=_S.FAILED, result=None)
    scenario.evidence.executions[list(scenario.evidence.jobs)[-1]].clear()
    scenario.execution(list(scenario.evidence.jobs)[-1], 1, state=_E.FAILED)
    scenario.schedule()
    scenario.crashed_once()
    scenario.evidence.fault_log.killed[PID] = 0.5
    assert scenario.broken() == set()


def test_every_invariant_counts_what_it_checked(scenario: Scenario) -> None:
    scenario.schedule()
    findings = judge(replace(scenario.evidence))
    assert list(findings) == list(INVARIANTS)
    assert findings["I1"].checked == findings["I2"].checked == 10
    assert findings["I12"].checked == 20


# Violations --------------------------------------------------------------------------------------------------------------


def lose_a_job(scenario: Scenario) -> None:
    scenario.evidence.accepted.append(uuid4())


def keep_a_rolled_back_job(scenario: Scenario) -> None:
    scenario.evidence.unwanted.append(scenario.job())


def leave_a_job_open(scenario: Scenario) -> None:
    scenario.change(scenario.job(), state=_S.PENDING)


def succeed_twice(scenario: Scenario) -> None:
    id = scenario.crashed_once()
    scenario.evidence.executions[id][0] = replace(scenario.evidence.executions[id][0], state=_E.SUCCEEDED)


def cancel_without_a_request(scenario: Scenario) -> None:
    scenario.job(state=_S.CANCELLED, token=0, attempt=0)


def store_a_job_twice(scenario: Scenario) -> None:
    scenario.evidence.seen.doubled.append("job 1 was in 2 places at once")


def leave_the_final_state(scenario: Scenario) -> None:
    scenario.evidence.seen.ended[scenario.job()] = Ended("cancelled", 1)


def vanish_after_the_end(scenario: Scenario) -> None:
    scenario.evidence.seen.ended[uuid4()] = Ended("completed", 1)


def skip_a_token(scenario: Scenario) -> None:
    id = scenario.job()
    scenario.change(id, token=3)


def stay_held(scenario: Scenario) -> None:
    id = scenario.job()
    scenario.evidence.executions[id][0] = replace(scenario.evidence.executions[id][0], finished_at=None)


def claim_a_held_job(scenario: Scenario) -> None:
    id = scenario.crashed_once()
    scenario.evidence.executions[id][0] = replace(
        scenario.evidence.executions[id][0], finished_at=NOON + 60 * SECOND
    )


def accept_a_zombie_result(scenario: Scenario) -> None:
    scenario.change(scenario.crashed_once(), result="1")


def let_another_process_end_it(scenario: Scenario) -> None:
    id = scenario.job()
    scenario.evidence.executions[id][0] = replace(scenario.evidence.executions[id][0], worker=OTHER)


def exceed_the_attempts(scenario: Scenario) -> None:
    scenario.change(scenario.job(), attempt=5)


def exceed_the_crashes(scenario: Scenario) -> None:
    scenario.change(scenario.job(), crashes=5)


def crash_without_a_charge(scenario: Scenario) -> None:
    id = scenario.crashed_once()
    scenario.evidence.executions[id][1] = replace(scenario.evidence.executions[id][1], attempt=1)
    scenario.change(id, attempt=1)


def lose_an_attempt(scenario: Scenario) -> None:
    scenario.change(scenario.job(), attempt=0)


def crash_without_a_cause(scenario: Scenario) -> None:
    scenario.crashed_once(at=500.0)


def begin_twice(scenario: Scenario) -> None:
    scenario.run(scenario.job(), 1, 0.2, 0.4)


def run_without_a_claim(scenario: Scenario) -> None:
    scenario.run(scenario.job(), 7, 0.6, 0.7)


def fail_without_a_cause(scenario: Scenario) -> None:
    id = scenario.job(state=_S.FAILED, result=None)
    scenario.evidence.executions[id][0] = replace(scenario.evidence.executions[id][0], state=_E.FAILED)


def overlap_the_next_execution(scenario: Scenario) -> None:
    scenario.run(scenario.crashed_once(), 1, 0.1, 1.3, well=False)


def run_long_after_waking(scenario: Scenario) -> None:
    scenario.evidence.fault_log.halted.append(span(0.2, 2.0, PID))
    scenario.run(scenario.crashed_once(), 1, 0.1, 19.0, well=False)


def exceed_a_limit(scenario: Scenario) -> None:
    for _ in range(2):
        scenario.job("one", args=json.dumps({"key": 1, "seconds": 0.3}))


def exceed_a_limit_in_a_sample(scenario: Scenario) -> None:
    scenario.evidence.seen.over_limit.append("6 jobs of five/1 were held at once")


def fire_twice(scenario: Scenario) -> None:
    scenario.schedule()
    fire = scenario.evidence.timetables[0].fires[3]
    scenario.job("tick", at=4, details=Details(schedule_id=fire.schedule_id, fire_at=fire.fire_at))


def have_two_effects(scenario: Scenario) -> None:
    table = scenario.schedule()
    table.effects.append(table.effects[0]._replace(job=scenario.job()))


def repeat_an_effect(scenario: Scenario) -> None:
    table = scenario.schedule()
    table.effects.append(table.effects[0])


def omit_a_fire(scenario: Scenario) -> None:
    table = scenario.schedule()
    del table.fires[4]


def omit_an_effect(scenario: Scenario) -> None:
    scenario.schedule().effects.pop()


def start_early(scenario: Scenario) -> None:
    scenario.job("later", args=json.dumps({"delay": 5.0}))


def fire_early(scenario: Scenario) -> None:
    scenario.job("tick", details=Details(schedule_id=uuid4(), fire_at=NOON + SECOND))


def retry_early(scenario: Scenario) -> None:
    scenario.change(scenario.job(), run_at=NOON + SECOND)


def lead_together(scenario: Scenario) -> None:
    scenario.evidence.seen.lease_terms += [LeaseTerm("duties", 3, WORKER), LeaseTerm("duties", 3, OTHER)]


def lead_backwards(scenario: Scenario) -> None:
    scenario.evidence.seen.lease_terms += [LeaseTerm("duties", 3, WORKER), LeaseTerm("duties", 2, OTHER)]


def share_a_key(scenario: Scenario) -> None:
    for at in (0.0, 0.2):
        scenario.job("single", at=at, args=json.dumps({"key": 1, "seconds": 0.1}))


def share_a_key_in_a_sample(scenario: Scenario) -> None:
    scenario.evidence.seen.shared_keys.append("key 1 had 2 living jobs at once")


def break_the_chain(scenario: Scenario) -> None:
    scenario.evidence.audit.sound = False


def act_without_an_audit_entry(scenario: Scenario) -> None:
    scenario.evidence.acts["retry"] = 1


def audit_an_action_that_did_not_happen(scenario: Scenario) -> None:
    scenario.evidence.audit.own["worker.drained"] = 1


def begin_after_a_cancel(scenario: Scenario) -> None:
    id = scenario.job()
    scenario.evidence.meddled.add(id)
    scenario.evidence.cancelled[id] = Cancelled(0.05, True, 0)


def begin_again_after_being_asked_to_stop(scenario: Scenario) -> None:
    id = scenario.crashed_once()
    scenario.evidence.cancelled[id] = Cancelled(0.2, False, 1)


def dead_letter_without_a_kill(scenario: Scenario) -> None:
    id = scenario.crashed_once()
    scenario.evidence.fault_log.halted.append(span(0.2, 1.0, PID))
    scenario.change(id, state=_S.DEAD_LETTERED, result=None, crashes=3, reason="crash_loop")
    scenario.evidence.executions[id][1] = replace(scenario.evidence.executions[id][1], state=_E.CRASHED)


def begin_without_a_lease(scenario: Scenario) -> None:
    scenario.evidence.fault_log.headless.append(span(0.0, 30.0, PID))
    scenario.job(at=20)


VIOLATIONS: list[tuple[Callable[[Scenario], None], str]] = [
    (lose_a_job, "I1"),
    (keep_a_rolled_back_job, "I1"),
    (leave_a_job_open, "I2"),
    (succeed_twice, "I2"),
    (cancel_without_a_request, "I2"),
    (store_a_job_twice, "I2"),
    (leave_the_final_state, "I3"),
    (vanish_after_the_end, "I3"),
    (succeed_twice, "I3"),
    (skip_a_token, "I4"),
    (stay_held, "I5"),
    (store_a_job_twice, "I5"),
    (claim_a_held_job, "I5"),
    (accept_a_zombie_result, "I6"),
    (let_another_process_end_it, "I6"),
    (exceed_the_attempts, "I7"),
    (exceed_the_crashes, "I7"),
    (crash_without_a_charge, "I8"),
    (lose_an_attempt, "I8"),
    (crash_without_a_cause, "I9"),
    (begin_twice, "I9"),
    (run_without_a_claim, "I9"),
    (fail_without_a_cause, "I9"),
    (overlap_the_next_execution, "I10"),
    (run_long_after_waking, "I10"),
    (exceed_a_limit, "I11"),
    (exceed_a_limit_in_a_sample, "I11"),
    (fire_twice, "I12"),
    (have_two_effects, "I12"),
    (repeat_an_effect, "I12"),
    (omit_a_fire, "I13"),
    (omit_an_effect, "I13"),
    (start_early, "I14"),
    (fire_early, "I14"),
    (retry_early, "I14"),
    (lead_together, "I15"),
    (lead_backwards, "I15"),
    (share_a_key, "I16"),
    (share_a_key_in_a_sample, "I16"),
    (break_the_chain, "I19"),
    (act_without_an_audit_entry, "I19"),
    (audit_an_action_that_did_not_happen, "I19"),
    (begin_after_a_cancel, "I20"),
    (begin_again_after_being_asked_to_stop, "I20"),
    (dead_letter_without_a_kill, "I24"),
    (begin_without_a_lease, "I25"),
]


@pytest.mark.parametrize(("violate", "invariant"), VIOLATIONS)
def test_a_broken_invariant_is_detected(
    scenario: Scenario, violate: Callable[[Scenario], None], invariant: str
) -> None:
    scenario.job()
    violate(scenario)
    assert invariant in scenario.broken()


def test_every_invariant_has_a_violation() -> None:
    assert {invariant for _, invariant in VIOLATIONS} == set(INVARIANTS)


# Explanations --------------------------------------------------------------------------------------------------------------


def test_a_kill_halt_or_outage_explains_a_crash(scenario: Scenario) -> None:
    scenario.crashed_once()
    assert "I9" in scenario.broken()
    explanations: list[Callable[[FaultLog], object]] = [
        lambda fault_log: fault_log.killed.update({PID: 0.3}),
        lambda fault_log: fault_log.halted.append(span(0.2, 1.0, PID)),
        lambda fault_log: fault_log.outages.append(span(0.2, 1.0)),
    ]
    for apply in explanations:
        again = Scenario()
        again.crashed_once()
        apply(again.evidence.fault_log)
        assert again.broken() == set()


def test_a_zombie_may_run_briefly_after_it_wakes(scenario: Scenario) -> None:
    scenario.evidence.fault_log.halted.append(span(0.2, 20.0, PID))
    id = scenario.crashed_once()
    scenario.evidence.lines.append(Line(END, id, 1, 1, PID, 1, 20.5))
    assert scenario.broken() == set()


def test_a_woken_zombie_does_not_count_against_a_limit(scenario: Scenario) -> None:
    args = json.dumps({"key": 1, "seconds": 0.3})
    scenario.job("one", at=3, args=args)
    zombie = scenario.job("one", args=args)
    scenario.evidence.lines.append(Line(END, zombie, 1, 1, PID, 1, 3.2))
    scenario.evidence.lines = [line for line in scenario.evidence.lines if line.at != 0.4]
    assert "I11" in scenario.broken()
    scenario.evidence.fault_log.halted.append(span(0.2, 3.1, PID))
    assert "I11" not in scenario.broken()


def test_a_superseded_execution_does_not_count_against_a_limit(scenario: Scenario) -> None:
    """A worker claims a job, is halted before it begins, and wakes after another worker has taken over."""
    args = json.dumps({"key": 1, "seconds": 0.3})
    id = scenario.crashed_once()
    scenario.change(id, task="one", args=args)
    scenario.evidence.lines = [line for line in scenario.evidence.lines if (line.job, line.token) != (id, 1)]
    scenario.run(id, 1, 1.2, 1.3, well=False)
    assert "I11" not in scenario.broken()
    scenario.job("one", at=1.1, args=args)
    assert "I11" in scenario.broken()


def test_refunded_attempts_do_not_count_and_a_retry_resets_them(scenario: Scenario) -> None:
    id = scenario.job(token=4, attempt=1, crashes=0, result="4")
    scenario.evidence.executions[id].clear()
    scenario.evidence.lines = [line for line in scenario.evidence.lines if line.job != id]
    for number, state, attempt in (
        (1, _E.RELEASED, 1),
        (2, _E.FAILED, 1),
        (3, _E.FAILED, 2),
        (4, _E.SUCCEEDED, 1),
    ):
        scenario.execution(id, number, state=state, attempt=attempt, at=number)
        scenario.run(id, number, number + 0.1, number + 0.4)
    scenario.change(id, task="flaky")
    assert scenario.broken() == {"I8"}
    scenario.evidence.audit.retried[id] = 1
    scenario.evidence.audit.own["job.retried"] = scenario.evidence.acts["retry"] = 1
    assert scenario.broken() == set()


def test_a_job_cancelled_before_its_retry_did_not_start_early(scenario: Scenario) -> None:
    id = scenario.job("flaky", state=_S.CANCELLED, result=None)
    scenario.evidence.executions[id][0] = replace(scenario.evidence.executions[id][0], state=_E.FAILED)
    scenario.evidence.meddled.add(id)
    scenario.change(id, run_at=NOON + SECOND)
    assert scenario.broken() == set()


def test_a_retried_job_may_leave_its_final_state(scenario: Scenario) -> None:
    id = scenario.job()
    scenario.evidence.seen.ended[id] = Ended("cancelled", 0)
    scenario.evidence.audit.retried[id] = 1
    assert "I3" not in scenario.broken()
