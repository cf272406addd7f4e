"""``/errors``: failures grouped by message, and retries of one group."""

from __future__ import annotations

import re
from typing import Any

from tests.interfaces.dashboard.jobs_kit import put, shown
from tests.interfaces.dashboard.kit import House, forms

from tidemill.domain.states import JobState


def troubled(shop: House) -> None:
    for number in range(3):
        put(shop.app, "fail", args={"words": f"order {number} was not found in the shop"})
    put(shop.app, "fail", args={"words": "card expired"})
    put(shop.app, "fail", tenant="other", args={"words": "somebody else's trouble"})
    shop.drain()


def kinds(page: str) -> list[str]:
    return re.findall(r'data-href="/errors/(\w+)', page)


def test_a_window_without_failures_is_reported(shop: House) -> None:
    assert "Nothing failed in the last 24h." in shop.person("viewer", "acme").open("/errors")


def test_failures_are_grouped_with_the_most_frequent_first_and_per_tenant(shop: House) -> None:
    troubled(shop)
    page = shop.person("viewer", "acme").open("/errors?window=1h")
    assert len(kinds(page)) == 2
    assert page.index("was not found in the shop") < page.index("card expired")
    assert "somebody else" not in page
    assert "4 jobs failed in the last 1h" in page
    assert 'class="spark"' in page
    assert "Retry all" not in page
    assert len(kinds(shop.person("viewer", "*").open("/errors"))) == 3


def test_a_group_shows_its_jobs_and_links_to_them(shop: House) -> None:
    troubled(shop)
    person = shop.person("viewer", "acme")
    page = person.open(f"/errors/{kinds(person.open('/errors'))[0]}")
    assert len(shown(page)) == 3
    assert "in <code>fail</code>" in page
    link = re.search(r'href="(/jobs\?task=fail[^"]+)">3</a>', page)
    assert link is not None
    assert len(shown(person.open(link[1].replace("&amp;", "&")))) == 3
    assert "Error not found" in person.open("/errors/0123456789abcdef", 404)


def test_a_group_is_retried_after_confirmation(shop: House) -> None:
    troubled(shop)
    person = shop.person("operator", "acme")
    key = kinds(person.open("/errors"))[0]
    (form,) = [form for form in forms(person.open("/errors")) if f"/errors/{key}/retry" in form.action]
    answer = person.ask("POST", form.action, data=dict(form.fields))
    assert answer.status_code == 200
    assert "Retry 3 jobs?" in answer.text
    assert "<strong>3 failed</strong>" in answer.text
    assert count(shop, "failed") == 4, "nothing is done before the answer"
    (sure,) = [form for form in forms(answer.text) if "/retry" in form.action]
    done = person.ask("POST", sure.action, data=dict(sure.fields))
    assert done.status_code == 303
    assert "3 jobs of task fail retried." in person.open(done.headers["location"])
    assert count(shop, "failed") == 1
    assert count(shop, "pending") == 3
    viewer = shop.person("viewer", "acme")
    assert viewer.post(f"/errors/{key}/retry", sure="1").status_code == 403


def test_a_group_of_another_tenant_is_not_found(shop: House) -> None:
    troubled(shop)
    other = kinds(shop.person("viewer", "other").open("/errors"))[0]
    person = shop.person("operator", "acme")
    assert person.ask("GET", f"/errors/{other}").status_code == 404
    assert person.post(f"/errors/{other}/retry", sure="1").status_code == 404


def count(shop: House, state: str) -> Any:
    return shop.app.jobs.counts(tenant="acme", status=state).get(JobState(state), 0)
