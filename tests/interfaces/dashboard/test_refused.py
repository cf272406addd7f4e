"""A form that is refused is shown again, and the controls in its bar lead to pages that can be looked at."""

from __future__ import annotations

from tests.interfaces.dashboard.kit import House, Person, forms
from tests.interfaces.dashboard.test_table import address, csrf_of, table

from tidemill.dashboard.pages import Addresses
from tidemill.dashboard.site import all_pages

SENT = [line for line in table() if line.method == "POST" and line.whose != "everybody"]


def follow(person: Person, page: str) -> list[str]:
    """Use the controls for the theme and for the tenant, as they stand in the bar of a page; where they led."""
    found = forms(page)
    theme = next(form for form in found if form.action.endswith("/theme"))
    tenant = next(
        form for form in found if form.method == "get" and any(name == "tenant" for name, _ in form.fields)
    )
    chosen = person.ask("POST", theme.action, data={**dict(theme.fields), "theme": "dark"})
    assert chosen.status_code == 303, chosen.text
    asked = "&".join(f"{name}={value}" for name, value in tenant.fields if name != "tenant")
    return [chosen.headers["location"], f"{tenant.action}?{asked}&tenant=acme"]


def test_from_the_page_of_a_refused_form_its_bar_leads_to_a_page(shop: House) -> None:
    person, refused = shop.person("super_admin"), 0
    csrf = csrf_of(person)
    for line in SENT:
        answer = person.ask("POST", address(line), data={"csrf": csrf, "surely": "unknown"})
        if answer.status_code == 303:  # without anything in it this one is not refused
            continue
        refused += 1
        for led in follow(person, answer.text):
            assert person.ask("GET", led).status_code != 405, (line.path, led)
    assert refused > 20


def test_a_setting_that_is_refused_is_shown_on_the_page_of_settings(shop: House) -> None:
    person = shop.person("super_admin")
    answer = person.post("/settings/set?tenant=acme", key="alerts.no_such")
    assert answer.status_code == 422
    assert follow(person, answer.text) == ["/settings?tenant=acme", "/settings?&tenant=acme"]


def test_the_page_of_what_cannot_be_looked_at_leads_to_one_that_can(shop: House) -> None:
    person = shop.person("super_admin")
    page = person.open("/queues/-/pause", status=405)
    assert '<a href="/queues">Try again</a>' in page
    assert follow(person, page)[0] == "/queues"


def test_every_address_has_one_above_it_that_can_be_looked_at() -> None:
    known = Addresses(all_pages())
    assert known.shown_at("/jobs/1/cancel") == "/jobs/1"
    assert known.shown_at("/tasks/-/pause") == "/tasks"
    assert known.shown_at("/tasks/shop/send") == "/tasks/shop/send"
    assert known.shown_at("/settings/keys") == "/settings"
    assert known.shown_at("/theme") == known.shown_at("/") == "/"
