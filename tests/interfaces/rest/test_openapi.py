"""The OpenAPI document and the API's documentation page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.interfaces.rest.kit import Site

from tidemill.domain.masks import masked
from tidemill.rest.api import all_routes


def test_the_document_is_openapi_3_1_and_has_every_route(shop: Site) -> None:
    answer = shop.client.request("GET", "/api/openapi.json")
    document = answer.json()
    assert document["openapi"].startswith("3.1")
    told = {(verb.upper(), path) for path, verbs in document["paths"].items() for verb in verbs}
    assert told == {(act.method, act.shown_path) for act in all_routes()}
    ids = [facts["operationId"] for verbs in document["paths"].values() for facts in verbs.values()]
    assert len(ids) == len(set(ids))


def test_every_reference_in_the_document_resolves(shop: Site) -> None:
    answer = shop.client.request("GET", "/api/openapi.json")
    schemas = answer.json()["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', answer.text)) <= set(schemas)


def test_every_path_names_its_parameters_and_every_operation_its_role(shop: Site) -> None:
    for path, verbs in shop.client.request("GET", "/api/openapi.json").json()["paths"].items():
        for verb, facts in verbs.items():
            named = {each["name"] for each in facts["parameters"] if each["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path)), (verb, path)
            assert facts["summary"].endswith((".", "…")), (verb, path, facts["summary"])
            assert "Required role" in facts["description"] or facts["security"] == []


def test_a_header_longer_than_the_document_allows_is_rejected(shop: Site) -> None:
    found = 0
    for path, verbs in shop.client.request("GET", "/api/openapi.json").json()["paths"].items():
        for verb, facts in verbs.items():
            for each in facts["parameters"]:
                if each["in"] == "header" and "maxLength" in each["schema"]:
                    found += 1
                    headers = {each["name"]: "x" * (each["schema"]["maxLength"] + 1)}
                    answer = shop.call(
                        verb.upper(), path, {"task": "send", "args": {"to": "ada"}}, headers=headers
                    )
                    assert answer.status_code == 422, (verb, path, each["name"], answer.text)
    assert found


def test_the_example_of_a_job_body_creates_a_job(shop: Site) -> None:
    schema = shop.client.request("GET", "/api/openapi.json").json()["components"]["schemas"]["JobBody"]
    body = {name: facts["examples"][0] for name, facts in schema["properties"].items() if "examples" in facts}
    assert {"task", "args", "retry", "reference"} <= set(body)
    assert shop.call("POST", "/api/jobs", body).status_code == 201


def documented() -> set[tuple[str, str]]:
    """The methods and paths of the curl calls in the HTTP page."""
    text = (Path(__file__).resolve().parents[3] / "docs" / "http.md").read_text(encoding="utf-8")
    found = set()
    for call in re.findall(r"^curl (?:.*\\\n)*.*$", text, re.MULTILINE):
        verb = re.search(r"-X (\w+)", call)
        address = re.search(r"http://127\.0\.0\.1:8080([^\s?\"]+)", call)
        assert address is not None, call
        found.add((verb[1] if verb else "GET", address[1]))
    return found


def test_every_call_in_the_documentation_has_a_route() -> None:
    routes = [(act.method, re.sub(r"\{\w+\}", "[^/]+", act.shown_path)) for act in all_routes()]
    calls = documented()
    assert len(calls) > 40
    for verb, address in calls:
        assert any(verb == method and re.fullmatch(path, address) for method, path in routes), (verb, address)


class Loads(HTMLParser):
    """Collects everything that a page would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe", "object"):
            self.found.append(tag)
        self.found += [
            name for name, value in attrs if name == "src" or name.startswith("on") or "//" in (value or "")
        ]


def test_the_documentation_page_loads_nothing_from_elsewhere(shop: Site) -> None:
    answer = shop.client.request("GET", "/api/docs")
    assert answer.headers["content-type"].startswith("text/html")
    seen = Loads()
    seen.feed(answer.text)
    assert seen.found == []
    assert all(act.shown_path in answer.text for act in all_routes())


@pytest.mark.parametrize(
    "name",
    ["password", "PASSWORD", "db_passwd", "apiKey", "api-key", "access_token", "client_secret", "Authorization", "cookie",
     "private_key", "credentials", "sessionId", "auth", "pin"],
)  # fmt: skip
def test_values_of_secret_looking_names_are_masked(name: str) -> None:
    assert masked({"deep": [{name: "x"}]}) == {"deep": [{name: "***"}]}
    assert masked({name: None}) == {name: None}


@pytest.mark.parametrize("name", ["to", "destination", "author", "spin", "passenger", "keyboard", "compass"])
def test_values_of_other_names_are_shown(name: str) -> None:
    assert masked({name: "x"}) == {name: "x"}
