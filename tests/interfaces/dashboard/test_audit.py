"""The audit page: filters, paging and verification of the hash chain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.interfaces.dashboard.crowd import words
from tests.interfaces.dashboard.kit import House, house

from tidemill import App, acting
from tidemill.clock import ManualClock


def turn(shop: House, number: int, who: str = "ann", queue: str = "mail") -> None:
    with acting(who):
        for _ in range(number):
            shop.app.control.pause("queue", queue, reason="<wind>")
            shop.app.control.resume("queue", queue)


def test_an_entry_shows_the_values_before_and_after(shop: House) -> None:
    shop.app.control.set("answer", {"of": 41})
    shop.app.control.set("answer", {"of": 42})
    page = shop.person("admin").open("/audit?action=setting.changed")
    assert '<del><span class="sr">before: </span>{&#34;of&#34;: 41}</del>' in page
    assert '<ins><span class="sr">after: </span>{&#34;of&#34;: 42}</ins>' in page
    assert 'href="/settings">setting:answer' in page


def test_entries_are_filtered_by_who_action_and_subject(shop: House) -> None:
    turn(shop, 1)
    turn(shop, 1, "bob", "press")
    person = shop.person("admin")
    page = person.open("/audit?who=bob&action=queue.paused&subject=queue:press")
    assert page.count('data-label="Number"') == 1
    assert "&lt;wind&gt;" in page
    assert "No audit entries match." in person.open("/audit?who=eve")
    assert 'name="who" value="bob"' in page


def test_pages_follow_each_other_without_gaps(shop: House) -> None:
    turn(shop, 60)
    person, path, seen = shop.person("admin"), "/audit?subject=queue:mail", 0
    for _ in range(3):
        page = person.open(path)
        seen += page.count('data-label="Number"')
        if 'rel="next"' not in page:
            break
        path = page.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
        assert "subject=queue%3Amail" in path
    assert seen == 120


def test_entries_are_filtered_by_day() -> None:
    clock = ManualClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    with App("memory://", clock=clock) as app:
        shop = House(app)
        try:
            for _ in range(10):
                turn(shop, 1)
                clock.advance(timedelta(days=1))
            person = shop.person("admin")
            for day, number in (
                ("2026-02-01", 20),
                ("2026-03-01", 20),
                ("2026-03-04", 14),
                ("2026-03-10", 2),
                ("2027-01-01", 0),
            ):
                page = person.open(f"/audit?since={day}&subject=queue:mail")
                assert page.count('data-label="Number"') == number, day
            for wrong in ("yesterday", "2026-13-01"):
                page = person.open(f"/audit?since={wrong}", 422)
                assert "is not a date" in page
            person.open("/audit?since=0001-01-01")
            person.open("/audit?before=-1", 422)
        finally:
            shop.close()


def test_a_key_of_one_tenant_sees_its_own_entries_only(shop: House) -> None:
    turn(shop, 1)
    shop.app.control.pause("tenant", "acme")
    shop.app.control.pause("tenant", "other")
    page = shop.person("admin", "acme").open("/audit")
    main = words(page.partition("<main")[2])
    assert "tenant:acme" in main
    assert "tenant:other" not in main
    assert "queue:mail" not in main
    assert "Verify" not in main


def test_verification_reports_an_intact_chain(shop: House) -> None:
    turn(shop, 2)
    number = len(shop.app.audit.list(tenant="*"))
    person = shop.person("admin")
    page = words(person.open("/audit/verify"))
    number = len(shop.app.audit.list(tenant="*"))
    assert f"Intact: {number} entries" in page
    assert shop.app.audit.verify().head in page
    assert 'href="/audit/verify"' in person.open("/audit")
    elsewhere = person.ask("GET", "/audit/verify", headers={"sec-fetch-site": "cross-site"})
    assert elsewhere.status_code == 403


def test_verification_reports_a_changed_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    with house() as shop:
        turn(shop, 2)
        person = shop.person("admin")
        whole = shop.app.store.audit

        def changed(**how: object) -> object:
            found = whole(**how)  # type: ignore[arg-type]
            return [each._replace(hash="0" * 64) if each.number == 3 else each for each in found]

        monkeypatch.setattr(shop.app.store, "audit", changed)
        assert "Broken at entry 3" in person.open("/audit/verify")
