"""The pages about flows and batches, and their actions."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from tests.interfaces.dashboard.hostile import SCRIPTS
from tests.interfaces.dashboard.kit import House

from tidemill import NoRetry, Review, each
from tidemill.errors import PermanentError
from tidemill.ids import new_id

TEXTS = [text for text in SCRIPTS[::5] if text not in ("</script>", "<!--<script>")]


class Tasks:
    """Tasks of flows in the app of a site."""

    def __init__(self, shop: House) -> None:
        self.app = shop.app

        @shop.app.task(retry=NoRetry())
        def part(number: int = 0) -> int:
            if number < 0:
                raise PermanentError("below zero")
            return number

        self.part: Any = part

    def start(self, name: str = "orders", *, tenant: str = "acme", node: str = "broken") -> Any:
        """Start a flow with a map, a node that fails, and one that needs it."""
        with self.app.tenant(tenant):
            flow = self.app.flow(name, key=f"{name}!")
            first = flow.add(self.part, number=1).named("first")
            flow.map(self.part, number=each([1, 2, 3])).named("rows").after(first)
            broken = flow.add(self.part, number=-1).named(node).after(first)
            flow.add(self.part).named("last").after(broken)
            return flow.start()


@pytest.fixture
def tasks(shop: House) -> Tasks:
    return Tasks(shop)


def test_without_flows_the_pages_are_empty(shop: House) -> None:
    person = shop.person("viewer")
    assert "There are no flows." in person.open("/flows")
    assert "There are no batches." in person.open("/batches")
    person.open(f"/flows/{new_id()}", 404)
    person.open("/flows/nothing", 404)


def test_flows_are_listed_with_status_and_progress(shop: House, tasks: Tasks) -> None:
    run = tasks.start()
    shop.drain()
    tasks.start("later")
    page = shop.person("viewer").open("/flows")
    assert page.index("<strong>later</strong>") < page.index("<strong>orders</strong>")
    assert f'href="/flows/{run.id}"' in page
    failed = shop.person("viewer").open("/flows?status=failed")
    assert "orders" in failed
    assert "<strong>later</strong>" not in failed
    old_link = shop.person("viewer").open("/flows?state=failed")
    assert "<strong>later</strong>" not in old_link
    assert "There are no flows." in shop.person("viewer").open("/flows?name=nobody")


def test_older_flows_are_on_the_next_page(shop: House, tasks: Tasks) -> None:
    for number in range(52):
        tasks.start(f"flow-{number}")
    page = shop.person("viewer").open("/flows")
    assert "<strong>flow-51</strong>" in page
    assert "<strong>flow-1</strong>" not in page
    older = re.search(r'href="([^"]*before=[^"]*)"', page)
    assert older is not None
    following = shop.person("viewer").open(older[1].replace("&amp;", "&"))
    assert "<strong>flow-1</strong>" in following
    assert "<strong>flow-51</strong>" not in following


def test_a_flow_is_drawn_with_its_nodes_and_its_timeline(shop: House, tasks: Tasks) -> None:
    run = tasks.start()
    person = shop.person("operator", "acme")
    before = person.open(f"/flows/{run.id}")
    assert "Cancel the flow" in before
    assert "Retry failed nodes" not in before
    assert 'id="timeline"' not in before
    shop.drain()
    page = person.open(f"/flows/{run.id}")
    drawn = page.split('<svg class="flow"')[1].split("</svg>")[0]
    assert drawn.count('<g class="box ') == 4
    assert drawn.count('<path class="edge') == 3
    assert drawn.count("edge broken") == 1
    assert "3 of 3" in drawn
    assert "skipped" in drawn
    assert 'aria-label="Timeline of 5 jobs"' in page
    assert "rows [2]" in page
    assert "below zero" in page
    assert "Retry failed nodes" in page
    assert "Cancel the flow" not in page


def test_the_timeline_has_a_job_that_waits_for_a_review_and_milliseconds(shop: House, tasks: Tasks) -> None:
    @shop.app.task
    def sign_off(number: int) -> int:
        raise Review("is it right?", output=number)

    flow = shop.app.flow("signed")
    part = flow.add(tasks.part, number=1)
    asked = flow.add(sign_off, number=part.result)
    flow.add(tasks.part, number=asked.result).named("last")
    run = flow.start()
    shop.drain()
    rows = run.timeline()
    assert [(row.label, row.status) for row in rows] == [("part", "completed"), ("sign_off", "review_needed")]
    (execution,) = run.node("sign_off").job.executions()
    assert (rows[1].started_at, rows[1].finished_at) == (execution.started_at, None)
    page = shop.person("operator").open(f"/flows/{run.id}")
    assert 'aria-label="Timeline of 2 jobs"' in page
    timeline = page.split('id="timeline"')[1].split("</section>")[0]
    assert re.findall(r'data-time="clock" [^>]*>[-0-9]+ [0-9:]+\.[0-9]{3} UTC<', timeline)


def test_a_job_links_to_its_flow(shop: House, tasks: Tasks) -> None:
    run = tasks.start()
    page = shop.person("viewer").open(f"/jobs/{run.node('first').id}")
    assert f'href="/flows/{run.id}"' in page
    with tasks.app.batch("letters"):
        member = tasks.part.enqueue()
    for lone in (tasks.part.enqueue(), member):
        assert "/flows/" not in shop.person("viewer").open(f"/jobs/{lone.id}")


def test_an_operator_retries_skips_and_cancels(shop: House, tasks: Tasks) -> None:
    run = tasks.start()
    shop.drain()
    person = shop.person("operator", "acme")
    assert "The failed nodes run again." in person.send(f"/flows/{run.id}", "/retry")
    shop.drain()
    assert "is not JSON" in person.send(f"/flows/{run.id}", "/skip", node="broken", result="{")
    assert "has no node" in person.send(f"/flows/{run.id}", "/skip", node="nobody")
    assert "continues without broken" in person.send(f"/flows/{run.id}", "/skip", node="broken", result="7")
    shop.drain()
    assert str(run.refresh().status) == "completed"
    other = tasks.start("other")
    page = person.send(f"/flows/{other.id}", "/cancel", reason="too late")
    assert "No further node begins" in page
    shop.drain()
    assert "too late" in person.open(f"/flows/{other.id}")
    again = person.post(f"/flows/{other.id}/cancel")
    assert again.status_code == 303
    assert "it is cancelled" in person.open(again.headers["location"])


def test_a_viewer_sees_no_actions_and_cannot_act(shop: House, tasks: Tasks) -> None:
    run = tasks.start()
    shop.drain()
    person = shop.person("viewer", "acme")
    page = person.open(f"/flows/{run.id}")
    assert "Retry failed nodes" not in page
    for verb in ("retry", "skip", "cancel"):
        assert person.post(f"/flows/{run.id}/{verb}", node="broken").status_code == 403
    assert str(run.refresh().status) == "failed"


def test_another_tenants_flow_does_not_exist(shop: House, tasks: Tasks) -> None:
    run = tasks.start()
    stranger = shop.person("admin", "other")
    assert "There are no flows." in stranger.open("/flows")
    stranger.open(f"/flows/{run.id}", 404)
    for verb in ("retry", "skip", "cancel"):
        assert stranger.post(f"/flows/{run.id}/{verb}", node="first").status_code == 404


def test_hostile_names_are_shown_as_text(shop: House, tasks: Tasks) -> None:
    person = shop.person("operator", "acme")
    for text in TEXTS:
        run = tasks.start(text, node=text.replace("/", "|"))
        page = person.open(f"/flows/{run.id}")
        assert text not in page
        assert text.replace("/", "|") not in page
        with tasks.app.tenant("acme"), tasks.app.batch(text, description=text):
            tasks.part.enqueue()
    shop.drain()
    for path in ("/flows", "/batches"):
        page = person.open(path)
        assert not any(text in page for text in TEXTS)


def test_batches_are_listed_with_their_progress(shop: House, tasks: Tasks) -> None:
    with tasks.app.tenant("acme"), tasks.app.batch("letters", description="of the week"):
        tasks.part.enqueue_many([{"number": number} for number in (1, 2, -1)])
    shop.drain()
    page = shop.person("viewer", "acme").open("/batches")
    assert "letters" in page
    assert "failed" in page
    assert "There are no batches." in shop.person("viewer", "other").open("/batches")


def rows_of(page: str) -> list[str]:
    """The names of the nodes in the table."""
    table = page.split('id="nodes"')[1]
    return re.findall(r'<td data-label="Node"><a [^>]*>([^<]*)</a>', table)


def test_nodes_are_counted_and_filtered_by_status(shop: House, tasks: Tasks) -> None:
    run = tasks.start()
    shop.drain()
    person = shop.person("viewer")
    page = person.open(f"/flows/{run.id}")
    # A small flow is listed in its own order.
    assert rows_of(page) == ["first", "rows [0]", "rows [1]", "rows [2]", "broken", "last"]
    assert 'aria-label="Jobs: 4 completed, 1 failed, 1 skipped"' in page
    assert "PermanentError: below zero" in page
    assert "tidemill.errors.PermanentError" not in page.split('id="nodes"')[1]
    assert rows_of(person.open(f"/flows/{run.id}?status=failed")) == ["broken"]
    assert len(rows_of(person.open(f"/flows/{run.id}?status=nonsense"))) == 6


def test_failed_nodes_of_a_large_flow_come_first(shop: House, tasks: Tasks) -> None:
    flow = tasks.app.flow("import")
    flow.map(tasks.part, number=each([*range(260), -1])).named("rows")
    run = flow.start()
    shop.drain()
    names = rows_of(shop.person("viewer").open(f"/flows/{run.id}"))
    assert len(names) == 200
    assert names[:2] == ["rows [260]", "rows [0]"]


@pytest.mark.parametrize("form", ["wide", "long"])
def test_the_page_of_a_large_flow_is_small_and_quick(shop: House, tasks: Tasks, form: str) -> None:
    flow = tasks.app.flow("large")
    if form == "wide":
        first = flow.add(tasks.part)
        flow.add(tasks.part).after(*[flow.add(tasks.part).after(first) for _ in range(2_998)])
    else:
        flow.chain(tasks.part.call(), *[tasks.part] * 2_999)
    run = flow.start()
    person = shop.person("viewer")
    began = time.process_time()
    page = person.open(f"/flows/{run.id}")
    assert time.process_time() - began < 3, "seconds of processor time"
    assert page.count('<g class="box ') <= 300
    assert len(page) < 1_000_000
    assert "2,800 more jobs are not listed here" in page
    assert f'<a href="/jobs?flow={run.id}">search all jobs of this flow</a>' in page


def test_an_archived_flow_is_drawn_without_actions(shop: House, tasks: Tasks) -> None:
    run = tasks.start()
    shop.drain()
    shop.app.archive.run(older_than=0)
    person = shop.person("operator")
    page = person.open(f"/flows/{run.id}")
    assert "archived" in page.lower()
    assert all(name in page for name in ("first", "rows", "broken", "last"))
    assert "Retry failed nodes" not in page
    assert "There are no flows." in person.open("/flows")
    assert str(run.id) in person.open("/flows?archived=1")


def test_jobs_are_filtered_by_their_flow(shop: House, tasks: Tasks) -> None:
    one, other = tasks.start("one"), tasks.start("other")
    page = shop.person("viewer").open(f"/jobs?flow={one.id}")
    assert all(str(node.id) in page for node in one.nodes())
    assert not any(str(node.id) in page for node in other.nodes())
