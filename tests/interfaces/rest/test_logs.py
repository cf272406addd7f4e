"""``GET /api/logs``: search of log lines over HTTP."""

from __future__ import annotations

import pytest
from tests.interfaces.rest.kit import Site, problem

from tidemill import Context


@pytest.fixture
def noisy(alone: Site) -> Site:
    @alone.app.task(name="noisy")
    def noisy(text: str, ctx: Context) -> None:
        ctx.log(f"about {text}", level="warning", password="hunter2")

    for tenant, text in (("acme", "Ada"), ("acme", "Bob"), ("other", "Eve")):
        alone.create("noisy", tenant=tenant, args={"text": text})
    alone.drain()
    return alone


def test_lines_are_searched_and_belong_to_the_tenant_of_the_key(noisy: Site) -> None:
    page = noisy.get("/api/logs?text=ABOUT&level=warning&task=noisy", role="viewer", tenant="acme")
    assert [line["message"] for line in page["items"]] == ["about Bob", "about Ada"]
    line = page["items"][0]
    assert (line["task"], line["queue"], line["tenant"]) == ("noisy", "default", "acme")
    assert "hunter2" not in str(line)
    assert noisy.get(f"/api/logs?job={line['job_id']}", role="viewer", tenant="acme")["items"] == [line]
    assert len(noisy.get("/api/logs?task=noisy", role="viewer", tenant="*")["items"]) == 3
    for query in ("level=error", "text=nothing", "since=2999-01-01T00:00:00Z", "until=2000-01-01T00:00:00Z"):
        assert noisy.get(f"/api/logs?{query}", role="viewer", tenant="acme")["items"] == [], query


def test_pages_continue_at_their_cursor(noisy: Site) -> None:
    first = noisy.get("/api/logs?limit=1&task=noisy", role="viewer", tenant="acme")
    second = noisy.get(f"/api/logs?limit=1&task=noisy&cursor={first['next']}", role="viewer", tenant="acme")
    assert [line["message"] for line in (*first["items"], *second["items"])] == ["about Bob", "about Ada"]


def test_a_wrong_cursor_is_refused(noisy: Site) -> None:
    answer = noisy.call("GET", "/api/logs?cursor=x", role="viewer", tenant="acme")
    problem(answer, 422, "bad_filter")
