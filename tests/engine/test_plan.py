"""Tests of the claim planner: how much it claims, and for which executors."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.engine.exchange.planner import ClaimPlan, ExecutorLoad, Planner


def planner(batch: int = 100, buffer: float = 0.1, **slots: int) -> Planner:
    return Planner(
        {name: ExecutorLoad(name, count, (f"{name}-task",)) for name, count in slots.items()}, buffer, batch
    )


def planned(planner: Planner) -> tuple[tuple[str, ...], int, bool]:
    """The next claim, without its free slots."""
    plan = planner.plan()
    assert plan is not None
    return plan[:3]


def claim(planner: Planner, found: int | None) -> ClaimPlan:
    """Run one claim that returns this many jobs, all for the first kind."""
    plan = planner.plan()
    assert plan is not None
    planner.begin(plan)
    if found is not None:
        planner.kinds[plan.kinds[0]].load += found
    planner.end(plan, found)
    return plan


# ---------------------------------------------------------------------------------------------------- examples


def test_while_idle_all_kinds_are_requested_in_one_claim() -> None:
    assert planned(planner(loop=100, thread=10)) == (("loop", "thread"), 10, True)


def test_no_claim_is_planned_while_the_only_claim_is_in_flight() -> None:
    harness = planner(loop=100)
    plan = harness.plan()
    assert plan is not None
    harness.begin(plan)
    assert harness.plan() is None
    harness.end(plan, 0)
    assert harness.plan() is None  # dry, until a wake-up arrives
    harness.wet()
    assert harness.plan() == plan


def test_no_job_is_claimed_ahead_while_rate_limited_jobs_are_pending() -> None:
    harness = planner(loop=10)
    harness.kinds["loop"].ran(0.05, 1)
    harness.kinds["loop"].load = 10
    assert planned(harness) == (("loop",), 20, False)
    harness.rated = True
    assert harness.plan() is None
    harness.kinds["loop"].load = 9
    assert planned(harness) == (("loop",), 1, True)


def test_short_jobs_are_claimed_ahead_even_while_rate_limited_jobs_are_pending() -> None:
    harness = planner(loop=10)
    harness.kinds["loop"].ran(0.005, 1)
    harness.kinds["loop"].load = 10
    harness.rated = True
    assert planned(harness) == (("loop",), 100, False)


def test_several_claims_run_once_one_came_back_full() -> None:
    harness = planner(batch=10, loop=100)
    claim(harness, 10)
    for _ in range(9):
        plan = harness.plan()
        assert plan is not None
        assert plan[:3] == (("loop",), 10, True)
        harness.begin(plan)
    assert harness.plan() is None  # all slots are reserved


def test_a_kind_whose_slots_are_full_does_not_block_another() -> None:
    harness = planner(loop=3, thread=3)
    claim(harness, 3)
    assert planned(harness) == (("thread",), 3, True)


def test_after_a_full_claim_the_kinds_take_turns() -> None:
    harness = planner(batch=5, loop=100, thread=100)
    claim(harness, 5)
    seen = []
    for _ in range(4):
        plan = harness.plan()
        assert plan is not None
        harness.begin(plan)
        harness.end(plan, 5)
        seen.append(plan.kinds)
    assert sorted(seen) == [("loop",), ("loop",), ("thread",), ("thread",)]
    assert seen[0] != seen[1]


def test_kinds_are_requested_together_again_when_all_are_dry() -> None:
    harness = planner(batch=5, loop=100, thread=100)
    claim(harness, 5)
    for _ in range(2):
        claim(harness, 0)
    assert harness.plan() is None
    harness.wet()
    plan = harness.plan()
    assert plan is not None
    assert plan.kinds == ("loop", "thread")


def test_a_claim_that_failed_is_repeated() -> None:
    harness = planner(loop=10)
    first = claim(harness, None)
    assert harness.plan() == first


def test_a_kind_without_tasks_or_slots_is_never_requested() -> None:
    harness = planner(loop=0, thread=5)
    harness.kinds["thread"].tasks = ()
    assert harness.plan() is None


def test_short_jobs_are_claimed_ahead_and_stay_in_the_buffer() -> None:
    harness = planner(batch=500, loop=10)
    harness.kinds["loop"].ran(0.01 * 20, 20)
    assert planned(harness) == (("loop",), 110, False)
    harness.kinds["loop"].load = 10
    assert planned(harness) == (("loop",), 100, False)


def test_long_jobs_are_claimed_one_per_slot() -> None:
    harness = planner(batch=500, loop=10)
    harness.kinds["loop"].ran(400.0, 20)
    assert planned(harness) == (("loop",), 10, True)


# -------------------------------------------------------------------------------------------------- properties


@dataclass
class World:
    """A planner and its claims in flight."""

    planner: Planner
    underway: list[ClaimPlan] = field(default_factory=list)

    def ahead(self, kind: ExecutorLoad) -> int:
        bare = ExecutorLoad(kind.name, kind.slots, kind.tasks, mean=kind.mean)
        return bare.room(self.planner.buffer, self.planner.batch) - kind.slots


moves = st.lists(
    st.tuples(
        st.sampled_from(["plan", "full", "some", "none", "fail", "finish", "ring"]),
        st.integers(0, 1000),
        st.floats(0, 2, allow_nan=False),
    ),
    max_size=80,
)


@settings(max_examples=300)
@given(
    loop=st.integers(0, 20),
    thread=st.integers(0, 20),
    batch=st.integers(1, 30),
    buffer=st.sampled_from([0.0, 0.1, 1.0]),
    story=moves,
)
def test_no_sequence_of_events_makes_it_claim_more_than_it_has_room_for(
    loop: int, thread: int, batch: int, buffer: float, story: list[tuple[str, int, float]]
) -> None:
    world = World(planner(batch, buffer, loop=loop, thread=thread))
    kinds = world.planner.kinds
    for what, number, seconds in story:
        match what:
            case "plan":
                _plan(world)
            case "finish":
                for kind in kinds.values():
                    count = min(number, kind.load)
                    kind.load -= count
                    kind.ran(seconds * count, count)
            case "ring":
                world.planner.wet()
            case _ if world.underway:
                _answer(world, what, number)
        for kind in kinds.values():
            assert kind.asked >= 0
            assert kind.load >= 0
            assert kind.free() >= 0
            assert kind.asked == sum(plan.limit for plan in world.underway if kind.name in plan.kinds)


def _plan(world: World) -> None:
    kinds = world.planner.kinds
    before = {name: kind.load + kind.asked for name, kind in kinds.items()}
    free = {name: kind.free() for name, kind in kinds.items()}
    plan = world.planner.plan()
    if plan is None:
        return
    assert 1 <= plan.limit <= world.planner.batch
    assert world.planner.hot or not world.underway
    for name in plan.kinds:
        assert before[name] + plan.limit <= kinds[name].slots + world.ahead(kinds[name])
        assert not kinds[name].dry
    assert plan.start == all(plan.limit <= free[name] for name in plan.kinds)
    world.planner.begin(plan)
    world.underway.append(plan)


def _answer(world: World, what: str, number: int) -> None:
    plan = world.underway.pop(number % len(world.underway))
    found = {"full": plan.limit, "some": number % plan.limit, "none": 0, "fail": None}[what]
    for at in range(found or 0):
        world.planner.kinds[plan.kinds[at % len(plan.kinds)]].load += 1
    world.planner.end(plan, found)


@given(
    slots=st.integers(1, 50),
    batch=st.integers(1, 100),
    backlog=st.lists(st.sampled_from(["loop", "thread"]), max_size=300),
)
def test_all_waiting_jobs_are_claimed_in_the_end_and_every_free_slot_is_used(
    slots: int, batch: int, backlog: list[str]
) -> None:
    """Claims return waiting jobs in order, as a store does. Jobs end once no more can be claimed."""
    harness = planner(batch, 0.0, loop=slots, thread=slots)
    waiting = list(backlog)
    for _ in range(10 * len(backlog) + 10):
        plan = harness.plan()
        if plan is None:
            for kind in harness.kinds.values():
                assert kind.load == kind.slots or kind.name not in waiting
                kind.load = 0
            if not waiting:
                return
            continue
        harness.begin(plan)
        found = [name for name in waiting if name in plan.kinds][: plan.limit]
        for name in found:
            waiting.remove(name)
            harness.kinds[name].load += 1
        harness.end(plan, len(found))
    raise AssertionError(f"{len(waiting)} jobs were never claimed")


@given(st.lists(st.tuples(st.floats(1e-6, 1e4), st.integers(0, 600)), max_size=50))
def test_the_mean_stays_within_the_measured_values(batches: list[tuple[float, int]]) -> None:
    kind = ExecutorLoad("loop", 10)
    for mean, count in batches:
        kind.ran(mean * count, count)
    counted = [mean for mean, count in batches if count]
    if not counted:
        assert kind.mean is None
    else:
        assert kind.mean is not None
        assert min(counted) * 0.999 <= kind.mean <= max(counted) * 1.001


# ------------------------------------------------------------------------------------------ rate limited jobs


def test_rate_limited_jobs_are_claimed_only_for_free_slots() -> None:
    harness = planner(batch=1000, loop=10)
    harness.kinds["loop"].ran(1.0, 10)
    plan = harness.plan()
    assert plan is not None
    assert (plan.limit, plan.free) == (20, 10)
    harness.kinds["loop"].load = 10
    plan = harness.plan()
    assert plan is not None
    assert (plan.limit, plan.free) == (10, 1)  # one of ten slots becomes free within ten milliseconds
    harness.kinds["loop"].ran(100.0, 100)
    harness.kinds["loop"].load = 12
    assert harness.plan() is None


def test_a_free_slot_is_kept_for_remaining_rate_limited_jobs() -> None:
    harness = planner(batch=1000, loop=10)
    harness.kinds["loop"].ran(1.0, 10)
    plan = claim(harness, 10)
    harness.hold_back(plan, held_back=True)
    assert harness.plan() is None  # no buffer is filled in the meantime
    harness.kinds["loop"].load = 8
    assert planned(harness) == (("loop",), 2, True)
    harness.hold_back(plan, held_back=False)
    assert harness.plan() is None  # dry, until a wake-up arrives
    harness.wet()
    assert planned(harness) == (("loop",), 12, False)
