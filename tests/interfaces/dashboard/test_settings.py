"""The settings page: installation, thresholds, worker settings and keys."""

from __future__ import annotations

import dataclasses
import re

from tests.interfaces.dashboard.crowd import join, words
from tests.interfaces.dashboard.kit import House
from tests.interfaces.rest.kit import Browser

from tidemill.domain.alerts import Thresholds


def test_viewers_see_the_installation_and_neither_settings_nor_keys(shop: House) -> None:
    join(shop, "grinder")
    shop.app.control.set("colour", "mauve")
    page = words(shop.person("viewer").open("/settings"))
    assert "Store memory" in page
    assert "Workers run 1.2.3" in page
    assert "alerts.queue_depth" in page
    assert "mauve" not in page
    assert "Create a key" not in page
    assert "viewer of all" not in page.partition("Settings This")[2]


def test_a_key_of_one_tenant_sees_its_keys_and_no_store_wide_settings(shop: House) -> None:
    shop.key("viewer", "other")
    shop.app.control.set("colour", "mauve")
    person = shop.person("super_admin", "acme")
    keys = words(person.open("/settings/keys").partition("<main")[2])
    assert "super_admin of acme" in keys
    assert "viewer of other" not in keys
    page = words(person.open("/settings").partition("<main")[2])
    assert "mauve" not in page
    assert "alerts.queue_depth" not in page
    assert "Store" not in page


def test_a_setting_is_stored_changed_and_removed(shop: House) -> None:
    person = shop.person("super_admin")
    after = person.send("/settings", "/settings/set", key="worker_enabled", value="false")
    assert "worker_enabled is set" in after
    (setting,) = shop.app.control.settings()
    assert (setting.key, setting.value) == ("worker_enabled", False)
    assert "super_admin of all" in (setting.updated_by or "")
    page = person.open("/settings?key=worker_enabled")
    assert 'name="value" required autocomplete="off" spellcheck="false" value="false"' in page
    overview = person.open("/")
    assert "/settings?key=worker_enabled" in overview
    assert "It is false now." in person.open("/settings/unset?key=worker_enabled")
    assert "is removed" in person.send("/settings/unset?key=worker_enabled", "/settings/unset")
    assert not shop.app.control.settings()
    person.open("/settings/unset?key=worker_enabled", 404)


def test_a_value_that_is_not_json_is_stored_as_text(shop: House) -> None:
    shop.person("super_admin").send(
        "/settings", "/settings/set", key="colour", value="mauve", description="of the wall"
    )
    (setting,) = shop.app.control.settings()
    assert (setting.value, setting.description) == ("mauve", "of the wall")


def test_an_invalid_setting_is_shown_again_with_its_input(shop: House) -> None:
    person = shop.person("super_admin")
    for fields in (
        {"key": "worker_enabled", "value": '"no"'},
        {"key": "tenant/acme", "value": "7"},
        {"key": "number", "value": "NaN"},
        {"key": "", "value": "1"},
        {"key": "x", "value": ""},
    ):
        answer = person.post("/settings/set", **fields)
        assert answer.status_code == 422, fields
        assert 'id="setting-wrong" role="alert"' in answer.text
        for value in fields.values():
            assert value.replace('"', "&#34;") in answer.text
    assert not shop.app.control.settings()
    assert person.post("/settings/set", key="deep", value="[" * 100_000).status_code == 303


def test_every_threshold_is_described(shop: House) -> None:
    page = shop.person("viewer").open("/settings")
    for field in dataclasses.fields(Thresholds):
        cell = page.partition(f"<code>alerts.{field.name}</code>")[2].partition("</td>")[0]
        assert words(cell).strip(), field.name


def test_a_changed_threshold_is_marked(shop: House) -> None:
    shop.app.control.set("alerts.queue_depth", 500)
    page = words(shop.person("viewer").open("/settings"))
    assert "500 changed 100" in page


def test_a_setting_with_a_secret_name_is_never_shown(shop: House) -> None:
    shop.app.control.set("smtp_password", "hunter2")
    person = shop.person("super_admin")
    assert "hunter2" not in person.open("/settings")
    page = person.open("/settings?key=smtp_password")
    assert 'spellcheck="false" value=""' in page  # so that the mask is not saved as the value
    assert "hunter2" not in person.open("/settings/unset?key=smtp_password")


def test_a_key_is_created_and_its_secret_shown_once(shop: House) -> None:
    person = shop.person("super_admin")
    answer = person.post("/settings/keys", name="deploy", role="operator", tenant="acme", days="30")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    found = re.search(r"tm_[0-9a-f]{8}\.[\w-]{43}", answer.text)
    assert found is not None
    identity = shop.app.keys.identify(found[0])
    assert identity is not None
    assert (identity.role, identity.tenant) == ("operator", "acme")
    (key,) = [each for each in shop.app.keys.list() if each.name == "deploy"]
    assert key.expires_at is not None
    assert found[0] not in person.open("/settings/keys")
    browser = Browser(shop.site_app)
    try:
        assert browser.request("POST", "/sign-in", data={"key": found[0]}).status_code == 303
    finally:
        browser.close()


def test_the_form_creates_a_key_of_all_tenants_unless_one_is_named(shop: House) -> None:
    person = shop.person("super_admin")
    person.post("/settings/keys", name="everywhere", role="viewer")
    person.post("/settings/keys?tenant=acme", name="chosen", role="viewer", tenant="acme")
    found = {key.name: key.tenant for key in shop.app.keys.list()}
    assert (found["everywhere"], found["chosen"]) == ("*", "acme")


def test_a_super_admin_of_one_tenant_creates_keys_of_that_tenant_only(shop: House) -> None:
    person = shop.person("super_admin", "acme")
    assert person.post("/settings/keys", name="mine", role="viewer").status_code == 200
    (mine,) = [key for key in shop.app.keys.list() if key.name == "mine"]
    assert mine.tenant == "acme"
    for tenant in ("other", "*"):
        assert person.post("/settings/keys", name="theirs", role="viewer", tenant=tenant).status_code in (
            403,
            422,
        )
    assert not [key for key in shop.app.keys.list() if key.name == "theirs"]


def test_an_invalid_key_is_shown_again_with_its_input(shop: House) -> None:
    person = shop.person("super_admin")
    for fields in (
        {"name": "", "role": "viewer"},
        {"name": "x", "role": "king"},
        {"name": "x", "role": "viewer", "days": "2"},
    ):
        answer = person.post("/settings/keys", **fields)
        assert answer.status_code == 422, fields
        assert 'id="key-wrong" role="alert"' in answer.text
        assert (
            f'name="name" required maxlength="200" autocomplete="off" placeholder="deploy" value="{fields["name"]}"'
            in answer.text
        )


def test_a_key_is_revoked_after_confirmation(shop: House) -> None:
    person = shop.person("super_admin")
    made = shop.app.keys.create("old", role="admin", tenant="acme")
    page = person.open("/settings/keys")
    assert f"/settings/keys/revoke?id={made.key.id}" in page
    assert "admin, tenant acme" in person.open(f"/settings/keys/revoke?id={made.key.id}")
    after = person.send(f"/settings/keys/revoke?id={made.key.id}", "/settings/keys/revoke")
    assert "Key old is revoked." in after
    assert shop.app.keys.identify(made.secret) is None
    own = next(key for key in shop.app.keys.list() if key.name == "super_admin of all")
    assert "You are signed in with this key" in person.open(f"/settings/keys/revoke?id={own.id}")


def test_a_key_of_another_tenant_is_not_found(shop: House) -> None:
    made = shop.app.keys.create("theirs", tenant="other")
    person = shop.person("super_admin", "acme")
    person.open(f"/settings/keys/revoke?id={made.key.id}", 404)
    assert person.post("/settings/keys/revoke", id=made.key.id).status_code == 404
    assert shop.app.keys.identify(made.secret) is not None


def test_a_threshold_is_also_shown_as_a_duration_or_a_percentage(shop: House) -> None:
    shop.app.control.set("alerts.stuck_after", 5400)
    page = shop.person().open("/settings")
    assert '<strong>5,400</strong> <span class="dim">(1 h 30 min)</span>' in page
    assert '0.1 <span class="dim">(10 %)</span>' in page
