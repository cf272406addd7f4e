"""The page that searches log lines."""

from __future__ import annotations

from tests.interfaces.dashboard.kit import House

from tidemill import Context


def test_lines_are_found_by_text_level_task_and_job(shop: House) -> None:
    @shop.app.task(name="noisy")
    def noisy(text: str, ctx: Context) -> None:
        ctx.log(f"about <{text}>", level="warning")

    job = shop.app.enqueue("noisy", text="Ada")
    shop.app.enqueue("noisy", text="Bob")
    shop.app.testing().drain()
    person = shop.person("viewer")
    page = person.open("/logs?text=ada&level=warning&task=noisy")
    assert "about &lt;Ada&gt;" in page
    assert "Bob" not in page
    assert f"/jobs/{job.id}" in page
    assert "about &lt;Ada&gt;" in person.open(f"/logs?job={job.id}")
    assert "No log lines match" in person.open("/logs?level=error&task=noisy")
    assert "No log lines match" in person.open("/logs?since=2999-01-01T00:00")


def test_wrong_conditions_are_explained(shop: House) -> None:
    person = shop.person("viewer")
    assert "is not a job id" in person.open("/logs?job=seven", 422)
    assert "is not a time" in person.open("/logs?since=noon", 422)
    assert "unknown level" in person.open("/logs?level=loud", 422)
