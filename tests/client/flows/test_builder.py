"""The builder of flows: nodes, their needs, and refused arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tidemill import App, each
from tidemill.domain.flow_plan import FlowPlan
from tidemill.domain.graph import EdgeCondition
from tidemill.domain.references import INPUTS
from tidemill.errors import BadArguments, BadFlow, UsageError
from tidemill.tasks.limits import Limit

app = App("memory://")


@app.task
def fetch(url: str) -> str:
    return url


@app.task
def parse(source: str, strict: bool = False) -> list[int]:
    return [len(source)]


@app.task
def load(row: int, table: str) -> int:
    return row


@app.task
def total(parts: list[Any]) -> dict[str, int]:
    return {"sum": 0}


@app.task
def report(text: str | None = None) -> None: ...


@app.task(limits=[Limit(1, key="url")])
def limited(url: str) -> None: ...


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    app.close()


def rows(flow: object) -> FlowPlan:
    made: FlowPlan = flow._ready()[0]  # type: ignore[attr-defined]
    return made


def test_a_result_given_to_another_node_makes_that_node_wait() -> None:
    flow = app.flow("import")
    page = flow.add(fetch, url="u")
    parsed = flow.add(parse, source=page.result)
    made = rows(flow)
    assert [(edge.job_id, edge.needs_id, edge.condition) for edge in made.edges] == [
        (parsed.id, page.id, EdgeCondition.SUCCESS)
    ]
    waiting = made.jobs[1]
    assert json.loads(waiting.args) == {"source": {"$ref": [str(page.id)]}}
    assert waiting.details.options[INPUTS] == [str(page.id)]
    assert waiting.details.node == "parse"


def test_arguments_next_to_references_are_validated_at_once() -> None:
    flow = app.flow("import")
    page = flow.add(fetch, url="u")
    with pytest.raises(BadArguments, match="strict"):
        flow.add(parse, source=page.result, strict="no")  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match="no such argument"):
        flow.add(parse, sauce=page.result)  # type: ignore[call-arg]
    with pytest.raises(BadArguments, match="source"):
        flow.add(parse, strict=True)  # type: ignore[call-arg]


def test_equal_tasks_get_numbers_in_their_names() -> None:
    flow = app.flow("import")
    names = [flow.add(fetch, url="u").name for _ in range(3)]
    assert names == ["fetch", "fetch-2", "fetch-3"]
    assert flow.add(fetch, url="u").named("last").name == "last"
    with pytest.raises(BadFlow, match="has a node 'fetch' already"):
        flow.add(fetch, url="u").named("fetch")


def test_a_chain_passes_each_result_on_as_the_first_argument() -> None:
    flow = app.flow("import")
    first, second = flow.chain(fetch.call(url="u"), parse.call(strict=True))
    made = rows(flow)
    assert json.loads(made.jobs[1].args) == {"strict": True, "source": {"$ref": [str(first.id)]}}
    assert made.edges[0].job_id == second.id


def test_a_map_over_a_list_makes_one_job_per_item() -> None:
    flow = app.flow("import")
    loads = flow.map(load, row=each([1, 2, 3]), table="t")
    flow.add(total, parts=loads.results)
    made = rows(flow)
    members = [job for job in made.jobs if job.details.group_id == loads.id]
    assert [json.loads(job.args) for job in members] == [{"row": row, "table": "t"} for row in (1, 2, 3)]
    assert [job.details.position for job in members] == [0, 1, 2]
    assert made.edges[0].needs_id == loads.id
    assert json.loads(made.jobs[-1].args) == {"parts": {"$refs": [str(loads.id)]}}


def test_a_map_over_a_result_is_one_job_that_makes_the_others() -> None:
    flow = app.flow("import")
    page = flow.add(fetch, url="u")
    rows_node = flow.add(parse, source=page.result)
    loads = flow.map(load.using(queue="db"), row=each(rows_node.result), table=page.result).at_once(5)
    made = rows(flow)
    (maker,) = [job for job in made.jobs if job.details.group_id == loads.id]
    assert maker.task == "tidemill.fan_out"
    args = json.loads(maker.args)
    assert args["items"] == {"$ref": [str(rows_node.id)]}
    assert json.loads(args["args"]) == {"table": {"$ref": [str(page.id)]}}
    assert args["job"]["queue"] == "db"
    assert args["job"]["limits"] == [f"flow.at_once.5/{loads.id}"]
    assert args["job"]["options"] == {INPUTS: [str(page.id)]}


def test_a_map_needs_one_list_of_items() -> None:
    flow = app.flow("import")
    with pytest.raises(UsageError, match="give exactly one"):
        flow.map(load, row=1, table="t")
    with pytest.raises(UsageError, match="str is not a list"):
        flow.map(load, row=each("abc"), table="t")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"flow\.add makes one job"):
        flow.add(load, row=each([1]), table="t")


def test_a_limit_by_an_argument_that_is_not_known_yet_is_refused() -> None:
    flow = app.flow("import")
    page = flow.add(fetch, url="u")
    with pytest.raises(UsageError, match="has a limit by 'url'"):
        flow.add(limited, url=page.result)


def test_an_argument_that_may_be_missing_must_accept_none() -> None:
    flow = app.flow("import")
    page = flow.add(fetch, url="u").may_fail()
    flow.add(parse, source=page.result)
    with pytest.raises(
        BadFlow, match=r"may run without fetch.result, and its argument 'source' does not accept None"
    ):
        flow.start()
    other = app.flow("import")
    page = other.add(fetch, url="u").may_fail()
    other.add(report, text=page.result)
    assert rows(other).edges[0].condition is EdgeCondition.END


def test_nodes_of_other_flows_are_refused() -> None:
    one, other = app.flow("one"), app.flow("other")
    page = one.add(fetch, url="u")
    with pytest.raises(BadFlow, match="not in flow 'other'"):
        other.add(parse, source=page.result)
    with pytest.raises(BadFlow, match="in another flow 'one'"):
        other.add(fetch, url="u").after(page)
    with pytest.raises(UsageError, match="not a node"):
        other.add(fetch, url="u").after("fetch")  # type: ignore[arg-type]


def test_a_node_waits_by_policy_and_by_end() -> None:
    flow = app.flow("import")
    a, b = flow.add(fetch, url="a"), flow.add(fetch, url="b")
    flow.add(report).after(a, b, on="failure").needs("any").named("rollback")
    made = rows(flow)
    assert {edge.condition for edge in made.edges} == {EdgeCondition.FAILURE}
    (join,) = [row for row in made.joins if row.id == made.jobs[2].id]
    assert (join.remaining, join.spare) == (1, 1)
    with pytest.raises(UsageError, match="on='done'"):
        app.flow("x").add(report).after(on="done")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs\\(0\\)"):
        app.flow("x").add(report).needs(0)


def test_an_included_flow_is_one_node_with_the_result_that_it_returns() -> None:
    inner = app.flow("inner")
    page = inner.add(fetch, url="u")
    inner.returns(page.result)
    flow = app.flow("outer")
    first = flow.add(fetch, url="v")
    part = flow.include(inner, prefix="de").after(first)
    flow.add(parse, source=part.result)
    made = rows(flow)
    assert [job.details.node for job in made.jobs] == ["fetch", "de/fetch", "parse"]
    assert (made.jobs[1].id, first.id, EdgeCondition.SUCCESS, 0) in made.edges
    assert (made.jobs[2].id, part.id, EdgeCondition.SUCCESS, 0) in made.edges
    with pytest.raises(UsageError, match="started or included already"):
        inner.start()


def test_options_that_belong_to_the_flow_are_refused_on_a_node() -> None:
    flow = app.flow("import")
    with pytest.raises(UsageError, match="belong to one tenant"):
        flow.add(fetch.using(tenant="other"), url="u")
    page = flow.add(fetch, url="u")
    flow.add(parse.using(delay="10m"), source=page.result)
    with pytest.raises(BadFlow, match="delay or run_after cannot be kept"):
        flow.start()
    with pytest.raises(UsageError, match="on_failure='explode'"):
        app.flow("x", on_failure="explode")  # type: ignore[arg-type]


def test_a_condition_is_stored_with_the_node_that_it_guards() -> None:
    flow = app.flow("import")
    done = flow.add(total, parts=[])
    flow.add(report).when(done.result["sum"] > 3)
    made = rows(flow)
    assert made.jobs[1].details.options["when"] == {
        "test": [">", {"$ref": [str(done.id), "sum"]}, 3],
        "text": "total.result['sum'] > 3",
    }
    assert made.edges[0].needs_id == done.id
