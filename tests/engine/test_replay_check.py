"""Trial replays: what new code would do with the recorded steps of unfinished jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidemill import App, Context, ManualClock
from tidemill.clock import SystemClock
from tidemill.engine.lifespan import OwnLoopLifetime
from tidemill.engine.replay_check import Replayed, has_steps, replay
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.hooks import NO_HOOKS

effects: list[str] = []


def charge(order: int) -> str:
    effects.append("charge")
    return f"paid {order}"


def refund(order: int) -> str:
    effects.append("refund")
    return "refunded"


def ship(text: str) -> str:
    effects.append("ship")
    return text


Body = Callable[[Context, int], Any]


def begun(ctx: Context, order: int) -> str:
    """The deployed code: it has charged, and sleeps."""
    paid = ctx.step("charge", charge, order)
    ctx.sleep("cool-off", "1h")
    return ctx.step("ship", ship, paid)


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    store = MemoryStore(ManualClock())
    yield store
    store.close()


def checked(store: MemoryStore, body: Body, **options: Any) -> Replayed:
    """Begin a job with the deployed code, and replay it with this body."""
    clock = ManualClock()
    old = App(store, clock=clock)
    job = old.task(name="fulfil")(begun).enqueue(order=7)
    with old.testing() as testing:
        testing.drain()
    before = store.checkpoints(job.id, tenant="default")
    effects.clear()
    new = App(store, clock=clock)
    new.task(name="fulfil", **options)(body)
    (row,) = store.get([job.id], tenant="default")
    assert has_steps(store, row)
    life = OwnLoopLifetime(NO_HOOKS)
    try:
        life.enter()
        found = replay(store, new.registry.get("fulfil"), row, SystemClock(), life)
    finally:
        life.exit()
    assert store.checkpoints(job.id, tenant="default") == before
    assert store.get([job.id], tenant="default") == [row]
    return found


def test_the_same_code_replays_as_recorded(store: MemoryStore) -> None:
    found = checked(store, begun)
    assert not found.is_changed
    assert effects == []


def test_a_renamed_step_would_run_again(store: MemoryStore) -> None:
    def renamed(ctx: Context, order: int) -> str:
        paid = ctx.step("pay", charge, order)
        ctx.sleep("cool-off", "1h")
        return paid

    found = checked(store, renamed)
    assert found.is_changed
    assert found.runs == "pay"
    assert found.not_reached == ["charge", "cool-off"]
    assert found.words() == "recorded steps are not reached before pay runs: charge, cool-off"
    assert effects == []


def test_other_arguments_of_a_recorded_step_are_named(store: MemoryStore) -> None:
    def changed(ctx: Context, order: int) -> str:
        paid = ctx.step("charge", charge, order + 1)
        ctx.sleep("cool-off", "1h")
        return paid

    found = checked(store, changed)
    assert found.is_changed
    assert "step charge was recorded with another function or other arguments" in found.words()


def test_another_function_that_no_longer_waits_is_named(store: MemoryStore) -> None:
    async def removed(ctx: Context, order: int) -> str:
        return await ctx.astep("charge", charge, order)

    found = checked(store, removed)
    assert found.not_reached == ["cool-off"]
    assert found.words() == "recorded steps are not reached before the function ends: cool-off"


def test_a_step_of_another_kind_is_refused(store: MemoryStore) -> None:
    def mixed(ctx: Context, order: int) -> str:
        ctx.step("charge", charge, order)
        return ctx.step("cool-off", ship, "x")

    found = checked(store, mixed)
    assert found.refused is not None
    assert "was recorded as a sleep" in found.refused


def test_code_that_fails_between_steps_is_refused(store: MemoryStore) -> None:
    def failing(ctx: Context, order: int) -> str:
        ctx.step("charge", charge, order)
        raise KeyError("settings")

    assert checked(store, failing).refused == "KeyError: 'settings'"


def test_a_version_that_does_not_resume_older_jobs_is_refused(store: MemoryStore) -> None:
    clock = ManualClock()
    old = App(store, clock=clock)
    job = old.task(name="fulfil", version=1)(begun).enqueue(order=7)
    with old.testing() as testing:
        testing.drain()
    new = App(store, clock=clock)
    new.task(name="fulfil", version=3, resumes=2)(begun)
    life = OwnLoopLifetime(NO_HOOKS)
    (row,) = store.get([job.id], tenant="default")
    found = replay(store, new.registry.get("fulfil"), row, SystemClock(), life)
    life.exit()
    assert found.refused is not None
    assert "begun by version 1" in found.refused
