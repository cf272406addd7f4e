"""The tenants page: comparison of tenants, pauses and weights."""

from __future__ import annotations

from tests.interfaces.dashboard.crowd import post, words
from tests.interfaces.dashboard.kit import House


def fill(shop: House) -> None:
    post(shop)
    post(shop, "fail", words="no")
    post(shop, tenant="other")
    shop.drain()
    for _ in range(3):
        post(shop)


def test_tenants_are_listed_with_their_counts(shop: House) -> None:
    fill(shop)
    page = shop.person("viewer").open("/tenants")
    read = words(page)
    assert "acme 2 1 50 %" in read
    assert "other 1 0 0 %" in read
    assert 'href="/?tenant=acme"' in page
    assert "/jobs?tenant=acme&amp;status=pending" in page
    assert "<form" not in page.partition("<main")[2].partition("</main>")[0]
    assert "Pause" not in read


def test_a_tenant_shows_its_pace_run_time_failures_and_limits(shop: House) -> None:
    fill(shop)
    shop.app.limits.set("tenant", 5)
    shop.app.limits.set("tenant/acme", 2)
    shop.app.limits.set("depth/tenant/acme", 3)
    page = shop.person("viewer").open("/tenants?window=1h")
    acme, other = (
        next(part.partition("</tr>")[0] for part in page.split("<tr") if f"<strong>{name}</strong>" in part)
        for name in ("acme", "other")
    )
    assert "Failed jobs of acme over the last 1h" in acme
    assert "Failed jobs of other" not in other
    assert 'data-label="An hour">' in acme
    assert " each</div>" in acme
    assert "2 at a time" in words(acme)
    assert "0 of 2" in words(acme)
    assert "3 of 3, full" in words(acme)
    assert "5 at a time" in words(other)


def test_a_key_of_one_tenant_sees_only_its_own_row(shop: House) -> None:
    fill(shop)
    shop.app.limits.set("tenant", 5)
    shop.app.control.pause("tenant", "other", reason="a secret reason")
    page = shop.person("super_admin", "acme").open("/tenants")
    main = page.partition("<main")[2]
    assert "acme" in main
    assert "other" not in words(main)
    assert "a secret reason" not in page
    assert "Pause" not in words(main)
    assert "Weight" not in words(main)
    assert "at a time" not in words(main)


def test_a_tenant_is_paused_after_confirmation_and_resumed(shop: House) -> None:
    fill(shop)
    person = shop.person("operator")
    assert "3 wait now" in person.open("/tenants/pause?name=acme")
    after = person.send("/tenants/pause?name=acme", "/tenants/pause", reason="too <much>")
    assert "Tenant acme is paused" in after
    assert "too &lt;much&gt;" in after
    (pause,) = shop.app.control.pauses()
    assert (pause.kind, pause.name, pause.reason) == ("tenant", "acme", "too <much>")
    assert "Tenant acme is resumed." in person.send("/tenants", "/tenants/resume")
    assert not shop.app.control.pauses()


def test_a_weight_is_set_kept_when_invalid_and_removed(shop: House) -> None:
    fill(shop)
    person = shop.person("super_admin")
    after = person.send("/tenants", "/tenants/weight", name="acme", weight="2.5")
    assert "Tenant acme has weight 2.5" in after
    (setting,) = shop.app.control.settings()
    assert (setting.key, setting.value) == ("tenant/acme", {"weight": 2.5})
    for wrong in ("many", "0", "-1", "nan", "inf", "1e99"):
        answer = person.post("/tenants/weight", name="acme", weight=wrong)
        assert answer.status_code == 422, wrong
        assert f'value="{wrong}"' in answer.text
        assert 'aria-invalid="true"' in answer.text
    person.send("/tenants", "/tenants/weight", name="acme", weight="")
    assert not shop.app.control.settings()


def test_an_invalid_tenant_is_rejected(shop: House) -> None:
    person = shop.person("operator")
    assert person.post("/tenants/pause").status_code == 422
    assert person.post("/tenants/pause", name="*").status_code == 422
    person.open("/tenants/pause?name=*", 422)
    assert not shop.app.control.pauses()


def test_without_tenants_the_page_explains_what_a_tenant_is(shop: House) -> None:
    assert "No tenant was active" in shop.person("viewer").open("/tenants")
