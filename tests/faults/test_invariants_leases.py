"""Tests of the chaos invariants under halts and clock steps."""

from __future__ import annotations

import json

import pytest
from tests.faults.scenario import ANOTHER, NOON, PID, SECOND, Scenario, span
from tests.faults.schedulers import Effect
from tests.faults.stepping import Step
from tests.faults.test_invariants import dead_letter_without_a_kill

from tidemill.domain.job import Details
from tidemill.domain.schedule_rules import All


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


def test_a_job_may_be_dead_lettered_after_three_kills(scenario: Scenario) -> None:
    dead_letter_without_a_kill(scenario)
    scenario.evidence.fault_log.killed |= {PID: 0.3, ANOTHER: 1.3}
    assert "I24" not in scenario.broken()


def test_a_runner_may_begin_jobs_while_its_lease_lasts(scenario: Scenario) -> None:
    scenario.evidence.fault_log.headless.append(span(0.0, 30.0, PID))
    scenario.job(at=5)
    assert "I25" not in scenario.broken()


def test_a_step_of_the_clock_does_not_explain_a_crash(scenario: Scenario) -> None:
    scenario.crashed_once()
    scenario.evidence.steps += [Step(0.2, 3600.0), Step(5.0, 0.0)]
    assert "I9" in scenario.broken()


def test_a_job_due_while_the_clock_was_ahead_did_not_start_early(scenario: Scenario) -> None:
    id = scenario.job("later", at=0.0, args=json.dumps({"delay": 30.0}))
    assert "I14" in scenario.broken()
    scenario.evidence.steps += [Step(0.05, 60.0), Step(0.08, 0.0)]
    assert "I14" not in scenario.broken()
    scenario.evidence.steps[:] = [Step(5.0, 60.0)]
    assert "I14" in scenario.broken()
    assert id in scenario.evidence.jobs


def test_only_a_clock_step_excuses_fires_beyond_the_catch_up_limit(scenario: Scenario) -> None:
    table = scenario.schedule()
    table.plan = table.plan._replace(misfire=All(limit=2))
    skipped = table.fires[1:6]
    table.fires[1:6] = [
        skipped[-1]._replace(
            job_id=None,
            reason=f"misfire: 5 fires from {skipped[0].fire_at.isoformat()} until"
            f" {skipped[-1].fire_at.isoformat()} were skipped",
        )
    ]
    table.effects[1:6] = []
    assert "I13" in scenario.broken()
    scenario.evidence.steps.append(Step(1.5, 5.0))
    assert "I13" not in scenario.broken()


def test_only_a_step_back_excuses_a_fire_before_the_declaration(scenario: Scenario) -> None:
    table = scenario.schedule()
    early = NOON - 30 * SECOND
    job = scenario.job("tick", at=5, details=Details(schedule_id=table.fires[0].schedule_id, fire_at=early))
    table.fires.insert(0, table.fires[0]._replace(fire_at=early, job_id=job))
    table.effects.append(Effect("all", early, job, 1))
    assert "I13" in scenario.broken()
    scenario.evidence.steps += [Step(4.0, -60.0), Step(6.0, 0.0)]
    assert "I13" not in scenario.broken()
