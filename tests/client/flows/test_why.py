"""Why a job of a flow waits, as a code and a sentence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidemill import App, ManualClock, NoRetry, each
from tidemill.errors import PermanentError

app = App("memory://", clock=ManualClock())


@app.task(retry=NoRetry())
def work(name: str) -> str:
    if name == "bad":
        raise PermanentError("bad")
    return name


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    app.close()


def test_a_job_that_waits_for_jobs_names_them() -> None:
    flow = app.flow("why")
    first = flow.add(work.using(delay="1h"), name="a").named("first")
    flow.add(work, name="b").after(first).named("second")
    run = flow.start()
    (reason, *_) = run.node("second").job.why()
    assert reason.code == "waits_for_jobs"
    assert reason.text == "It needs 1 of 1 more: first (due in 3600 s)."


def test_a_job_that_waits_for_a_group_counts_it() -> None:
    flow = app.flow("why")
    rows = flow.map(work.using(delay="1h"), name=each(["a", "b", "c"])).named("rows")
    flow.add(work, name="b").after(rows).named("second")
    run = flow.start()
    (reason, *_) = run.node("second").job.why()
    assert (reason.code, reason.text) == (
        "waits_for_group",
        "It waits for the end of rows: 0 of 3 have ended.",
    )


def test_a_held_job_names_the_failure() -> None:
    flow = app.flow("why", on_failure="hold")
    first = flow.add(work, name="bad").named("first")
    flow.add(work, name="b").after(first).named("second")
    run = flow.start()
    app.testing().drain()
    (reason, *_) = run.node("second").job.why()
    assert reason.code == "held"
    assert "first (failed)" in reason.text


def test_a_job_skipped_by_its_condition_has_that_reason() -> None:
    flow = app.flow("why")
    first = flow.add(work, name="a").named("first")
    flow.add(work, name="b").when(first.result == "x").named("second")
    run = flow.start()
    app.testing().drain()
    (reason, *_) = run.node("second").job.why()
    assert reason.code == "condition_false"
    assert "first.result == 'x' is false" in reason.text


def test_a_failed_flow_names_the_nodes_that_failed() -> None:
    flow = app.flow("why")
    rows = flow.map(work, name=each(["a", "bad"])).named("rows")
    flow.add(work, name="bad").may_fail().named("optional")
    flow.add(work, name="b").after(rows).named("last")
    run = flow.start()
    app.testing().drain()
    whole, *nodes = run.why()
    assert (whole.code, whole.text, whole.node) == ("failed", "It failed.", None)
    assert [(reason.node, reason.code) for reason in nodes] == [("rows [1]", "ended")]
    assert "bad" in nodes[0].text


def test_the_failed_nodes_of_a_flow_are_summed_up() -> None:
    flow = app.flow("why")
    flow.map(work, name=each(["bad"] * 23)).named("rows")
    run = flow.start()
    app.testing().drain()
    reasons = run.why()
    assert len([reason for reason in reasons if reason.node is not None]) == 20
    assert (reasons[-1].code, reasons[-1].text) == ("more", "3 more nodes failed.")
