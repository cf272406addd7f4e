"""Signals to nodes of flows, and why a flow has not ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidemill import App, Context, ManualClock, NoRetry, each
from tidemill.errors import IllegalTransition, PermanentError, UsageError

app = App("memory://", clock=ManualClock())


@app.task
def approved(ctx: Context, name: str = "") -> str:
    return f"{name}{ctx.wait_for('approved')}"


@app.task(retry=NoRetry())
def work(name: str) -> str:
    if name == "bad":
        raise PermanentError("bad")
    return name


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    app.close()


def drain() -> None:
    app.testing().drain()


def test_a_signal_to_a_node_resumes_its_job_once() -> None:
    flow = app.flow("signals")
    node = flow.add(approved).named("gate")
    flow.returns(node.result)
    run = flow.start()
    drain()
    assert run.signal("gate", "approved", "yes", key="k") is True
    assert run.signal("gate", "approved", "no", key="k") is False
    drain()
    assert run.result(timeout=1) == "yes"
    with pytest.raises(IllegalTransition, match="has ended"):
        run.signal("gate", "approved")
    with pytest.raises(UsageError, match="has no node 'gates'; its nodes are gate"):
        run.signal("gates", "approved")


def test_one_job_of_a_map_is_signalled_by_its_place() -> None:
    flow = app.flow("signals")
    flow.returns(flow.map(approved, name=each(["a", "b"])).named("gates").results)
    run = flow.start()
    drain()
    with pytest.raises(UsageError, match=r"signal one of them as 'gates \[0\]'"):
        run.signal("gates", "approved")
    assert run.node("gates [1]").position == run.node("gates[1]").position == 1
    run.signal("gates [1]", "approved", 2)
    run.signal("gates[0]", "approved", 1)
    drain()
    assert run.result(timeout=1) == ["a1", "b2"]


def test_a_flow_explains_which_nodes_the_others_wait_for() -> None:
    flow = app.flow("why")
    gate = flow.add(approved).named("gate")
    late = flow.add(work.using(delay="1h"), name="late").named("late")
    both = flow.add(work, name="both").named("both").after(gate, late)
    flow.add(work, name="last").named("last").after(both)
    run = flow.start()
    drain()
    reasons = run.why()
    assert [(reason.node, reason.code) for reason in reasons] == [
        ("gate", "waits_for_signal"),
        ("late", "scheduled"),
        (None, "waits_for_nodes"),
    ]
    assert reasons[0].text == "It waits for a signal approved."
    assert reasons[0].id == run.node("gate").id
    assert reasons[-1].text == "2 more nodes wait for these."
    assert [reason.code for reason in run.why("both")] == ["waits_for_jobs"]
    assert run.why("last")[0].text == "It needs 1 of 1 more: both (waiting)."
    run.cancel("enough")
    drain()
    (reason,) = run.why()
    assert (reason.code, reason.text) == ("cancelled", "It was cancelled: enough.")


def test_a_held_flow_names_the_failure_that_holds_it() -> None:
    flow = app.flow("why", on_failure="hold")
    bad = flow.add(work, name="bad").named("first")
    flow.add(work, name="b").named("second").after(bad)
    run = flow.start()
    drain()
    (reason,) = run.why()
    assert (reason.node, reason.code) == ("second", "held")


def test_the_reasons_of_many_nodes_are_summed_up() -> None:
    flow = app.flow("why")
    for number in range(23):
        flow.add(work.using(delay="1h"), name="x").named(f"node-{number:02}")
    reasons = flow.start().why()
    assert len([reason for reason in reasons if reason.node is not None]) == 20
    assert (reasons[-1].code, reasons[-1].text) == (
        "more",
        "3 more nodes have not ended for reasons of their own.",
    )
