"""The charts of ended jobs on the pages of a queue and of a task."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tests.interfaces.dashboard.jobs_kit import put
from tests.interfaces.dashboard.kit import House

from tidemill.dashboard import charts
from tidemill.dashboard.ended_charts import WINDOWS

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def worked(shop: House) -> None:
    for _ in range(3):
        put(shop.app, "send")
    put(shop.app, "fail", args={"words": "card expired"})
    put(shop.app, "fail", tenant="other", args={"words": "somebody else's trouble"})
    shop.drain()


def test_a_queue_shows_ended_jobs_waits_and_deploys(shop: House) -> None:
    worked(shop)
    shop.app.store.note_deploy("shop:app", "2.7", now=shop.app.clock.now())
    queue = shop.app.registry.get("fail").options.queue
    person = shop.person("viewer", "*")
    for window in WINDOWS:
        page = person.open(f"/queues/{queue}?window={window}")
        assert f"ended in the last {window}" in page
        assert 'class="mark"' in page
    page = person.open(f"/queues/{queue}")
    assert "release 2.7 of shop:app" in page
    assert 'id="waits"' in page
    assert "ended in the last 24h" in person.open(f"/queues/{queue}?window=x")


def test_a_task_shows_run_times_errors_and_slowest_jobs_of_the_tenant(shop: House) -> None:
    worked(shop)
    page = shop.person("viewer", "acme").open("/tasks/fail")
    assert "1 ended in the last 24h; 1 failed (100 %)" in page
    assert "card expired" in page
    assert "somebody else" not in page
    assert re.search(r'data-href="/errors/\w+"', page)
    assert 'id="slowest"' in page
    page = shop.person("viewer", "acme").open("/tasks/send")
    assert "3 ended in the last 24h; 0 failed (0 %)" in page
    assert 'class="h5"' in page
    assert 'id="errors"' not in page


def test_a_heat_map_has_a_row_for_each_bucket_between_the_first_and_the_last() -> None:
    steps = [(NOON, {3: 1, 5: 100}), (NOON + MINUTE, {}), (NOON + 2 * MINUTE, {5: 4})]
    heat = charts.heat(steps, str, width=30, height=30)
    assert heat is not None
    assert [row.label for row in heat.rows] == ["3", "4", "5"]
    assert [(cell.x, cell.y, cell.jobs, cell.level) for _, _, cell in heat.cells] == [
        (0, 20, 1, 1),
        (0, 0, 100, 5),
        (20, 0, 4, 1),
    ]
    assert charts.heat([(NOON, {})], str) is None
