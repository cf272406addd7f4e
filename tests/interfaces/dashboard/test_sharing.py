"""The script's own requests: tabs that show the same share one rendering, and none is shown that lacks what has happened."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.interfaces.dashboard.kit import House, Person
from tests.interfaces.rest.kit import declare

from tidemill import App, ManualClock
from tidemill.dashboard.visit import LIVE


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def shop(clock: ManualClock) -> Iterator[House]:
    """A site whose second lasts until it is told that it is over."""
    with App("memory://", migrate=True, clock=clock) as app:
        declare(app)
        made = House(app)
        yield made
        made.close()


def look(person: Person, path: str = "/queues") -> str | None:
    """What the script would be told; None where it is to come again later."""
    answer = person.ask("GET", path, headers={LIVE: "1"})
    assert answer.status_code in (200, 204), answer.text
    return answer.text if answer.status_code == 200 else None


def test_tabs_of_the_same_role_see_the_same_rendering_for_a_second(shop: House, clock: ManualClock) -> None:
    first = look(shop.person("operator"))
    shop.app.control.pause(
        "queue", "mail", reason="the letters are wrong"
    )  # elsewhere: nobody here was told yet
    assert look(shop.person("operator")) == first
    assert "the letters are wrong" in (look(shop.person("admin")) or "")
    clock.advance(timedelta(seconds=1))
    assert "the letters are wrong" in (look(shop.person("operator")) or "")


def test_a_rendering_from_before_an_act_is_shown_to_nobody_after_it(shop: House) -> None:
    person, other = shop.person("operator"), shop.person("admin")
    assert "the letters are wrong" not in (look(person) or "the letters are wrong")
    assert "the letters are wrong" not in (look(other) or "the letters are wrong")
    assert person.post("/queues/-/pause", name="mail", reason="the letters are wrong").status_code == 303
    assert "the letters are wrong" in (look(other) or "")
    assert "the letters are wrong" in (look(person) or "")


def test_a_rendering_from_before_something_was_told_is_shown_to_nobody_after_it(shop: House) -> None:
    person = shop.person("operator")
    assert "the letters are wrong" not in (look(person) or "the letters are wrong")
    shop.app.control.pause("queue", "mail", reason="the letters are wrong")
    shop.site.service.changes.told += 1
    assert "the letters are wrong" in (look(person) or "")


def test_a_page_that_was_opened_is_not_followed_by_an_older_rendering(shop: House) -> None:
    person = shop.person("operator")
    assert "the letters are wrong" not in (look(person) or "the letters are wrong")
    shop.app.control.pause("queue", "mail", reason="the letters are wrong")
    assert "the letters are wrong" in person.open("/queues")
    assert "the letters are wrong" in (look(person) or "")


def test_only_so_many_renderings_are_made_a_second(shop: House, clock: ManualClock) -> None:
    person = shop.person("operator")
    made = [look(person, f"/queues?n={number}") for number in range(10)]
    assert [number for number, text in enumerate(made) if text is not None] == [0, 1, 2, 3]
    clock.advance(timedelta(seconds=1))
    assert look(person, "/queues?n=9") is not None
