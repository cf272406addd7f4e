"""``/jobs/{id}``: the page of one job, its actions and enqueueing it again."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from tests.interfaces.dashboard.jobs_kit import put, shown
from tests.interfaces.dashboard.kit import House, forms, house

from tidemill import Context
from tidemill.domain.job import NewJob
from tidemill.domain.states import JobState
from tidemill.ids import new_id


def test_the_page_shows_all_attributes_of_a_job(shop: House) -> None:
    (parent,) = put(shop.app)
    (job,) = put(
        shop.app, tags=["red"], metadata={"customer": "c-9"}, reference=("order", "17"), correlation_id="story-1",
        parent=parent.id, priority=7,
    )  # fmt: skip
    shop.drain()
    person = shop.person("operator", "acme")
    page = person.open(f"/jobs/{job.id}")
    for words in (
        "completed", "It completed", str(job.id), "&#34;to&#34;: &#34;ada&#34;", "sent to ada", "c-9", "order:17", "story-1",
        "t0ps3cret", "t-succeeded", "send.using(priority=7, tags=[&#39;red&#39;]).enqueue(to=&#39;ada&#39;)",
        "curl -X POST http://shop.example/api/jobs",
    ):  # fmt: skip
        assert words in page, words
    assert f'href="/jobs/{parent.id}"' in page
    assert f'href="/jobs/{job.id}"' in person.open(f"/jobs/{parent.id}"), "the parent shows its child"


def test_viewers_see_masked_secrets_and_no_buttons(shop: House) -> None:
    (job,) = put(shop.app, args={"to": "ada", "password": "tops3cret"}, metadata={"api_key": "k3y"})
    shop.drain()
    viewer = shop.person("viewer", "acme")
    page = viewer.open(f"/jobs/{job.id}")
    for secret in ("tops3cret", "t0ps3cret", "k3y"):
        assert secret not in page
    assert "***" in page
    assert not any("/jobs/" in form.action for form in forms(page) if form.method == "post")
    assert "Edit and enqueue" not in page
    for path in ("retry", "cancel", "approve", "reject", "delete", "again"):
        assert viewer.post(f"/jobs/{job.id}/{path}").status_code == 403
    assert viewer.ask("GET", f"/jobs/{job.id}/again").status_code == 403
    assert shop.person("operator", "acme").ask("GET", f"/jobs/{job.id}/delete").status_code == 403


def test_a_job_of_another_tenant_is_not_found_and_not_changed(shop: House) -> None:
    (job,) = put(shop.app, tenant="other")
    person = shop.person("super_admin", "acme")
    assert "Job not found" in person.open(f"/jobs/{job.id}", 404)
    for path in ("retry", "cancel", "approve", "reject", "delete", "again"):
        assert person.post(f"/jobs/{job.id}/{path}").status_code == 404
    assert job.refresh().status is JobState.PENDING


def test_a_deleted_job_is_reported(shop: House) -> None:
    person = shop.person("viewer", "acme")
    assert "was deleted" in person.open(f"/jobs/{uuid4()}", 404)
    assert person.ask("GET", "/jobs/nonsense").status_code == 404


def test_an_archived_job_is_shown_in_full_and_without_actions(shop: House) -> None:
    (job,) = put(shop.app)
    shop.drain()
    assert shop.app.archive.run(older_than=timedelta(0)).archived == 1
    page = shop.person("super_admin", "acme").open(f"/jobs/{job.id}")
    assert '<span class="tag">archived</span>' in page
    assert "and cannot be changed" in page
    assert "t0ps3cret" in page  # from its log lines
    assert "succeeded" in page  # from its executions
    assert "Edit and enqueue again" in page
    for act in ("retry", "cancel", "delete"):
        assert f'/jobs/{job.id}/{act}"' not in page
    admin = shop.person("super_admin", "acme")
    assert "An administrator can erase it in every tier" in admin.open(f"/jobs/{job.id}/delete")
    assert "Enqueued as a new job" in admin.send(f"/jobs/{job.id}/again", f"/jobs/{job.id}/again")
    refused = admin.post(f"/jobs/{job.id}/retry")
    assert refused.headers["location"] == f"/jobs/{job.id}"
    assert "it was archived" in admin.open(f"/jobs/{job.id}")


def test_an_archived_job_is_restored_and_erased_by_an_admin(shop: House) -> None:
    (job,) = put(shop.app)
    shop.drain()
    assert shop.app.archive.run(older_than=timedelta(0)).archived == 1
    admin, operator = shop.person("super_admin", "acme"), shop.person("operator", "acme")
    assert "This job is archived in tier <strong>archive</strong>" in operator.open(f"/jobs/{job.id}")
    assert "Restore" not in operator.open(f"/jobs/{job.id}").partition('id="acts"')[2].partition("</div>")[0]
    assert str(job.id) not in admin.open("/jobs")
    assert str(job.id) in admin.open("/jobs?tiers=all")
    admin.send(f"/jobs/{job.id}", f"/jobs/{job.id}/restore")
    assert "This job is archived" not in admin.open(f"/jobs/{job.id}")
    assert "1 in live, 1 in archive" in admin.open(f"/jobs/{job.id}/erase")
    admin.send(f"/jobs/{job.id}/erase", f"/jobs/{job.id}/erase")
    assert "was deleted" in admin.open(f"/jobs/{job.id}", 404)
    assert str(job.id) not in admin.open("/jobs?tiers=all")


def test_a_pending_job_shows_why_it_waits(shop: House) -> None:
    (job,) = put(shop.app)
    assert "No worker is alive; start one." in shop.person("viewer", "acme").open(f"/jobs/{job.id}")


def test_progress_and_stages_of_a_running_job_are_shown(shop: House) -> None:
    seen: list[str] = []
    person = shop.person("viewer", "acme")

    @shop.app.task(name="paint", stages=("ground", "colour", "varnish"))
    def paint(ctx: Context) -> None:
        with ctx.stage("ground"):
            ctx.log("dry", level="warning")
        with ctx.stage("colour"):
            ctx.progress(3, 12, "third wall")
            seen.append(person.open(f"/jobs/{ctx.job_id}"))

    with shop.app.tenant("acme"):
        job = paint.enqueue()
    shop.drain()
    (page,) = seen
    for words in ("25 %", "step 3 of 12", "third wall", "t-running", 'class="l-warning"'):
        assert words in page, words
    assert '<span class="label">colour <span class="dim">running</span></span>' in page
    assert '<span class="label">varnish <span class="dim">ahead</span></span>' in page
    after = person.open(f"/jobs/{job.id}?level=warning")
    assert re.search(
        r'<span class="label">ground</span>\s+<svg [^>]+><rect class="t-succeeded"[^\n]*\s+<span class="r">[^<]+s</span>',
        after,
    )
    assert "dry" in after
    assert '<span class="said-line">dry' not in person.open(f"/jobs/{job.id}?level=error")
    assert "No line matches." in person.open(f"/jobs/{job.id}?find=nothing")


def test_a_long_log_starts_at_its_end_and_links_to_older_lines(shop: House) -> None:
    (job,) = put(shop.app, "talk", args={"lines": 450})
    shop.drain()
    person = shop.person("viewer", "acme")
    page = person.open(f"/jobs/{job.id}")
    assert page.count("line ") >= 200
    assert "line 449" in page
    assert "line 249<" not in page
    older = re.search(r'href="([^"]+before=\d+)#logs">Older', page)
    assert older is not None
    page = person.open(older[1].replace("&amp;", "&"))
    assert "line 249<" in page
    assert "line 449" not in page
    assert "The last lines" in page


def test_an_error_shows_the_location_in_user_code(shop: House) -> None:
    (job,) = put(shop.app, "fail", args={"words": "no <stock>"})
    shop.drain()
    page = shop.person("viewer", "acme").open(f"/jobs/{job.id}")
    assert "PermanentError</strong>: no &lt;stock&gt;" in page
    assert "Raised in your code at <code>" in page
    assert "in <code>fail</code>" in page


def test_each_action_is_a_form_on_the_page(shop: House) -> None:
    person = shop.person("admin", "acme")
    (waiting,) = put(shop.app, delay=timedelta(hours=1))
    page = person.send(f"/jobs/{waiting.id}", "/cancel", reason="wrong address")
    assert "The job is cancelled." in page
    assert "wrong address" in page
    assert "The job is pending again" in person.send(f"/jobs/{waiting.id}", "/retry")
    shop.drain()
    approved, rejected = put(shop.app, "look", number=2)
    shop.drain()
    assert "is this right?" in person.open(f"/jobs/{approved.id}")
    assert "Awaiting review" in person.open(f"/jobs/{approved.id}")
    page = person.send(f"/jobs/{approved.id}", "/approve", comment="looks right")
    assert "Approved: the job is completed." in page
    assert "looks right" in page
    assert "Rejected: the job has failed." in person.send(
        f"/jobs/{rejected.id}", "/reject", comment="blurred"
    )
    assert rejected.refresh().reason == "blurred"
    assert "is deleted." in person.send(f"/jobs/{rejected.id}/delete", "/delete")
    assert "Job not found" in person.open(f"/jobs/{rejected.id}", 404)


def test_a_waiting_job_is_rescheduled_and_changed_on_its_page(shop: House) -> None:
    person = shop.person("operator", "acme")
    (job,) = put(shop.app)
    page = person.send(f"/jobs/{job.id}", "/change", queue="fast", priority="9")
    assert "The job is in queue fast with priority 9." in page
    assert job.refresh().row.priority == 9
    page = person.send(f"/jobs/{job.id}", "/reschedule", at="2h")
    assert "The job is due at" in page
    assert job.refresh().status.value == "scheduled"
    assert "is not a time; write 2026-03-01 06:00 (UTC)" in person.send(
        f"/jobs/{job.id}", "/reschedule", at="soon"
    )
    assert "to the past" in person.send(f"/jobs/{job.id}", "/reschedule", at="2001-01-01 06:00")
    assert "give a whole number from -100 to 100" in person.send(f"/jobs/{job.id}", "/change", priority="500")
    assert "is not a queue&#39;s name" in person.send(f"/jobs/{job.id}", "/change", queue="*")
    job.cancel()
    page = person.open(f"/jobs/{job.id}")
    assert "do-change" not in page
    assert "do-reschedule" not in page


def test_a_job_is_cancelled_together_with_its_children(shop: House) -> None:
    person = shop.person("operator", "acme")
    (job,) = put(shop.app, delay=timedelta(hours=1))
    (child,) = put(shop.app, parent=job.id)
    (other,) = put(shop.app)
    person.send(f"/jobs/{job.id}", "/cancel", reason="enough", children="1")
    assert (child.refresh().reason, other.refresh().reason) == ("enough", None)


def test_an_action_that_is_no_longer_possible_is_reported_on_the_page(shop: House) -> None:
    (job,) = put(shop.app)
    shop.drain()
    person = shop.person("admin", "acme")
    for path in ("retry", "cancel", "approve"):
        answer = person.post(f"/jobs/{job.id}/{path}")
        assert answer.status_code == 303
        page = person.open(answer.headers["location"])
        assert 'class="said bad"' in page
        assert f"Cannot {path} job {job.id}: it is completed" in page
    (pending,) = put(shop.app)
    assert "Only a job that has ended can be deleted" in person.open(f"/jobs/{pending.id}/delete")
    answer = person.post(f"/jobs/{pending.id}/delete")
    assert "Cannot delete job" in person.open(answer.headers["location"])
    assert pending.refresh().status is JobState.PENDING


# Enqueueing again
# ---------------------------------------------------------------------------------------------------------


def test_a_job_is_enqueued_again_with_other_arguments(shop: House) -> None:
    (job,) = put(shop.app, tags=["red"], correlation_id="story-1")
    shop.drain()
    person = shop.person("operator", "acme")
    page = person.send(
        f"/jobs/{job.id}/again", "/again", args='{"to": "grace"}', priority="9", queue="fast", delay="2h"
    )
    assert "Enqueued as a new job." in page
    (made,) = [each for each in shop.app.jobs.list(tenant="acme").items if each.id != job.id]
    assert (made.args, made.priority, made.queue, made.tags) == ({"to": "grace"}, 9, "fast", ("red",))
    assert made.status is JobState.SCHEDULED
    assert made.correlation_id == "story-1"
    assert job.refresh().status is JobState.COMPLETED


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"args": "{"}, "this is not JSON"),
        ({"args": "[1]"}, "this is not a JSON object"),
        ({"args": '{"to": 7}'}, "to: "),
        ({"args": '{"nobody": 7}'}, "nobody"),
        ({"priority": "101"}, "from -100 to 100"),
        ({"priority": "high"}, "from -100 to 100"),
        ({"delay": "soon"}, "is not a duration"),
        ({"queue": "@node"}, "is not a queue&#39;s name"),
    ],
)
def test_an_error_is_shown_next_to_its_field_and_the_input_is_kept(
    shop: House, fields: dict[str, str], words: str
) -> None:
    (job,) = put(shop.app)
    person = shop.person("operator", "acme")
    typed = {"args": '{"to": "grace"}', "queue": "mail", "priority": "1", "delay": "", **fields}
    answer = person.post(f"/jobs/{job.id}/again", **typed)
    assert answer.status_code == 422
    ((name, value),) = fields.items()
    wrong = re.search(rf'id="wrong-{name}" class="bad-words" role="alert">([^<]+)<', answer.text)
    assert wrong is not None, answer.text
    assert words in wrong[1]
    kept = dict(next(form for form in forms(answer.text) if form.action.endswith("/again")).fields)
    assert kept[name] == value
    assert shop.app.jobs.count(tenant="acme") == 1


def test_a_task_unknown_to_this_server_is_not_enqueued(shop: House) -> None:
    id = new_id()
    shop.app.store.enqueue([NewJob(id, "elsewhere", tenant="acme")])
    person = shop.person("operator", "acme")
    assert "does not know task elsewhere" in person.open(f"/jobs/{id}/again")
    answer = person.post(f"/jobs/{id}/again", args="{}")
    assert answer.status_code == 422
    assert "no task is named" in answer.text


# All pages
# ---------------------------------------------------------------------------------------------------------------


def opened(shop: House) -> None:
    """Open every page about jobs and errors, with jobs in several states."""
    jobs = [*put(shop.app, tags=["red"]), *put(shop.app, "fail"), *put(shop.app, "look")]
    shop.drain()
    jobs += put(shop.app)
    person = shop.person("super_admin", "acme")
    paths = [f"/jobs/{job.id}{more}" for job in jobs for more in ("", "/again", "/delete")]
    paths += ["/jobs", "/jobs?text=RED", "/jobs?text=permanent&status=failed", "/jobs/bulk?status=failed"]
    paths += ["/jobs/bulk?text=no&act=cancel", "/errors", "/errors?window=7d"]
    for path in paths:
        page = person.open(path)
        assert " style=" not in page, path
        assert "<script>" not in page, path
        assert page.count("<h1") == 1, path
        for form in forms(page):
            assert form.method == "get" or dict(form.fields).get("csrf") or "dialog" in form.method, path
    assert shown(person.open("/jobs?text=RED")) == [str(jobs[0].id)]


def test_every_page_is_valid(shop: House) -> None:
    opened(shop)


def test_every_page_is_valid_with_a_sqlite_store(tmp_path: Path) -> None:
    with house(f"sqlite:///{tmp_path}/jobs.db") as shop:
        opened(shop)


def test_every_page_is_valid_with_a_postgresql_store(fresh_postgres_url: str) -> None:
    with house(fresh_postgres_url) as shop:
        opened(shop)


def test_a_read_only_dashboard_has_no_buttons() -> None:
    with house(read_only=True) as shop:
        (job,) = put(shop.app, "fail")
        shop.drain()
        person = shop.person("super_admin", "acme")
        for path in ("/jobs", f"/jobs/{job.id}", "/errors"):
            page = person.open(path)
            assert not re.search(r"Retry|Delete…|enqueue again", page), path
        assert person.post(f"/jobs/{job.id}/retry").status_code == 403


def test_the_page_lists_the_recorded_steps_of_a_durable_function(shop: House) -> None:
    @shop.app.task(name="durable")
    def durable(ctx: Context) -> int:
        value = ctx.step("count <b>", len, "abc")
        ctx.sleep("rest", "1h")
        return value

    job = durable.using(tenant="acme").enqueue()
    shop.drain()
    page = shop.person("viewer", "acme").open(f"/jobs/{job.id}")
    table = page.partition('<section id="steps"')[2].partition("</section>")[0]
    assert "count &lt;b&gt;" in table
    assert re.findall(r'data-label="Recorded">(\w+)<', table) == ["value", "sleep"]
    (plain,) = put(shop.app)
    assert '<section id="steps"' not in shop.person("viewer", "acme").open(f"/jobs/{plain.id}")


def test_a_traceback_in_the_log_is_folded(shop: House) -> None:
    """The page shows the traceback of an attempt above the log, so a line of the log shows its first line."""

    @shop.app.task(name="tell")
    def tell(ctx: Context) -> None:
        ctx.log("attempt 1 failed: <no>\nTraceback (most recent call last):\n  File <x>", level="error")

    (job,) = put(shop.app, "tell", args={})
    shop.drain()
    page = shop.person("viewer", "acme").open(f"/jobs/{job.id}")
    assert (
        'attempt 1 failed: &lt;no&gt;<details class="frames"><summary>Traceback</summary>'
        "<pre>Traceback (most recent call last):\n  File &lt;x&gt;</pre></details>" in page
    )
