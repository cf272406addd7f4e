"""What looks for broken promises after a chaos run finds each of them, in evidence made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest
from tests.faults.crowd import Cancelled
from tests.faults.invariants_more import INVARIANTS, judge
from tests.faults.ledger import END, Line
from tests.faults.sampler import Ended, Reign
from tests.faults.stage import Hurt
from tests.faults.story import NOON, OTHER, PID, SECOND, WORKER, Story, span

from tidemill.domain.job import Details
from tidemill.domain.states import ExecutionState, JobState

_E, _S = ExecutionState, JobState


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_quiet_day_breaks_nothing(story: Story) -> None:
    story.job()
    story.job("doomed", state=_S.FAILED, result=None)
    story.evidence.executions[list(story.evidence.jobs)[-1]].clear()
    story.execution(list(story.evidence.jobs)[-1], 1, state=_E.FAILED)
    story.schedule()
    story.crashed_once()
    story.evidence.hurt.killed[PID] = 0.5
    assert story.broken() == set()


def test_every_invariant_says_how_much_it_looked_at(story: Story) -> None:
    story.schedule()
    findings = judge(replace(story.evidence))
    assert list(findings) == list(INVARIANTS)
    assert findings["I1"].looked_at == findings["I2"].looked_at == 10
    assert findings["I12"].looked_at == 20


# One crime each ----------------------------------------------------------------------------------------------------------


def lose(story: Story) -> None:
    story.evidence.accepted.append(uuid4())


def keep_what_was_rolled_back(story: Story) -> None:
    story.evidence.unwanted.append(story.job())


def leave_open(story: Story) -> None:
    story.change(story.job(), state=_S.PENDING)


def succeed_twice(story: Story) -> None:
    id = story.crashed_once()
    story.evidence.executions[id][0] = replace(story.evidence.executions[id][0], state=_E.SUCCEEDED)


def cancel_unasked(story: Story) -> None:
    story.job(state=_S.CANCELLED, token=0, attempt=0)


def be_in_two_places(story: Story) -> None:
    story.evidence.seen.doubled.append("job 1 was in 2 places at once")


def come_back_from_the_end(story: Story) -> None:
    story.evidence.seen.ended[story.job()] = Ended("cancelled", 1)


def vanish_after_the_end(story: Story) -> None:
    story.evidence.seen.ended[uuid4()] = Ended("completed", 1)


def skip_a_token(story: Story) -> None:
    id = story.job()
    story.change(id, token=3)


def be_held_for_ever(story: Story) -> None:
    id = story.job()
    story.evidence.executions[id][0] = replace(story.evidence.executions[id][0], finished_at=None)


def be_claimed_while_held(story: Story) -> None:
    id = story.crashed_once()
    story.evidence.executions[id][0] = replace(
        story.evidence.executions[id][0], finished_at=NOON + 60 * SECOND
    )


def take_a_zombie_s_result(story: Story) -> None:
    story.change(story.crashed_once(), result="1")


def let_another_end_it(story: Story) -> None:
    id = story.job()
    story.evidence.executions[id][0] = replace(story.evidence.executions[id][0], worker=OTHER)


def try_for_ever(story: Story) -> None:
    story.change(story.job(), attempt=5)


def crash_for_ever(story: Story) -> None:
    story.change(story.job(), crashes=4)


def crash_for_free(story: Story) -> None:
    id = story.crashed_once()
    story.evidence.executions[id][1] = replace(story.evidence.executions[id][1], attempt=1)
    story.change(id, attempt=1)


def lose_an_attempt(story: Story) -> None:
    story.change(story.job(), attempt=0)


def crash_by_itself(story: Story) -> None:
    story.crashed_once(at=500.0)


def begin_twice(story: Story) -> None:
    story.run(story.job(), 1, 0.2, 0.4)


def run_unclaimed(story: Story) -> None:
    story.run(story.job(), 7, 0.6, 0.7)


def fail_by_itself(story: Story) -> None:
    id = story.job(state=_S.FAILED, result=None)
    story.evidence.executions[id][0] = replace(story.evidence.executions[id][0], state=_E.FAILED)


def go_on_beside_the_next(story: Story) -> None:
    story.run(story.crashed_once(), 1, 0.1, 1.3, well=False)


def go_on_long_after_waking(story: Story) -> None:
    story.evidence.hurt.halted.append(span(0.2, 2.0, PID))
    story.run(story.crashed_once(), 1, 0.1, 19.0, well=False)


def pass_a_limit(story: Story) -> None:
    for _ in range(2):
        story.job("one", args=json.dumps({"key": 1, "seconds": 0.3}))


def be_seen_over_a_limit(story: Story) -> None:
    story.evidence.seen.over_limit.append("6 jobs of five/1 were held at once")


def fire_twice(story: Story) -> None:
    story.schedule()
    fire = story.evidence.timetables[0].fires[3]
    story.job("tick", at=4, details=Details(schedule_id=fire.schedule_id, fire_at=fire.fire_at))


def have_two_effects(story: Story) -> None:
    table = story.schedule()
    table.effects.append(table.effects[0]._replace(job=story.job()))


def repeat_an_effect(story: Story) -> None:
    table = story.schedule()
    table.effects.append(table.effects[0])


def leave_a_fire_out(story: Story) -> None:
    table = story.schedule()
    del table.fires[4]


def have_no_effect(story: Story) -> None:
    story.schedule().effects.pop()


def start_early(story: Story) -> None:
    story.job("later", args=json.dumps({"delay": 5.0}))


def fire_early(story: Story) -> None:
    story.job("tick", details=Details(schedule_id=uuid4(), fire_at=NOON + SECOND))


def retry_early(story: Story) -> None:
    story.change(story.job(), run_at=NOON + SECOND)


def lead_together(story: Story) -> None:
    story.evidence.seen.reigns += [Reign("duties", 3, WORKER), Reign("duties", 3, OTHER)]


def lead_backwards(story: Story) -> None:
    story.evidence.seen.reigns += [Reign("duties", 3, WORKER), Reign("duties", 2, OTHER)]


def share_a_key(story: Story) -> None:
    for at in (0.0, 0.2):
        story.job("single", at=at, args=json.dumps({"key": 1, "seconds": 0.1}))


def be_seen_with_a_shared_key(story: Story) -> None:
    story.evidence.seen.shared_keys.append("key 1 had 2 living jobs at once")


def break_the_chain(story: Story) -> None:
    story.evidence.audit.sound = False


def act_unaudited(story: Story) -> None:
    story.evidence.acts["retry"] = 1


def audit_what_was_not_done(story: Story) -> None:
    story.evidence.audit.own["worker.drained"] = 1


def begin_after_a_cancel(story: Story) -> None:
    id = story.job()
    story.evidence.meddled.add(id)
    story.evidence.cancelled[id] = Cancelled(0.05, True, 0)


def begin_again_after_being_asked_to_stop(story: Story) -> None:
    id = story.crashed_once()
    story.evidence.cancelled[id] = Cancelled(0.2, False, 1)


CRIMES: list[tuple[Callable[[Story], None], str]] = [
    (lose, "I1"),
    (keep_what_was_rolled_back, "I1"),
    (leave_open, "I2"),
    (succeed_twice, "I2"),
    (cancel_unasked, "I2"),
    (be_in_two_places, "I2"),
    (come_back_from_the_end, "I3"),
    (vanish_after_the_end, "I3"),
    (succeed_twice, "I3"),
    (skip_a_token, "I4"),
    (be_held_for_ever, "I5"),
    (be_in_two_places, "I5"),
    (be_claimed_while_held, "I5"),
    (take_a_zombie_s_result, "I6"),
    (let_another_end_it, "I6"),
    (try_for_ever, "I7"),
    (crash_for_ever, "I7"),
    (crash_for_free, "I8"),
    (lose_an_attempt, "I8"),
    (crash_by_itself, "I9"),
    (begin_twice, "I9"),
    (run_unclaimed, "I9"),
    (fail_by_itself, "I9"),
    (go_on_beside_the_next, "I10"),
    (go_on_long_after_waking, "I10"),
    (pass_a_limit, "I11"),
    (be_seen_over_a_limit, "I11"),
    (fire_twice, "I12"),
    (have_two_effects, "I12"),
    (repeat_an_effect, "I12"),
    (leave_a_fire_out, "I13"),
    (have_no_effect, "I13"),
    (start_early, "I14"),
    (fire_early, "I14"),
    (retry_early, "I14"),
    (lead_together, "I15"),
    (lead_backwards, "I15"),
    (share_a_key, "I16"),
    (be_seen_with_a_shared_key, "I16"),
    (break_the_chain, "I19"),
    (act_unaudited, "I19"),
    (audit_what_was_not_done, "I19"),
    (begin_after_a_cancel, "I20"),
    (begin_again_after_being_asked_to_stop, "I20"),
]


@pytest.mark.parametrize(("crime", "law"), CRIMES)
def test_a_broken_promise_is_noticed(story: Story, crime: Callable[[Story], None], law: str) -> None:
    story.job()
    crime(story)
    assert law in story.broken()


def test_there_is_a_crime_against_every_invariant() -> None:
    assert {law for _, law in CRIMES} == set(INVARIANTS)


# What explains ------------------------------------------------------------------------------------------------------------


def test_a_crash_is_explained_by_a_kill_a_halt_or_an_outage(story: Story) -> None:
    story.crashed_once()
    assert "I9" in story.broken()
    explanations: list[Callable[[Hurt], object]] = [
        lambda hurt: hurt.killed.update({PID: 0.3}),
        lambda hurt: hurt.halted.append(span(0.2, 1.0, PID)),
        lambda hurt: hurt.outages.append(span(0.2, 1.0)),
    ]
    for explain in explanations:
        again = Story()
        again.crashed_once()
        explain(again.evidence.hurt)
        assert again.broken() == set()


def test_a_zombie_may_go_on_for_a_moment_after_it_wakes(story: Story) -> None:
    story.evidence.hurt.halted.append(span(0.2, 20.0, PID))
    id = story.crashed_once()
    story.evidence.lines.append(Line(END, id, 1, 1, PID, 1, 20.5))
    assert story.broken() == set()


def test_a_zombie_s_second_life_does_not_count_against_a_limit(story: Story) -> None:
    args = json.dumps({"key": 1, "seconds": 0.3})
    story.job("one", at=3, args=args)
    zombie = story.job("one", args=args)
    story.evidence.lines.append(Line(END, zombie, 1, 1, PID, 1, 3.2))
    story.evidence.lines = [line for line in story.evidence.lines if line.at != 0.4]
    assert "I11" in story.broken()
    story.evidence.hurt.halted.append(span(0.2, 3.1, PID))
    assert "I11" not in story.broken()


def test_who_begins_after_the_next_execution_did_holds_nothing_of_a_limit(story: Story) -> None:
    """A worker that claimed the job, was halted before it began, and wakes when another has taken over."""
    args = json.dumps({"key": 1, "seconds": 0.3})
    id = story.crashed_once()
    story.change(id, task="one", args=args)
    story.evidence.lines = [line for line in story.evidence.lines if (line.job, line.token) != (id, 1)]
    story.run(id, 1, 1.2, 1.3, well=False)
    assert "I11" not in story.broken()
    story.job("one", at=1.1, args=args)
    assert "I11" in story.broken()


def test_an_attempt_that_was_given_back_is_not_counted_and_a_retry_begins_anew(story: Story) -> None:
    id = story.job(token=4, attempt=1, crashes=0, result="4")
    story.evidence.executions[id].clear()
    story.evidence.lines = [line for line in story.evidence.lines if line.job != id]
    for number, state, attempt in (
        (1, _E.RELEASED, 1),
        (2, _E.FAILED, 1),
        (3, _E.FAILED, 2),
        (4, _E.SUCCEEDED, 1),
    ):
        story.execution(id, number, state=state, attempt=attempt, at=number)
        story.run(id, number, number + 0.1, number + 0.4)
    story.change(id, task="flaky")
    assert story.broken() == {"I8"}
    story.evidence.audit.retried[id] = 1
    story.evidence.audit.own["job.retried"] = story.evidence.acts["retry"] = 1
    assert story.broken() == set()


def test_a_job_that_was_cancelled_while_it_waited_to_be_tried_again_did_not_start_early(story: Story) -> None:
    id = story.job("flaky", state=_S.CANCELLED, result=None)
    story.evidence.executions[id][0] = replace(story.evidence.executions[id][0], state=_E.FAILED)
    story.evidence.meddled.add(id)
    story.change(id, run_at=NOON + SECOND)
    assert story.broken() == set()


def test_what_was_retried_may_leave_its_end(story: Story) -> None:
    id = story.job()
    story.evidence.seen.ended[id] = Ended("cancelled", 0)
    story.evidence.audit.retried[id] = 1
    assert "I3" not in story.broken()
