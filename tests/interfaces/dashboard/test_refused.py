"""Pages of rejected forms, and the links in their navigation bar."""

from __future__ import annotations

from tests.interfaces.dashboard.kit import House, Person, forms
from tests.interfaces.dashboard.test_table import address, csrf_of, table

from tidemill.dashboard.pages import Addresses
from tidemill.dashboard.site import all_pages

SENT = [line for line in table() if line.method == "POST" and line.whose != "everybody"]


def follow(person: Person, page: str) -> list[str]:
    """Use the theme and tenant controls in the navigation bar, and return where they lead."""
    found = forms(page)
    theme = next(form for form in found if form.action.endswith("/theme"))
    tenant = next(
        form for form in found if form.method == "get" and any(name == "tenant" for name, _ in form.fields)
    )
    chosen = person.ask("POST", theme.action, data={**dict(theme.fields), "theme": "dark"})
    assert chosen.status_code == 303, chosen.text
    asked = "&".join(f"{name}={value}" for name, value in tenant.fields if name != "tenant")
    return [chosen.headers["location"], f"{tenant.action}?{asked}&tenant=acme"]


def test_the_navigation_of_a_rejected_form_leads_to_a_page(shop: House) -> None:
    person, refused = shop.person("super_admin"), 0
    csrf = csrf_of(person)
    for line in SENT:
        answer = person.ask("POST", address(line), data={"csrf": csrf, "surely": "unknown"})
        if answer.status_code == 303:  # an empty form is valid here
            continue
        refused += 1
        for led in follow(person, answer.text):
            assert person.ask("GET", led).status_code != 405, (line.path, led)
    assert refused > 20


def test_a_rejected_setting_is_shown_on_the_settings_page(shop: House) -> None:
    person = shop.person("super_admin")
    answer = person.post("/settings/set?tenant=acme", key="alerts.no_such")
    assert answer.status_code == 422
    assert follow(person, answer.text) == ["/settings?tenant=acme", "/settings?&tenant=acme"]


def test_a_page_that_accepts_only_posts_links_to_one_that_can_be_opened(shop: House) -> None:
    person = shop.person("super_admin")
    page = person.open("/queues/-/pause", status=405)
    assert '<a href="/queues">Try again</a>' in page
    assert follow(person, page)[0] == "/queues"


def test_every_path_has_a_page_above_it() -> None:
    known = Addresses(all_pages())
    assert known.shown_at("/jobs/1/cancel") == "/jobs/1"
    assert known.shown_at("/tasks/-/pause") == "/tasks"
    assert known.shown_at("/tasks/shop/send") == "/tasks/shop/send"
    assert known.shown_at("/settings/set") == "/settings"
    assert known.shown_at("/archive/run") == "/archive"
    assert known.shown_at("/theme") == known.shown_at("/") == "/"
