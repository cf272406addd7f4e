"""Test kit of the dashboard: a site in this process, users of each role, forms."""

from __future__ import annotations

import contextlib
import html.parser
import re
from collections.abc import Iterator
from typing import Any

import httpx
from tests.interfaces.rest.kit import Browser, declare

from tidemill import App
from tidemill.clock import Clock
from tidemill.dashboard import create_site
from tidemill.dashboard.site import Site
from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.rest import ApiSettings


class Form:
    """A form on a page: its action, its method and its fields."""

    def __init__(self, action: str, method: str, fields: list[tuple[str, str]]) -> None:
        self.action, self.method, self.fields = action, method, fields


class _Forms(html.parser.HTMLParser):
    """Collects the forms of a page as a browser without scripts sends them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Form] = []
        self._area: str | None = None
        self._select: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = {name: value or "" for name, value in attrs}
        names = dict(attrs)
        if tag == "form":
            self.found.append(Form(facts.get("action", ""), facts.get("method", "get"), []))
        elif not self.found:
            return
        elif tag == "input" and "name" in facts:
            ticks = facts.get("type") in ("checkbox", "radio")
            if not ticks or "checked" in names:
                self.found[-1].fields.append((facts["name"], facts.get("value", "on" if ticks else "")))
        elif tag == "textarea":
            self._area = facts.get("name")
            self.found[-1].fields.append((facts.get("name", ""), ""))
        elif tag == "select":
            self._select = facts.get("name")
        elif tag == "option" and self._select is not None and "selected" in names:
            self.found[-1].fields.append((self._select, facts.get("value", "")))

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            name, text = self.found[-1].fields[-1]
            self.found[-1].fields[-1] = (name, text + data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._area = None
        elif tag == "select":
            self._select = None


def forms(page: str) -> list[Form]:
    """The forms of a page."""
    parser = _Forms()
    parser.feed(page)
    return parser.found


class Person:
    """A signed-in user whose browser runs no scripts."""

    def __init__(self, house: House, role: str, tenant: str) -> None:
        self.house, self.role, self.tenant = house, role, tenant
        self._browser = Browser(house.site_app)
        answer = self._browser.request("POST", "/sign-in", data={"key": house.key(role, tenant)})
        assert answer.status_code == 303, answer.text
        self._browser.bearer = f"Bearer {house.key(role, tenant)}"

    def open(self, path: str, status: int = 200) -> str:
        """Open a page and return its text."""
        answer = self.ask("GET", path)
        assert answer.status_code == status, answer.text
        return answer.text

    def ask(self, method: str, path: str, **rest: Any) -> httpx.Response:
        return self._browser.request(method, path, **rest)

    def send(self, page: str, action: str, /, **fields: str) -> str:
        """Fill in and send the form on this page whose action ends with ``action``; return the page that follows."""
        text = self.open(page)
        found = [form for form in forms(text) if form.action.partition("?")[0].endswith(action)]
        # the form in the navigation bar uses GET and is not meant
        found.sort(key=lambda form: form.method != "post")
        assert found, f"{page} has no form to {action}: {[form.action for form in forms(text)]}"
        data = {name: value for name, value in found[0].fields if name not in fields}
        answer = self.ask(found[0].method.upper(), found[0].action, data={**data, **fields})
        assert answer.status_code == 303, answer.text
        return self.open(answer.headers["location"])

    def post(self, path: str, **fields: str) -> httpx.Response:
        """Post a custom form with a valid CSRF token."""
        csrf = re.search(r'name="csrf" content="(\w+)"', self.open("/"))
        assert csrf is not None
        return self.ask("POST", path, data={"csrf": csrf[1], **fields})

    @property
    def cookies(self) -> httpx.Cookies:
        return self._browser.cookies

    def close(self) -> None:
        self._browser.close()


class House:
    """A site in this process, its app, and a key for every role and tenant."""

    def __init__(self, app: App, **settings: Any) -> None:
        self.app = app
        self.site_app = create_site(app, settings=ApiSettings(**settings))
        self.site: Site = self.site_app.state.dashboard
        self._secrets: dict[tuple[str, str], str] = {}
        self._people: dict[tuple[str, str], Person] = {}

    def key(self, role: str, tenant: str) -> str:
        """The secret of a key."""
        if (role, tenant) not in self._secrets:
            made = self.app.keys.create(
                f"{role} of {'all' if tenant == ALL_TENANTS else tenant}",
                role=Role(role),
                tenant=None if tenant == ALL_TENANTS else tenant,
            )
            self._secrets[role, tenant] = made.secret
        return self._secrets[role, tenant]

    def person(self, role: str = "super_admin", tenant: str = ALL_TENANTS) -> Person:
        """A signed-in user of this role."""
        if (role, tenant) not in self._people:
            self._people[role, tenant] = Person(self, role, tenant)
        return self._people[role, tenant]

    def drain(self) -> None:
        """Run the due jobs."""
        self.app.testing().drain()

    def close(self) -> None:
        for person in self._people.values():
            person.close()


@contextlib.contextmanager
def house(
    url: str = "memory://",
    *,
    stores: dict[str, str] | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> Iterator[House]:
    """A site over a store, or over several named ones."""
    with App(None if stores else url, stores=stores, clock=clock, migrate=True) as app:
        declare(app)
        with contextlib.closing(House(app, **settings)) as made:
            yield made
