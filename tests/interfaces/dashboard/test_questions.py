"""Questions of jobs to people, in the dashboard."""

from __future__ import annotations

from pydantic import BaseModel
from tests.interfaces.dashboard.kit import House, forms

from tidemill import Context
from tidemill.client.jobs.handle import Job


class Decision(BaseModel):
    """An answer of a person."""

    granted: bool
    comment: str = ""


def asked(shop: House) -> Job[object]:
    """Return a job that asks a person."""

    def ask(ctx: Context) -> object:
        decision = ctx.ask(Decision, to="finance", message="Pay the <invoice>?")
        return None if decision is None else [decision.granted, decision.comment]

    task = shop.app.task(name="asks")(ask)
    with shop.app.tenant("acme"):
        job = task.enqueue()
    shop.drain()
    return job


def test_the_page_of_a_job_has_a_form_for_its_question(shop: House) -> None:
    job = asked(shop)
    person = shop.person("operator", "acme")
    page = person.open(f"/jobs/{job.id}")
    assert "for finance" in page
    assert "Pay the &lt;invoice&gt;?" in page
    assert "It waits for a person to answer Decision" in page
    (form,) = [form for form in forms(page) if form.action.endswith("/answer")]
    assert {"arg.granted", "arg.comment"} <= {name for name, _ in form.fields}
    person.post(f"/jobs/{job.id}/answer", **{"arg.granted": "true", "arg.comment": "fine"})
    shop.drain()
    assert job.refresh().result(timeout=0) == [True, "fine"]
    assert "Pay the" not in person.open(f"/jobs/{job.id}")


def test_an_answer_that_does_not_fit_is_refused_with_the_reason(shop: House) -> None:
    job = asked(shop)
    person = shop.person("operator", "acme")
    person.post(f"/jobs/{job.id}/answer", **{"arg.comment": "no decision"})
    assert "granted: is missing" in person.open(f"/jobs/{job.id}")
    assert len(shop.app.signals.questions(job=job.id, tenant="acme")) == 1


def test_viewers_see_the_question_without_a_form(shop: House) -> None:
    job = asked(shop)
    viewer = shop.person("viewer", "acme")
    page = viewer.open(f"/jobs/{job.id}")
    assert "Pay the" in page
    assert not any(form.action.endswith("/answer") for form in forms(page))
    assert viewer.post(f"/jobs/{job.id}/answer", **{"arg.granted": "true"}).status_code == 403


def test_questions_are_listed_with_the_reviews(shop: House) -> None:
    job = asked(shop)
    person = shop.person("operator", "acme")
    assert f"/jobs/{job.id}#question" in person.open("/jobs?status=review_needed")
    assert "#question" not in person.open("/jobs")
    assert "#question" not in shop.person("operator", "other").open("/jobs?status=review_needed")


def test_unread_signals_are_shown(shop: House) -> None:
    job = asked(shop)
    shop.app.signals.send(job.id, "note", {"text": "hello"}, tenant="acme")
    assert "Unread signals" in shop.person("operator", "acme").open(f"/jobs/{job.id}")
