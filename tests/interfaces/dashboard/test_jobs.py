"""``/jobs``: filters, paging and bulk actions."""

from __future__ import annotations

import html
import re
import threading
from datetime import timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs

import pytest
from tests.interfaces.dashboard.jobs_kit import ids, put, shown
from tests.interfaces.dashboard.kit import House, Person, forms

from tidemill.dashboard import jobs as jobs_page
from tidemill.dashboard import jobs_bulk
from tidemill.domain.access import Role
from tidemill.domain.states import JobState


def pressed(person: Person, page: str, act: str, chosen: list[str]) -> str:
    """Select rows, press a button of the list, and return the confirmation page."""
    (form,) = [form for form in forms(page) if "/jobs/bulk" in form.action]
    data = {"csrf": dict(form.fields)["csrf"], "act": act, "id": chosen}
    answer = person.ask("POST", form.action, data=data)
    assert answer.status_code == 200, answer.text
    return answer.text


def confirmed(person: Person, page: str, **more: Any) -> Any:
    """Send the form of a confirmation page and return the response."""
    (form,) = [form for form in forms(page) if "/jobs/bulk" in form.action]
    data: dict[str, Any] = {}
    for name, value in form.fields:
        data.setdefault(name, []).append(value)
    return person.ask("POST", form.action, data={**data, **more})


def test_an_empty_store_explains_what_to_do(shop: House) -> None:
    assert "There are no live jobs." in shop.person("viewer", "acme").open("/jobs")


def test_jobs_are_listed_newest_first_and_only_for_the_own_tenant(shop: House) -> None:
    mine, _ = put(shop.app, number=3), put(shop.app, tenant="other")
    person = shop.person("viewer", "acme")
    assert shown(person.open("/jobs")) == ids(mine)[::-1]
    assert shown(person.open("/jobs?sort=oldest")) == ids(mine)
    everybody = shop.person("viewer", "*")
    assert len(shown(everybody.open("/jobs"))) == 4
    assert shown(everybody.open("/jobs?tenant=acme")) == ids(mine)[::-1]
    assert person.ask("GET", "/jobs?tenant=other").status_code == 403


def test_the_error_of_a_job_is_named_without_its_module(shop: House) -> None:
    put(shop.app, "fail", args={"words": "no"})
    shop.drain()
    page = shop.person("viewer", "acme").open("/jobs")
    assert ">PermanentError: no<" in page
    assert ">tidemill.errors.PermanentError" not in page


def test_every_filter_in_the_url_narrows_the_list(shop: House) -> None:
    (plain,) = put(shop.app)
    (rich,) = put(
        shop.app,
        "fail",
        queue="special",
        tags=["red"],
        metadata={"customer": "acme"},
        reference=("order", "17"),
        correlation_id="story-1",
        parent=plain.id,
    )
    shop.drain()
    person = shop.person("operator", "acme")
    for query in (
        "status=failed",
        "status=failed&status=running",
        "task=fail",
        "queue=special",
        "tag=red",
        "metadata=customer%3Dacme",
        "reference=order:17",
        "correlation_id=story-1",
        f"parent_id={plain.id}",
        "text=PermanentErr",
        f"text={str(rich.id)[-12:]}",
        "text=RED&status=failed&task=fail",
        "since=1h&task=fail",
    ):
        assert shown(person.open(f"/jobs?{query}")) == ids([rich]), query
    assert shown(person.open("/jobs?until=1h")) == []
    assert "No job matches." in person.open("/jobs?until=1h")


def test_the_old_name_of_the_status_filter_still_works(shop: House) -> None:
    (job,) = put(shop.app, "fail")
    put(shop.app)
    shop.drain()
    page = shop.person("viewer", "acme").open("/jobs?state=failed")
    assert shown(page) == ids([job])
    assert '<input type="hidden" name="status" value="failed">' in page


def test_active_filters_are_shown_and_each_can_be_removed(shop: House) -> None:
    put(shop.app)
    page = shop.person("viewer", "acme").open("/jobs?status=pending&status=failed&text=se&since=2h")
    chips = re.findall(r'class="chip" href="([^"]+)"', page)
    assert [chip.replace("&amp;", "&") for chip in chips] == [
        "/jobs?status=failed&text=se&since=2h",
        "/jobs?status=pending&text=se&since=2h",
        "/jobs?status=pending&status=failed&since=2h",
        "/jobs?status=pending&status=failed&text=se",
    ]


def test_the_filter_form_keeps_the_filters_of_the_url(shop: House) -> None:
    page = shop.person("viewer", "acme").open(
        "/jobs?status=failed&task=send&text=x&correlation_id=c&sort=oldest"
    )
    form = forms(page)[[form.action for form in forms(page)].index("/jobs")]
    assert {(name, value) for name, value in form.fields if value} == {
        ("status", "failed"), ("task", "send"), ("text", "x"), ("correlation_id", "c"), ("sort", "oldest"),
    }  # fmt: skip


@pytest.mark.parametrize("tiers", ["", "live", "tables", "all"])
def test_the_form_and_the_conditions_keep_the_tiers_unless_they_are_the_default(
    shop: House, tiers: str
) -> None:
    page = shop.person("viewer", "acme").open(f"/jobs?tag=x&task=send&tiers={tiers}")
    form = forms(page)[[form.action for form in forms(page)].index("/jobs")]
    kept = "" if tiers == "live" else tiers
    assert [value for name, value in form.fields if name == "tiers"] == ([kept] if kept else [])
    chips = re.findall(r'class="chip" href="/jobs\?([^"]*)"', page)
    assert [parse_qs(html.unescape(query)) for query in chips] == [
        {"tag": ["x"], **({"tiers": [kept]} if kept else {})},
        {"task": ["send"], **({"tiers": [kept]} if kept else {})},
    ]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("since=yesterday", "is not a moment"),
        ("until=99999999999h", "is not a moment"),
        ("status=gone", "there is no status"),
        ("parent_id=7", "is not a job&#39;s id"),
        ("reference=x", "is not a pair"),
        ("text=" + "x" * 201, "give at most 200"),
        ("cursor=nonsense", "invalid cursor"),
    ],
)
def test_an_invalid_filter_is_reported_and_kept(shop: House, query: str, words: str) -> None:
    page = shop.person("viewer", "acme").open(f"/jobs?{query}", 422)
    assert words in page
    name, _, value = query.partition("=")
    if name in ("since", "until", "text"):
        assert f'value="{value}"' in page
        assert 'aria-invalid="true"' in page


def test_pages_follow_each_other_by_cursor(shop: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_page.look, "__defaults__", (2,))
    jobs = put(shop.app, number=5)
    person = shop.person("viewer", "acme")
    page, address, found = "", "/jobs?task=send", []
    for _ in range(3):
        page = person.open(address)
        found += shown(page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        address = following[1].replace("&amp;", "&") if following else ""
    assert found == ids(jobs)[::-1]
    assert address == ""
    assert 'href="/jobs?task=send">First page' in page


def test_viewers_see_no_checkboxes_or_buttons_and_cannot_search_secrets(shop: House) -> None:
    (job,) = put(shop.app, args={"to": "ada", "password": "tops3cret"})
    viewer = shop.person("viewer", "acme")
    page = viewer.open("/jobs")
    assert "data-row" not in page
    assert "Retry…" not in page
    assert shown(viewer.open("/jobs?text=tops3")) == []
    assert shown(shop.person("operator", "acme").open("/jobs?text=tops3")) == ids([job])
    assert viewer.ask("GET", "/jobs/bulk?task=send").status_code == 403
    assert viewer.post("/jobs/bulk", act="retry", id=str(job.id)).status_code == 403


def test_texts_of_jobs_are_escaped(shop: House) -> None:
    put(shop.app, "fail", args={"words": "<script>alert(1)</script>"}, tags=["<b>"])
    shop.drain()
    person = shop.person("operator", "acme")
    for page in (person.open("/jobs"), person.open("/jobs?tag=%3Cb%3E&text=%3Cscript%3E")):
        assert "<script>alert" not in page
        assert "<b>" not in page
        assert "&lt;script&gt;alert(1)" in page


# Bulk actions
# ------------------------------------------------------------------------------------------------------------


def test_selected_jobs_are_retried_after_confirmation(shop: House) -> None:
    failed, pending = put(shop.app, "fail", number=3), put(shop.app, delay=timedelta(hours=1))
    shop.drain()
    person = shop.person("operator", "acme")
    chosen = ids(failed)[:2] + ids(pending)
    page = pressed(person, person.open("/jobs?queue=default&queue=mail"), "retry", chosen)
    assert "Retry 2 jobs?" in page
    assert "<strong>2 failed</strong>" in page
    assert "1 of those selected has a status that does not allow it" in page
    assert shop.app.jobs.count(tenant="acme", status="failed") == 3, "nothing is done before the answer"
    answer = confirmed(person, page)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/jobs?queue=default&queue=mail"
    assert "2 jobs retried." in person.open(answer.headers["location"])
    assert shop.app.jobs.counts(tenant="acme", status=["pending", "failed"]) == {
        JobState.PENDING: 2,
        JobState.FAILED: 1,
    }
    (record,) = shop.app.audit.list(action="jobs.retried", tenant="acme")
    assert "operator of acme" in record.entry.who


def test_an_empty_selection_is_reported(shop: House) -> None:
    put(shop.app)
    person = shop.person("operator", "acme")
    answer = person.post("/jobs/bulk?task=send", act="cancel")
    assert answer.status_code == 303
    assert "Select jobs first." in person.open(answer.headers["location"])


def test_all_matching_jobs_are_cancelled_with_a_reason_and_no_others(shop: House) -> None:
    mine, other = put(shop.app, number=3), put(shop.app, tenant="other")
    person = shop.person("operator", "acme")
    page = person.open("/jobs/bulk?task=send&act=cancel")
    assert "Cancel 3 jobs?" in page
    assert "delete" not in re.findall(r"<a href=[^>]+>(\w+)</a>", page)
    late = put(shop.app)
    answer = confirmed(person, page, reason="wrong address")
    assert "3 jobs cancelled or asked to stop." in person.open(answer.headers["location"])
    assert {job.refresh().status for job in mine} == {JobState.CANCELLED}
    assert {job.reason for job in mine} == {"wrong address"}
    assert [job.refresh().status for job in other + late] == [JobState.PENDING] * 2, (
        "what came later is not meant"
    )


def test_all_matching_jobs_get_another_queue_and_priority(shop: House) -> None:
    person = shop.person("operator", "acme")
    jobs = put(shop.app, number=3)
    page = person.open("/jobs/bulk?task=send&act=change")
    assert "Change 3 jobs?" in page
    answer = person.post(
        "/jobs/bulk?task=send", act="change", scope="all", sure="1", queue="fast", priority="-4"
    )
    assert "3 jobs changed." in person.open(answer.headers["location"])
    assert {(job.refresh().queue, job.priority) for job in jobs} == {("fast", -4)}
    answer = person.post("/jobs/bulk?task=send", act="change", scope="all", sure="1")
    assert "There is nothing to change" in person.open(answer.headers["location"])


def test_a_large_bulk_action_runs_in_parts(shop: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_bulk, "PART", 4)
    monkeypatch.setattr(jobs_bulk, "BATCH", 2)
    monkeypatch.setattr(jobs_bulk, "EXACT", 5)
    put(shop.app, "fail", number=10)
    shop.drain()
    person = shop.person("admin", "acme")
    page = person.open("/jobs/bulk?status=failed&act=delete")
    assert "Delete more than 5 jobs?" in page
    assert confirmed(person, page).status_code == 200, "the tick is missing: the question comes again"
    assert shop.app.jobs.count(tenant="acme") == 10
    answer = confirmed(person, page, sure="1")
    for done in (4, 8):
        assert answer.status_code == 200
        assert f"<strong>{done}</strong> deleted so far" in answer.text
        answer = confirmed(person, answer.text)
    assert answer.status_code == 303
    assert "10 jobs deleted." in person.open(answer.headers["location"])
    assert shop.app.jobs.count(tenant="acme") == 0


def test_jobs_found_by_text_are_counted_and_changed_too(shop: House) -> None:
    put(shop.app, "fail", args={"words": "card expired"}, number=2)
    put(shop.app, "fail", args={"words": "no stock"})
    shop.drain()
    person = shop.person("operator", "acme")
    page = person.open("/jobs/bulk?text=card+exp&act=retry")
    assert "Retry 2 jobs?" in page
    answer = confirmed(person, page)
    assert "2 jobs retried." in person.open(answer.headers["location"])


def test_a_bulk_action_needs_a_filter_a_known_name_and_the_role(shop: House) -> None:
    (job,) = put(shop.app)
    operator = shop.person("operator", "acme")
    assert "choose a filter" in operator.open("/jobs/bulk", 422)
    assert operator.post("/jobs/bulk", act="retry", scope="all", sure="1").status_code == 422
    assert operator.post("/jobs/bulk?task=send", act="explode", scope="all").status_code == 422
    assert operator.post("/jobs/bulk", act="delete", id=str(job.id), sure="1").status_code == 403
    assert operator.post("/jobs/bulk", act="retry", id="7").status_code == 422
    assert not Role.OPERATOR.allows(Role.ADMIN)


def test_jobs_of_another_tenant_are_not_changed(shop: House) -> None:
    (other,) = put(shop.app, tenant="other")
    person = shop.person("admin", "acme")
    answer = person.post("/jobs/bulk", act="cancel", id=str(other.id), sure="1")
    assert answer.status_code == 303
    assert "0 jobs cancelled or asked to stop. 1 changed status" in person.open(answer.headers["location"])
    assert other.refresh().status is JobState.PENDING


# The search box, undo, views and the panel


def test_the_search_box_turns_facets_into_conditions_of_the_address(shop: House) -> None:
    (job,) = put(shop.app, args={"to": "ada lovelace"})
    put(shop.app, args={"to": "grace"})
    person = shop.person("operator", "acme")
    answer = person.ask("GET", "/jobs", params={"q": 'task:send arg.to:"ada lovelace"', "sort": "oldest"})
    assert answer.status_code == 303
    assert parse_qs(answer.headers["location"].partition("?")[2]) == {
        "sort": ["oldest"], "task": ["send"], "arg": ["to=ada lovelace"],
    }  # fmt: skip
    assert shown(person.open(answer.headers["location"])) == ids([job])
    page = person.open("/jobs?q=colour:red", 422)
    assert "unknown facet &#39;colour:&#39;" in page
    assert 'value="colour:red"' in page


def test_a_viewer_cannot_filter_by_an_argument_that_is_masked(shop: House) -> None:
    put(shop.app)
    for query in ("arg=password%3Dx", "arg=to%3Dada&arg=api_key%3Dx"):
        assert shop.person("viewer", "acme").ask("GET", f"/jobs?{query}").status_code == 403
        assert shop.person("operator", "acme").ask("GET", f"/jobs?{query}").status_code == 200
    assert len(shown(shop.person("viewer", "acme").open("/jobs?arg=to%3Dada"))) == 1


def test_failed_jobs_are_found_by_error_worker_and_run_time(shop: House) -> None:
    (job,) = put(shop.app, "fail")
    put(shop.app)
    shop.drain()
    person = shop.person("viewer", "acme")
    assert shown(person.open("/jobs?error=PermanentError")) == ids([job])
    assert shown(person.open("/jobs?error=Permanent")) == []
    assert shown(person.open("/jobs?took=1d")) == []
    assert len(shown(person.open(f"/jobs?worker={shop.app.jobs.get(job.id, tenant='acme').row.worker}"))) == 2
    assert "there is no worker &#39;nobody&#39;" in person.open("/jobs?worker=nobody", 422)


def test_the_tabs_count_the_jobs_of_their_states(shop: House) -> None:
    put(shop.app, "fail", number=2)
    put(shop.app)
    shop.drain()
    put(shop.app, number=3)
    person = shop.person("viewer", "acme")
    counts = re.compile(r'class="t-(\w+)[^>]*>\w+ <span class="count" title="(\d+)"')
    for query in ("", "?status=failed", "?since=1h"):
        found = dict(counts.findall(person.open(f"/jobs{query}")))
        assert (found["all"], found["failed"], found["completed"], found["pending"]) == (
            "6",
            "2",
            "1",
            "3",
        ), query
    assert counts.findall(person.open("/jobs?text=send")) == []


def test_a_change_of_selected_jobs_can_be_undone(shop: House) -> None:
    first, second = put(shop.app, number=2, delay=timedelta(hours=1))
    second.change(priority=7)
    person = shop.person("operator", "acme")
    fields = {"id": [str(first.id), str(second.id)], "sure": "1"}
    person.post("/jobs/bulk", act="change", queue="other", priority="3", **fields)  # type: ignore[arg-type]
    assert {(job.queue, job.priority) for job in shop.app.jobs.list(tenant="acme").items} == {("other", 3)}
    assert "2 jobs changed back." in person.send("/jobs", "/jobs/undo")
    assert [(job.refresh().queue, job.priority) for job in (first, second)] == [
        ("mail", 0),
        ("mail", 7),
    ]
    due = first.run_at
    person.post("/jobs/bulk", act="reschedule", at="5h", **fields)  # type: ignore[arg-type]
    assert first.refresh().run_at > due + timedelta(hours=3)
    person.send("/jobs", "/jobs/undo")
    assert abs(first.refresh().run_at - due) < timedelta(seconds=1)
    assert person.post("/jobs/undo", undo="[]").status_code == 422


def test_retries_are_spread_over_time(shop: House) -> None:
    jobs = put(shop.app, "fail", number=4)
    shop.drain()
    person = shop.person("operator", "acme")
    person.post("/jobs/bulk?status=failed", act="retry", scope="all", sure="1", spread="40m")
    runs = sorted(job.refresh().run_at for job in jobs)
    assert [job.refresh().status for job in jobs].count(JobState.PENDING) == 1
    apart = [(later - first).total_seconds() for first, later in pairwise(runs[1:])]
    assert apart == pytest.approx([600, 600])


def test_a_view_is_saved_by_name_and_removed(shop: House) -> None:
    person = shop.person("viewer", "acme")
    saved = person.send("/jobs?task=send", "/jobs/view", do="save", name="My <sends>", query="task=send")
    assert '<a href="/jobs?task=send" aria-current="true">My &lt;sends&gt;</a>' in saved
    assert 'aria-label="Remove the view My &lt;sends&gt;"' in person.open("/jobs")
    person.post("/jobs/view", do="remove", name="My <sends>")
    assert "My &lt;sends&gt;" not in person.open("/jobs")
    put(shop.app)
    person.post("/jobs/view", do="columns", column="queue")
    assert ">Queue</th>" in (page := person.open("/jobs"))
    assert ">Arguments</th>" not in page


def test_the_panel_shows_one_job_next_to_the_list(shop: House) -> None:
    (job,) = put(shop.app, args={"to": "ada"})
    page = shop.person("operator", "acme").open(f"/jobs?job={job.id}")
    panel = page[page.index('<aside id="panel"') :]
    assert str(job.id) in panel
    assert "&#34;to&#34;: &#34;ada&#34;" in panel
    assert "Job not found" in shop.person("operator", "other").open(f"/jobs?job={job.id}")


def test_a_bulk_action_on_a_list_with_archived_jobs_names_the_live_jobs_it_applies_to(shop: House) -> None:
    put(shop.app, "send", number=2)
    shop.drain()
    assert shop.app.archive.run(older_than=0).archived == 2
    put(shop.app, "send", number=1)
    person = shop.person("operator", "acme")
    page = person.open("/jobs?task=send&tiers=tables")
    assert len(shown(page)) == 3
    assert 'href="/jobs/bulk?task=send&amp;tiers=tables"' in page
    asked = person.open("/jobs/bulk?act=cancel&task=send&tiers=tables")
    assert "Cancel 1 job?" in asked
    assert "Archived jobs on the list are not affected" in asked
    assert 'href="/jobs?task=send&amp;tiers=tables"' in asked
    assert "Archived jobs" not in person.open("/jobs/bulk?act=cancel&task=send")


def test_a_page_does_not_wait_for_the_counts_of_its_tabs(
    shop: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(shop.app, number=3)
    may_count = threading.Event()
    count_all = jobs_page._count_all

    def count_slowly(*values: Any) -> dict[str, int]:
        assert may_count.wait(60)
        return count_all(*values)

    monkeypatch.setattr(jobs_page, "_count_all", count_slowly)
    monkeypatch.setattr(jobs_page, "COUNTED", 2)
    person = shop.person("viewer", "acme")
    page = person.open("/jobs")
    assert len(shown(page)) == 3
    assert 'class="count"' in page
    may_count.set()
