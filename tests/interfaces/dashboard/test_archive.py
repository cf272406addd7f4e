"""The archive page: policies, tiers and runs."""

from __future__ import annotations

from tests.interfaces.dashboard.crowd import post, words
from tests.interfaces.dashboard.kit import House

from tidemill.dashboard.archive import tiers


def test_retention_is_shown_and_can_be_run_by_administrators(shop: House) -> None:
    viewed = shop.person("viewer").open("/archive")
    assert "Retention on every 1 h" in words(viewed)
    assert "No run yet." in viewed
    assert "Run now" not in viewed
    assert "completed default" in words(viewed)
    after = words(shop.person("admin").send("/archive", "/archive/run"))
    assert "0 jobs were archived." in after
    assert "Copies that differ" in after
    assert shop.app.archive.status().last is not None
    shop.person("admin", "acme").open("/archive", 403)


def test_tiers_have_the_sums_of_their_policies(shop: House) -> None:
    id = post(shop)
    shop.drain()
    assert shop.app.archive.run(older_than=0).archived == 1
    (tier,) = tiers(shop.app.archive.status().policies)
    assert (tier.tier, tier.archived) == ("archive", 1)
    assert tier.size > 100
    assert tier.last_at is not None
    page = shop.person("viewer").open("/archive")
    assert "completed, failed, cancelled, dead_lettered" in words(page)
    # The page searches these jobs.
    assert id[-12:] in shop.person("viewer").open("/jobs?task=send&tiers=tables")


def test_the_page_shows_that_retention_is_off(shop: House) -> None:
    shop.app.control.set("retention.enabled", False)
    page = words(shop.person("viewer").open("/archive"))
    assert "Retention off nothing is archived" in page
    assert "Retention is off." in page
