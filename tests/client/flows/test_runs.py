"""Flows from start to end: hand-over, conditions, failures, growth, and actions of people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.grounds import url_of

from tidemill import App, Context, ManualClock, NoRetry, each
from tidemill.errors import (
    FlowFailed,
    FlowNotFound,
    IllegalTransition,
    JobCancelled,
    PermanentError,
    UsageError,
)


class World:
    """An app with tasks for flows, and the calls that they made."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.app = App(url, clock=self.clock, migrate=True)
        self.ran: list[str] = []
        self.failing: set[str] = set()
        world = self

        @self.app.task(retry=NoRetry())
        def work(name: str, value: Any = None) -> Any:
            world.ran.append(name)
            if name in world.failing:
                raise PermanentError(f"{name} is broken")
            return value

        @self.app.task
        def add(left: int, right: int) -> int:
            return left + right

        @self.app.task
        def total(parts: list[Any]) -> int:
            return sum(part or 0 for part in parts)

        @self.app.task
        def note(value: str | None = None) -> str | None:
            world.ran.append(f"note {value}")
            return value

        @self.app.task
        def double(number: int) -> int:
            world.ran.append(f"double {number}")
            if f"double {number}" in world.failing:
                raise PermanentError("cannot double")
            return 2 * number

        @self.app.task
        def grow(ctx: Context, count: int) -> int:
            world.ran.append("grow")
            for number in range(count):
                ctx.flow.add(double, number=number).before("last")
            if "grow" in world.failing:
                raise PermanentError("no growth")
            return count

        @self.app.task
        def pages(ctx: Context) -> list[Any]:
            return list(ctx.results("double"))

        self.work, self.add, self.total, self.note = work, add, total, note
        self.double, self.grow, self.pages = double, grow, pages

    def drain(self) -> None:
        self.app.testing().drain()

    def states(self, run: Any) -> dict[str, str]:
        return {node.name: node.status for node in run.nodes() if node.position is None}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(url_of(request.param, tmp_path, request))
    yield made
    made.app.close()


def test_results_are_handed_over_and_the_flow_returns_one(world: World) -> None:
    flow = world.app.flow("sum")
    first, second = flow.add(world.add, left=1, right=2), flow.add(world.add, left=3, right=4)
    last = flow.add(world.add, left=first.result, right=second.result)
    flow.returns(last.result)
    run = flow.start()
    assert str(run.status) == "running"
    world.drain()
    assert run.result(timeout=1) == 10
    assert str(run.status) == "completed"
    assert run.progress == 1.0


def test_parts_of_a_result_are_handed_over(world: World) -> None:
    flow = world.app.flow("parts")
    first = flow.add(world.work, name="a", value={"rows": [{"n": 7}], "$ref": ["x"]})
    flow.add(world.double, number=first.result["rows"][0]["n"])
    flow.add(world.work, name="b", value=[first.result]).named("whole")
    run = flow.start()
    world.drain()
    assert run.node("double").job.result() == 14
    assert run.node("whole").job.result() == [{"rows": [{"n": 7}], "$ref": ["x"]}]


def test_a_result_that_does_not_fit_fails_the_node_and_names_the_producer(world: World) -> None:
    flow = world.app.flow("misfit")
    first = flow.add(world.work, name="a", value="text").named("source")
    flow.add(world.double, number=first.result)
    run = flow.start()
    world.drain()
    with pytest.raises(FlowFailed, match="the result of source does not fit"):
        run.result(timeout=1)


def test_a_missing_part_of_a_result_fails_the_node(world: World) -> None:
    flow = world.app.flow("missing")
    first = flow.add(world.work, name="a", value={}).named("source")
    flow.add(world.double, number=first.result["n"])
    run = flow.start()
    world.drain()
    with pytest.raises(FlowFailed, match=r"source.result\['n'\]"):
        run.result(timeout=1)


def test_a_false_condition_skips_the_node_and_what_needs_it(world: World) -> None:
    flow = world.app.flow("when")
    first = flow.add(world.add, left=1, right=1)
    quiet = flow.add(world.work, name="quiet").when(first.result > 5).named("quiet")
    flow.add(world.work, name="after").after(quiet).named("after")
    flow.add(world.work, name="loud").when((first.result == 2) & ~(first.result > 5)).named("loud")
    run = flow.start()
    world.drain()
    assert world.states(run) == {
        "add": "completed",
        "quiet": "skipped",
        "after": "skipped",
        "loud": "completed",
    }
    assert run.node("quiet").job.row.reason == "skipped: add.result > 5 is false"
    assert run.node("after").job.row.reason == "skipped: needs quiet, which was skipped"
    assert str(run.status) == "completed"


def test_a_failure_skips_its_dependants_and_other_branches_continue(world: World) -> None:
    world.failing.add("a")
    flow = world.app.flow("skip")
    first = flow.add(world.work, name="a").named("a")
    second = flow.add(world.work, name="b").after(first).named("b")
    flow.add(world.work, name="c").after(second).named("c")
    flow.add(world.work, name="d").named("d")
    flow.add(world.work, name="undo").after(first, on="failure").named("undo")
    flow.add(world.work, name="always").after(first, on="end").named("always")
    run = flow.start()
    world.drain()
    assert world.states(run) == {
        "a": "failed", "b": "skipped", "c": "skipped", "d": "completed", "undo": "completed", "always": "completed",
    }  # fmt: skip
    assert run.node("b").job.row.reason == "skipped: needs a, which failed"
    assert run.node("c").job.row.reason == "skipped: needs b, which was skipped"
    with pytest.raises(FlowFailed, match=r"node a failed: tidemill\.errors\.PermanentError: a is broken"):
        run.result(timeout=1)


def test_a_map_over_a_result_may_fail(world: World) -> None:
    world.failing = {"double 2"}
    flow = world.app.flow("numbers")
    mapped = flow.map(
        world.double.using(retry=None), number=each(flow.add(world.work, name="list", value=[1, 2, 3]).result)
    ).may_fail()
    flow.returns(flow.add(world.total, parts=mapped.results).result)
    run = flow.start()
    world.drain()
    assert run.result(timeout=0) == 8


def test_a_node_that_may_fail_does_not_fail_the_flow(world: World) -> None:
    world.failing.add("a")
    flow = world.app.flow("fine")
    first = flow.add(world.work, name="a").may_fail()
    flow.add(world.note, value=first.result)
    run = flow.start()
    world.drain()
    assert str(run.status) == "completed"
    assert world.ran[-1] == "note None"


def test_s7_any_runs_once_when_two_needs_end(world: World) -> None:
    flow = world.app.flow("any")
    needs = [flow.add(world.work, name=f"n{number}") for number in range(3)]
    flow.add(world.work, name="first").after(*needs).needs("any")
    run = flow.start()
    world.drain()
    assert world.ran.count("first") == 1
    assert str(run.status) == "completed"


def test_s8_failure_with_finally_and_on_failure_both(world: World) -> None:
    world.failing.add("a")
    flow = world.app.flow("ends")
    flow.add(world.work, name="a")
    flow.finally_(world.work, name="cleanup")
    flow.on_failure(world.work, name="page")
    run = flow.start()
    world.drain()
    assert world.ran == ["a", "page", "cleanup"]
    assert str(run.status) == "failed"


def test_fail_fast_lets_no_further_node_begin(world: World) -> None:
    world.failing.add("a")
    flow = world.app.flow("fast", on_failure="stop")
    first = flow.add(world.work.using(priority=50), name="a")
    second = flow.add(world.work.using(delay="1h"), name="b").named("b")
    flow.add(world.work, name="c").after(second).named("c")
    flow.finally_(world.work, name="cleanup")
    run = flow.start()
    world.drain()
    assert world.ran == ["a", "cleanup"]
    assert world.states(run)["b"] == world.states(run)["c"] == "skipped"
    assert str(run.status) == "failed"
    assert first.name == "work"


def test_a_flow_that_holds_waits_for_a_person(world: World) -> None:
    world.failing.add("a")
    flow = world.app.flow("hold", on_failure="hold")
    first = flow.add(world.work, name="a").named("a")
    flow.add(world.work, name="b").after(first).named("b")
    run = flow.start()
    world.drain()
    assert str(run.status) == "running"
    assert world.states(run) == {"a": "failed", "b": "waiting"}
    world.failing.clear()
    run.retry()
    world.drain()
    assert str(run.status) == "completed"


@pytest.mark.parametrize("items", [[], [5], list(range(300))])
def test_s12_a_map_over_a_result_of_any_length(world: World, items: list[int]) -> None:
    flow = world.app.flow("map")
    rows = flow.add(world.work, name="rows", value=items)
    mapped = flow.map(world.double, number=each(rows.result))
    total = flow.add(world.total, parts=mapped.results)
    flow.returns(total.result)
    run = flow.start()
    world.drain()
    assert run.result(timeout=1) == 2 * sum(items)


def test_s12_a_map_over_something_that_is_no_list_fails(world: World) -> None:
    flow = world.app.flow("map")
    rows = flow.add(world.work, name="rows", value={"a": 1})
    mapped = flow.map(world.double, number=each(rows.result))
    flow.add(world.total, parts=mapped.results)
    run = flow.start()
    world.drain()
    with pytest.raises(FlowFailed, match="needs a list, and the node before returned dict"):
        run.result(timeout=1)
    assert world.states(run)["total"] == "skipped"


def test_a_map_whose_list_never_comes_is_skipped_with_what_needs_it(world: World) -> None:
    world.failing.add("rows")
    flow = world.app.flow("map")
    rows = flow.add(world.work, name="rows")
    mapped = flow.map(world.double, number=each(rows.result))
    flow.add(world.total, parts=mapped.results)
    known = flow.map(world.double, number=each([1, 2])).named("known").after(rows)
    flow.add(world.total, parts=known.results).named("total-known")
    run = flow.start()
    world.drain()
    assert world.states(run)["total"] == "skipped"
    assert world.states(run)["total-known"] == "skipped"
    assert str(run.status) == "failed"


def test_results_of_a_map_are_in_the_order_of_its_items_and_failed_ones_are_none(world: World) -> None:
    world.failing.add("double 2")
    flow = world.app.flow("map")
    mapped = flow.map(world.double, number=each([1, 2, 3])).may_fail()
    flow.add(world.pages).after(mapped, on="end")
    flow.returns(mapped.results)
    run = flow.start()
    world.drain()
    assert run.result(timeout=1) == [2, None, 6]
    assert run.node("pages").job.result() == [2, None, 6]


def test_s13_a_sub_flow_in_a_sub_flow_whose_last_member_fails(world: World) -> None:
    world.failing.add("double 3")
    inner = world.app.flow("inner")
    inner.map(world.double, number=each([1, 2, 3]))
    inner.finally_(world.work, name="inner cleanup")
    middle = world.app.flow("middle")
    middle.include(inner)
    outer = world.app.flow("outer")
    part = outer.include(middle)
    outer.add(world.work, name="after").after(part).named("after")
    run = outer.start()
    world.drain()
    assert "inner cleanup" in world.ran
    assert world.states(run)["after"] == "skipped"
    assert str(run.status) == "failed"


def test_an_included_flow_that_cannot_start_is_skipped_with_what_needs_it(world: World) -> None:
    world.failing.add("a")
    inner = world.app.flow("inner")
    inner.add(world.work, name="inside")
    flow = world.app.flow("outer")
    first = flow.add(world.work, name="a")
    part = flow.include(inner).after(first)
    flow.add(world.work, name="after").after(part).named("after")
    run = flow.start()
    world.drain()
    assert world.ran == ["a"]
    assert world.states(run) == {"work": "failed", "inner/work": "skipped", "after": "skipped"}


def test_an_included_flow_hands_its_result_over(world: World) -> None:
    inner = world.app.flow("inner")
    inner.returns(inner.add(world.add, left=1, right=2).result)
    flow = world.app.flow("outer")
    part = flow.include(inner, prefix="de")
    flow.returns(flow.add(world.double, number=part.result).result)
    run = flow.start()
    world.drain()
    assert run.result(timeout=1) == 6


def test_a_job_grows_its_flow_and_waiting_nodes_wait_for_the_growth(world: World) -> None:
    flow = world.app.flow("grow")
    growing = flow.add(world.grow, count=3)
    flow.add(world.work, name="last").after(growing).named("last")
    run = flow.start()
    world.drain()
    assert world.ran == ["grow", "double 0", "double 1", "double 2", "last"]
    assert str(run.status) == "completed"


def test_growth_of_a_failed_attempt_does_not_exist(world: World) -> None:
    world.failing.add("grow")
    flow = world.app.flow("grow")
    growing = flow.add(world.grow, count=3)
    flow.add(world.work, name="last").after(growing).named("last")
    run = flow.start()
    world.drain()
    assert world.ran == ["grow"]
    assert len(run.nodes()) == 2


def test_growth_names_the_nodes_that_wait_for_the_job(world: World) -> None:
    flow = world.app.flow("grow")
    flow.add(world.grow, count=1)
    run = flow.start()
    world.drain()
    assert "no node 'last' waits for this job" in (run.node("grow").job.row.reason or "")


def test_a_job_outside_of_a_flow_cannot_grow_one(world: World) -> None:
    job = world.grow.enqueue(count=1)
    world.drain()
    assert "belongs to no flow and no batch" in (job.refresh().row.reason or "")


def test_a_second_start_with_the_same_key_returns_the_first_flow(world: World) -> None:
    def start() -> Any:
        flow = world.app.flow("import", key="2026-11-16")
        flow.add(world.work, name="a")
        return flow.start()

    first, second = start(), start()
    assert first.id == second.id
    world.drain()
    assert world.ran == ["a"]
    assert str(start().status) == "completed"


def test_a_cancelled_flow_still_runs_what_must_run_at_the_end(world: World) -> None:
    flow = world.app.flow("cancel")
    first = flow.add(world.work, name="a")
    flow.add(world.work, name="b").after(first)
    flow.finally_(world.work, name="cleanup")
    run = flow.start()
    run.cancel("not today")
    world.drain()
    assert world.ran == ["cleanup"]
    assert str(run.status) == "cancelled"
    with pytest.raises(JobCancelled, match="not today"):
        run.result(timeout=1)
    with pytest.raises(IllegalTransition, match="it is cancelled"):
        run.cancel()


def test_a_hard_cancel_also_drops_what_would_run_at_the_end(world: World) -> None:
    flow = world.app.flow("cancel")
    flow.add(world.work, name="a")
    flow.finally_(world.work, name="cleanup")
    run = flow.start()
    run.cancel(hard=True)
    world.drain()
    assert world.ran == []
    assert str(run.status) == "cancelled"


def test_a_flow_that_runs_past_its_timeout_is_cancelled(world: World) -> None:
    flow = world.app.flow("slow", timeout="1h")
    flow.add(world.work.using(delay="2h"), name="a")
    run = flow.start()
    world.drain()
    world.clock.advance(timedelta(hours=1, seconds=1))
    world.drain()
    assert str(run.status) == "cancelled"
    assert run.row.cancel_reason == "expired"


def test_s11_a_retry_runs_the_failed_node_and_all_that_was_skipped(world: World) -> None:
    world.failing.add("a")
    flow = world.app.flow("again")
    first = flow.add(world.work, name="a").named("a")
    nodes = [
        flow.add(world.work, name=f"n{number}").after(first).named(f"n{number}") for number in range(100)
    ]
    flow.add(world.work, name="end").after(*nodes).named("end")
    done = flow.add(world.work, name="done").named("done")
    run = flow.start()
    world.drain()
    assert str(run.status) == "failed"
    world.failing.clear()
    run.retry()
    assert str(run.status) == "running"
    world.drain()
    assert str(run.status) == "completed"
    assert set(world.states(run).values()) == {"completed"}
    assert world.ran.count("done") == 1
    assert run.row.round == 2
    assert done.name == "done"


def test_a_retry_from_a_node_runs_what_follows_again(world: World) -> None:
    flow = world.app.flow("again")
    first = flow.add(world.work, name="a").named("a")
    second = flow.add(world.work, name="b").after(first).named("b")
    flow.add(world.work, name="c").after(second).named("c")
    run = flow.start()
    world.drain()
    with pytest.raises(IllegalTransition, match="no failed node"):
        run.retry()
    with pytest.raises(UsageError, match="has no node 'x'"):
        run.retry("x")
    run.retry("b", downstream=True)
    world.drain()
    assert world.ran == ["a", "b", "c", "b", "c"]
    assert str(run.status) == "completed"


def test_a_skipped_node_counts_as_succeeded_with_the_given_result(world: World) -> None:
    world.failing.add("a")
    flow = world.app.flow("skip")
    first = flow.add(world.work, name="a").named("a")
    flow.add(world.double, number=first.result)
    run = flow.start()
    world.drain()
    with pytest.raises(UsageError, match="'double' takes the result of 'a'"):
        run.skip("a")
    run.skip("a", result=21)
    world.drain()
    assert run.node("double").job.result() == 42
    assert str(run.status) == "completed"


def test_flows_are_found_by_name_key_and_status(world: World) -> None:
    for key in ("x", "y"):
        flow = world.app.flow("import", key=key)
        flow.add(world.work, name=key)
        flow.start()
    world.drain()
    assert [run.key for run in world.app.flows.list(name="import")] == ["y", "x"]
    assert [run.key for run in world.app.flows.list(key="x")] == ["x"]
    assert world.app.flows.list(status="running") == []
    first = world.app.flows.list(limit=1)
    assert [run.key for run in world.app.flows.list(after=first[0].id)] == ["x"]
    assert world.app.flows.get(first[0].id).key == "y"
    assert len(list(world.app.flows)) == 2
    with pytest.raises(FlowNotFound):
        world.app.flows.get("nothing")


def test_another_tenants_flow_is_not_found(world: World) -> None:
    flow = world.app.flow("import")
    flow.add(world.work, name="a")
    run = flow.start()
    with world.app.tenant("other"):
        assert world.app.flows.list() == []
        with pytest.raises(FlowNotFound):
            world.app.flows.get(run.id)


def test_the_graph_shows_states_and_the_critical_path(world: World) -> None:
    world.failing.add("a")
    flow = world.app.flow("picture")
    first = flow.add(world.work, name="a").named("a")
    flow.map(world.double, number=each([1, 2, 3])).named("m").after(first, on="end")
    flow.add(world.work, name="b").after(first).named("b")
    run = flow.start()
    world.drain()
    graph = run.graph()
    assert {node.name: (node.status, node.total) for node in graph.nodes} == {
        "a": ("failed", 1), "m": ("completed", 3), "b": ("skipped", 1),
    }  # fmt: skip
    assert sorted(edge.broken for edge in graph.edges) == [False, True]
    assert "m: 3 of 3" in graph.to_text()
    assert graph.to_mermaid().startswith("flowchart LR")
    assert graph.to_dot().startswith('digraph "picture"')
    assert graph.critical_path().ids


def test_every_action_on_a_flow_is_in_the_audit(world: World) -> None:
    world.failing.add("a")
    flow = world.app.flow("audit")
    flow.add(world.work, name="a")
    run = flow.start()
    world.drain()
    run.retry()
    run.cancel("enough")
    actions = [record.entry.action for record in world.app.audit.list()]
    assert {"flow.started", "flow.retried", "flow.cancelled"} <= set(actions)


def test_a_cancel_reads_each_job_of_a_large_flow_only_a_few_times(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, rows = world.app.store, []
    flow = world.app.flow("large")
    first = flow.add(world.work.using(delay="1h"), name="first")
    flow.map(world.work, name=each([str(number) for number in range(1_700)])).after(first)
    run = flow.start()
    read = store.flow_jobs

    def counting(*args: Any, **rest: Any) -> Any:
        page = read(*args, **rest)
        rows.extend(page)
        return page

    monkeypatch.setattr(store, "flow_jobs", counting)
    run.cancel("no longer wanted")
    world.drain()
    assert run.refresh().row.state == "cancelled"
    assert 1_701 <= len(rows) <= 2 * 1_701
