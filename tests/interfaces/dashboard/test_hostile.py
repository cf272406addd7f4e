"""Hostile texts are shown as text on every page."""

from __future__ import annotations

import html.parser
import json
from collections.abc import Iterator

import pytest
from tests.interfaces.dashboard.hostile import HOSTILE, NAMES
from tests.interfaces.dashboard.kit import House, Person
from tests.interfaces.dashboard.planting import World, searches
from tests.interfaces.dashboard.tour import FILES, NO_PAGES

from tidemill import App
from tidemill.dashboard.site import all_pages

FOREIGN = {
    "iframe", "object", "embed", "base", "style", "marquee", "video", "audio", "img", "math", "animate", "set", "foreignobject",
    "plaintext", "noscript", "template", "frame", "applet", "x-element",
}  # fmt: skip
"""Elements that no page contains."""

PATHS = sorted(
    {page.path for page in all_pages() if page.method == "GET" and page.role is not None} - NO_PAGES
)

REFUSED = {"/leases/release": (404,), "/jobs/bulk": (422,)}
"""The status codes of pages whose named object does not exist."""

ADDRESSES = ("href", "src", "action", "formaction", "data-href")


class Seen(html.parser.HTMLParser):
    """Collects the texts of a page and everything that must not be on it."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = {name: value or "" for name, value in attrs}
        if tag in FOREIGN:
            self.wrong.append(f"<{tag}>")
        if tag == "script" and not facts.get("src", "").startswith(
            ("/static/tidemill.js?", "/static/actions.js?", "/static/planning.js?", "/static/flows.js?")
        ):
            self.wrong.append(f"a script: {facts}")
        if tag == "link" and not facts.get("href", "").startswith("/static/"):
            self.wrong.append(f"a link: {facts}")
        if tag == "meta" and ("http-equiv" in facts or not facts.keys() <= {"charset", "name", "content"}):
            self.wrong.append(f"a meta: {facts}")
        for name, value in facts.items():
            if name.startswith("on") or name in ("style", "srcdoc", "xlink:href", "manifest"):
                self.wrong.append(f"<{tag} {name}={value[:60]!r}>")
            if name in ADDRESSES and not _ours(value):
                self.wrong.append(f"<{tag} {name}={value[:60]!r}>")
            self.texts.append(value)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_decl(self, decl: str) -> None:
        if decl.lower() != "doctype html":
            self.wrong.append(f"<!{decl}>")

    def handle_pi(self, data: str) -> None:
        self.wrong.append(f"<?{data}>")


def _ours(address: str) -> bool:
    """Whether a URL leads to this site or to a place within the page."""
    return address == "" or address[0] in "#?" or (address[0] == "/" and address[1:2] not in ("/", "\\"))


def seen(page: str) -> Seen:
    reader = Seen()
    reader.feed(page)
    reader.close()
    return reader


def squeezed(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def world() -> Iterator[tuple[World, Person]]:
    with App("memory://", migrate=True) as app:
        made = World(app)
        made.plant()
        house = House(app, create_rate=1e6, create_burst=10**6)
        try:
            yield made, house.person()
        finally:
            house.close()


def test_there_are_at_least_two_hundred_texts_and_all_can_be_stored() -> None:
    assert len(set(HOSTILE)) == len(HOSTILE) >= 200
    assert len(NAMES) >= 150
    for text in HOSTILE:
        assert "\0" not in text
        assert json.loads(json.dumps(text)) == text
        assert text.encode().decode() == text


def test_every_page_shows_hostile_texts_as_text(world: tuple[World, Person]) -> None:
    made, person = world
    wrong: dict[str, list[str]] = {}
    for path in PATHS:
        for address in made.addresses(path):
            answer = person.ask("GET", address)
            found = seen(answer.text).wrong
            if answer.status_code not in (200, *REFUSED.get(path, ())):
                found.append(f"{answer.status_code}: {' '.join(seen(answer.text).texts)[-600:]}")
            if found:
                wrong[address] = found
    assert wrong == {}


@pytest.mark.parametrize("path", sorted(FILES))
def test_a_browser_saves_a_file_with_hostile_texts_and_does_not_render_it(
    world: tuple[World, Person], path: str
) -> None:
    made, person = world
    saved = ""
    for address in made.addresses(path):
        answer = person.ask("GET", address)
        assert answer.headers["x-content-type-options"] == "nosniff"
        if answer.status_code == 404:  # the page that says that the job has no result
            assert path == "/jobs/{id}/value"
            assert seen(answer.text).wrong == [], address
            continue
        assert answer.status_code == 200, address
        assert answer.headers["content-type"] == "application/json"
        _, id, name = address.strip("/").split("/")
        assert answer.headers["content-disposition"] == f'attachment; filename="{id}-{name}.json"'
        json.loads(answer.text)
        saved += answer.text
    assert "<script>" in saved


def test_the_page_of_a_job_contains_every_hostile_text(world: tuple[World, Person]) -> None:
    made, person = world
    found = squeezed(" ".join(seen(person.open(f"/jobs/{made.ids['jobs'][0]}")).texts))
    missing = [text for text in HOSTILE if len(text) < 200 and not _is_in(text, found)]
    assert missing == []


def test_search_terms_are_shown_as_text(world: tuple[World, Person]) -> None:
    _, person = world
    for address in searches():
        answer = person.ask("GET", address)
        assert answer.status_code in (200, 404, 422), f"{address}: {answer.status_code} {answer.text[:2000]}"
        assert seen(answer.text).wrong == [], address


def test_a_hostile_path_is_shown_as_text(world: tuple[World, Person]) -> None:
    _, person = world
    for text in HOSTILE:
        if len(text) < 1_000 and "\\" not in text and text.isprintable():
            answer = person.ask("GET", f"/nothing/{text.lstrip('/')}")
            assert answer.status_code in (404, 303, 200, 422), f"{text}: {answer.status_code}"
            assert seen(answer.text).wrong == [], text


@pytest.mark.parametrize(
    "page",
    ["", "<b onclick=x>", "<script>1</script>", "<a href=javascript:1>", "<img src=/x>", "<p style=x>"],
)
def test_unwanted_elements_and_attributes_are_detected(page: str) -> None:
    assert bool(seen(f"<!doctype html><p>{page}</p>").wrong) is bool(page)


def _is_in(text: str, page: str) -> bool:
    forms = (text, json.dumps(text, ensure_ascii=False)[1:-1])
    return any(squeezed(form) in page for form in forms)
