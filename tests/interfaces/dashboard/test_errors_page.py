"""``/errors``: failures grouped by cause, their statuses, and retries of one group."""

from __future__ import annotations

import re
from typing import Any

from tests.interfaces.dashboard.jobs_kit import put, shown
from tests.interfaces.dashboard.kit import House, forms

from tidemill.domain.states import JobState


def troubled(shop: House) -> None:
    """Fail five jobs in one place, with three variants of the message, and four in this tenant."""
    for number in range(3):
        put(shop.app, "fail", args={"words": f"order {number} was not found in the shop"})
    put(shop.app, "fail", args={"words": "card expired"})
    put(shop.app, "fail", tenant="other", args={"words": "somebody else's trouble"})
    shop.drain()


def kinds(page: str) -> list[str]:
    return re.findall(r'data-href="/errors/(\w+)', page)


def test_a_window_without_failures_is_reported(shop: House) -> None:
    person = shop.person("viewer", "acme")
    assert "Nothing failed in the last 24h." in person.open("/errors")
    for status in ("new", "regressed", "muted", "resolved"):
        assert 'class="empty"' in person.open(f"/errors?status={status}")


def test_failures_of_one_place_are_one_group_per_tenant(shop: House) -> None:
    troubled(shop)
    page = shop.person("viewer", "acme").open("/errors?window=1h")
    assert len(kinds(page)) == 1
    assert "somebody else" not in page
    assert "4 failures in the last 1h" in page
    assert "in fail" in page
    assert 'class="spark"' in page
    assert "Retry" not in page
    assert "5 failures" in shop.person("viewer", "*").open("/errors")


def test_a_group_shows_its_variants_its_jobs_and_links_to_them(shop: House) -> None:
    troubled(shop)
    person = shop.person("viewer", "acme")
    page = person.open(f"/errors/{kinds(person.open('/errors'))[0]}")
    assert page.count('<tr data-href="/jobs/') == 4
    assert "in <code>fail</code>" in page
    assert page.index("order # was not found in the shop") < page.rindex("card expired")
    link = re.search(r'href="(/jobs\?error_group=\w+)">4 jobs</a>', page)
    assert link is not None
    assert len(shown(person.open(link[1]))) == 4
    assert "Mute" not in page
    person.open("/errors/0123456789abcdef", 404)


def test_a_failed_job_links_to_its_group(shop: House) -> None:
    troubled(shop)
    person = shop.person("viewer", "acme")
    key = kinds(person.open("/errors"))[0]
    job = shown(person.open("/jobs?status=failed"))[0]
    assert f'href="/errors/{key}"' in person.open(f"/jobs/{job}")


def test_a_group_is_muted_resolved_and_opened_again(shop: House) -> None:
    troubled(shop)
    person = shop.person("operator", "acme")
    key = kinds(person.open("/errors"))[0]
    page = person.send("/errors", f"/errors/{key}/mark", mark="mute")
    assert "is muted" in page
    assert kinds(page) == []
    assert kinds(person.open("/errors?status=muted")) == [key]
    assert "is open again." in person.send(f"/errors/{key}", f"/errors/{key}/mark", mark="unmute")
    assert "is resolved" in person.send("/errors", f"/errors/{key}/mark", mark="resolve")
    assert kinds(person.open("/errors?status=resolved")) == [key]
    put(shop.app, "fail", args={"words": "card expired"})
    shop.drain()
    page = person.open("/errors?status=regressed")
    assert kinds(page) == [key]
    assert "e-regressed" in page
    assert person.post(f"/errors/{key}/mark", mark="x").status_code == 422
    assert shop.person("viewer", "acme").post(f"/errors/{key}/mark", mark="mute").status_code == 403


def test_an_error_is_new_since_the_latest_deploy(shop: House) -> None:
    shop.app.store.note_deploy("shop:app", "2.7", now=shop.app.clock.now())
    troubled(shop)
    page = shop.person("viewer", "acme").open("/errors?status=new")
    assert len(kinds(page)) == 1
    assert "Release <strong>2.7</strong> of shop:app started" in page


def test_a_group_is_retried_after_confirmation(shop: House) -> None:
    troubled(shop)
    person = shop.person("operator", "acme")
    key = kinds(person.open("/errors"))[0]
    (form,) = [form for form in forms(person.open("/errors")) if f"/errors/{key}/retry" in form.action]
    answer = person.ask("POST", form.action, data=dict(form.fields))
    assert answer.status_code == 200
    assert "Retry 4 jobs?" in answer.text
    assert "<strong>4 failed</strong>" in answer.text
    assert count(shop, "failed") == 4, "nothing is done before the answer"
    (sure,) = [form for form in forms(answer.text) if "/retry" in form.action]
    done = person.ask("POST", sure.action, data={**dict(sure.fields), "spread": ""})
    assert done.status_code == 303
    assert "4 jobs with " in person.open(done.headers["location"])
    assert count(shop, "failed") == 0
    assert count(shop, "pending") == 4
    viewer = shop.person("viewer", "acme")
    assert viewer.post(f"/errors/{key}/retry", sure="1").status_code == 403


def test_a_retry_can_be_spread_over_time(shop: House) -> None:
    troubled(shop)
    person = shop.person("operator", "acme")
    key = kinds(person.open("/errors"))[0]
    assert person.post(f"/errors/{key}/retry", sure="1", spread="10m").status_code == 303
    assert count(shop, "scheduled") == 3


def test_a_group_of_another_tenant_is_not_found(shop: House) -> None:
    put(shop.app, "fail", tenant="other", args={"words": "somebody else's trouble"})
    shop.drain()
    other = kinds(shop.person("viewer", "other").open("/errors"))[0]
    person = shop.person("operator", "acme")
    assert person.ask("GET", f"/errors/{other}").status_code == 404
    assert person.post(f"/errors/{other}/retry", sure="1").status_code == 404
    assert person.post(f"/errors/{other}/mark", mark="mute").status_code == 404


def count(shop: House, state: str) -> Any:
    return shop.app.jobs.counts(tenant="acme", status=state).get(JobState(state), 0)
