"""Callers whose grants exclude arguments see them on no page and in no answer, also where another object shows them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from tests.interfaces.dashboard.kit import House, house
from tests.interfaces.rest.kit import Browser, problem

from tidemill import Context, Every
from tidemill.dashboard.site import all_pages
from tidemill.rest.api import all_routes

CANARY = "CANARY"
GRANT = "*,-jobs.arguments"


class Estate(NamedTuple):
    """A site on which every kind of object has a canary in its data."""

    shop: House
    jobs: list[str]
    kinds: dict[str, list[str]]  #: ids by the part of a path that they belong to


@pytest.fixture
def estate() -> Iterator[Estate]:
    with house() as shop:
        app = shop.app

        @app.task(name="step")
        def step(ctx: Context, what: str) -> str:
            return ctx.step("one", lambda: what)

        send, fail, look = (app.bound_task(name) for name in ("send", "fail", "look"))
        with app.tenant("acme"):
            old = send.enqueue(to=f"{CANARY}-archived")
            app.testing().drain()
            app.archive.run(older_than=timedelta(0))
            jobs = [
                send.using(metadata={"note": f"{CANARY}-metadata"}).enqueue(to=f"{CANARY}-argument"),
                fail.enqueue(words=f"{CANARY}-error"),
                look.enqueue(what=f"{CANARY}-review"),
                app.bound_task("step").enqueue(what=f"{CANARY}-step"),
            ]
            app.definitions.save("nightly", send, args={"to": f"{CANARY}-definition"}, metadata={"x": CANARY})
            hourly = app.schedules.add(
                send, Every("1h"), "hourly", args={"to": f"{CANARY}-schedule"}, metadata={"x": CANARY}
            )
            flow = app.flow("flow")
            flow.add(app.bound_task("step"), what=f"{CANARY}-node")
            flow.add(fail, words=f"{CANARY}-node-error")
            run = flow.start()
            with app.batch("batch") as batch:
                fail.enqueue(words=f"{CANARY}-batch")
        app.testing().drain()
        yield Estate(
            shop,
            [str(job.id) for job in (*jobs, old)],
            {"schedules": [str(hourly.id)], "flows": [str(run.id)], "batches": [str(batch.id)]},
        )


@contextlib.contextmanager
def caller(estate: Estate, role: str, tenant: str | None, grants: list[str]) -> Iterator[tuple[Browser, str]]:
    made = estate.shop.app.keys.create("limited", role=role, tenant=tenant, grants=grants)
    with contextlib.closing(Browser(estate.shop.site_app)) as browser:
        browser.witness = None
        assert browser.request("POST", "/sign-in", data={"key": made.secret}).status_code == 303
        yield browser, made.secret


def addresses(estate: Estate) -> Iterator[str]:
    """Every address that shows something, with the objects of the estate."""
    for route in [*all_routes(), *all_pages()]:
        if route.method != "GET" or getattr(route, "stream", False) or route.path.endswith("/live"):
            continue
        kind = route.path.removeprefix("/api").split("/")[1]
        for id in estate.kinds.get(kind, estate.jobs) if "{id" in route.path else [""]:
            path = re.sub(r"\{id(:\w+)?\}", id, route.path)
            path = re.sub(r"\{key(:\w+)?\}", "nightly" if kind == "definitions" else "hourly", path)
            path = re.sub(r"\{name(:\w+)?\}", "send", path)
            if "{" not in path:
                yield path
            if kind == "archive" and "{" not in route.path:
                yield f"{path}?ids={','.join(estate.jobs)}"


def shown(estate: Estate, browser: Browser, secret: str) -> dict[str, set[str]]:
    """The canaries that the answers contain, by address."""
    found = {}
    for path in addresses(estate):
        is_api = path.startswith("/api") or path == "/metrics"
        headers = {"authorization": f"Bearer {secret}"} if is_api else {}
        answer = browser.request("GET", path, headers=headers)
        assert answer.status_code < 500, (path, answer.text)
        if canaries := set(re.findall(rf"{CANARY}[\w-]*", answer.text)):
            found[path] = canaries
    return found


@pytest.mark.parametrize(("role", "tenant"), [("viewer", "acme"), ("super_admin", None)])
def test_no_answer_shows_arguments_to_a_caller_whose_grants_exclude_them(
    estate: Estate, role: str, tenant: str | None
) -> None:
    with caller(estate, role, tenant, [GRANT]) as (browser, secret):
        assert shown(estate, browser, secret) == {}


def test_the_same_answers_show_them_to_other_callers(estate: Estate) -> None:
    with caller(estate, "super_admin", "acme", ["*"]) as (browser, secret):
        found = shown(estate, browser, secret)
    words = {canary.removeprefix(f"{CANARY}-") for canaries in found.values() for canary in canaries}
    assert words >= {"metadata", "argument", "error", "review", "step", "definition", "schedule", "node-error",
                     "batch", "archived"}  # fmt: skip
    assert len(found) > 20


def test_a_search_finds_no_hidden_message(estate: Estate) -> None:
    failed = estate.jobs[1]
    for grants, finds in ((["*"], True), ([GRANT], False)):
        with caller(estate, "operator", "acme", grants) as (browser, secret):
            headers = {"authorization": f"Bearer {secret}"}
            found = browser.request("GET", f"/api/jobs?text={CANARY}-error", headers=headers).json()["items"]
            assert (failed in [job["id"] for job in found]) is finds
            assert (failed in browser.request("GET", f"/jobs?text={CANARY}-error").text) is finds
            # A text of which nothing is hidden is still found.
            named = browser.request("GET", "/api/jobs?text=fail", headers=headers).json()["items"]
            assert failed in [job["id"] for job in named]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/archive/erase", {"metadata": {"note": f"{CANARY}-metadata"}}),
        ("/api/jobs/bulk", {"action": "retry", "filter": {"metadata": {"note": f"{CANARY}-metadata"}}}),
        ("/api/jobs/bulk", {"action": "retry", "filter": {"args": {"words": f"{CANARY}-error"}}}),
        ("/api/jobs/bulk", {"action": "retry", "filter": {"text": f"{CANARY}-error"}}),
        ("/api/archive/jobs?metadata=note=x", None),
        ("/jobs/bulk?act=retry&metadata=note=x", None),
        ("/jobs/bulk?act=retry&text=x", None),
    ],
)
def test_no_number_of_jobs_reveals_hidden_values(estate: Estate, path: str, body: Any) -> None:
    """Guesses would otherwise find a value: one of them selects a job."""
    with caller(estate, "super_admin", "acme", [GRANT]) as (browser, secret):
        headers = {"authorization": f"Bearer {secret}"}
        answer = browser.request("GET" if body is None else "POST", path, headers=headers, json=body)
        assert answer.status_code == 403, answer.text
        assert "jobs.arguments" in answer.text
    with caller(estate, "super_admin", "acme", ["*"]) as (browser, secret):
        headers = {"authorization": f"Bearer {secret}"}
        answer = browser.request("GET" if body is None else "POST", path, headers=headers, json=body)
        assert answer.status_code == 200, answer.text


def test_a_schedule_with_hidden_arguments_cannot_be_edited_in_the_form(estate: Estate) -> None:
    (schedule,) = estate.kinds["schedules"]
    with caller(estate, "admin", "acme", [GRANT]) as (browser, secret):
        refused = browser.request("GET", f"/schedules/{schedule}/edit")
        assert refused.status_code == 403
        assert "jobs.arguments" in refused.text
        headers = {"authorization": f"Bearer {secret}"}
        problem(browser.request("GET", "/api/jobs?metadata=note=x", headers=headers), 403, "masked_value")
