"""Shared renderings of live updates: reuse, invalidation and rate limit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.interfaces.dashboard.kit import House, Person
from tests.interfaces.rest.kit import declare

from tidemill import App, ManualClock
from tidemill.dashboard.page_request import LIVE
from tidemill.domain.filters import ALL_TENANTS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def shop(clock: ManualClock) -> Iterator[House]:
    """A site with a manual clock."""
    with App("memory://", migrate=True, clock=clock) as app:
        declare(app)
        made = House(app)
        yield made
        made.close()


def look(person: Person, path: str = "/queues") -> str | None:
    """The response to a live update; ``None`` if the script must retry later."""
    answer = person.ask("GET", path, headers={LIVE: "1"})
    assert answer.status_code in (200, 204), answer.text
    return answer.text if answer.status_code == 200 else None


def test_tabs_of_the_same_role_share_a_rendering_for_a_second(shop: House, clock: ManualClock) -> None:
    first = look(shop.person("operator"))
    shop.app.control.pause(
        "queue", "mail", reason="the letters are wrong"
    )  # from outside: the site is not notified yet
    assert look(shop.person("operator")) == first
    assert "the letters are wrong" in (look(shop.person("admin")) or "")
    clock.advance(timedelta(seconds=1))
    assert "the letters are wrong" in (look(shop.person("operator")) or "")


def test_readers_with_different_columns_share_no_rendering(shop: House) -> None:
    shop.app.enqueue("send", to="ada")
    with contextlib.closing(Person(shop, "operator", ALL_TENANTS)) as other:
        person = shop.person("operator")
        assert person.post("/jobs/view", do="columns", column="priority").status_code == 303
        chosen, usual = look(person, "/jobs") or "", look(other, "/jobs") or ""
    assert (">Prio<" in chosen, ">Took<" in chosen) == (True, False)
    assert (">Prio<" in usual, ">Took<" in usual) == (False, True)


def test_an_action_invalidates_all_renderings(shop: House) -> None:
    person, other = shop.person("operator"), shop.person("admin")
    assert "the letters are wrong" not in (look(person) or "the letters are wrong")
    assert "the letters are wrong" not in (look(other) or "the letters are wrong")
    assert person.post("/queues/-/pause", name="mail", reason="the letters are wrong").status_code == 303
    assert "the letters are wrong" in (look(other) or "")
    assert "the letters are wrong" in (look(person) or "")


def test_a_notification_invalidates_a_rendering(shop: House) -> None:
    person = shop.person("operator")
    assert "the letters are wrong" not in (look(person) or "the letters are wrong")
    shop.app.control.pause("queue", "mail", reason="the letters are wrong")
    shop.site.service.changes.told += 1
    assert "the letters are wrong" in (look(person) or "")


def test_an_opened_page_is_not_followed_by_an_older_rendering(shop: House) -> None:
    person = shop.person("operator")
    assert "the letters are wrong" not in (look(person) or "the letters are wrong")
    shop.app.control.pause("queue", "mail", reason="the letters are wrong")
    assert "the letters are wrong" in person.open("/queues")
    assert "the letters are wrong" in (look(person) or "")


def test_the_number_of_renderings_per_second_is_limited(shop: House, clock: ManualClock) -> None:
    person = shop.person("operator")
    made = [look(person, f"/queues?n={number}") for number in range(10)]
    assert [number for number, text in enumerate(made) if text is not None] == [0, 1, 2, 3]
    clock.advance(timedelta(seconds=1))
    assert look(person, "/queues?n=9") is not None
