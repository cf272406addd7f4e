"""Responses of every route match the OpenAPI document; a sample with a fixed seed.

``python -m tests.interfaces.rest.schemas --examples 1000`` runs the full check.
"""

from __future__ import annotations

import pytest
from tests.interfaces.rest.schemas import examine, is_text, routes


@pytest.mark.long
def test_no_route_violates_the_document() -> None:
    found = [answers.data() for answers in examine(routes(), ["memory"], examples=1)]
    assert [(row["route"], title, text) for row in found for title, text in row["problems"].items()] == []
    assert len(found) == len(routes())
    assert all(row["requests"] for row in found)


@pytest.mark.parametrize(
    ("violation", "expected"),
    [
        ("`type` at /properties/task (was array, became boolean)", True),
        ("`type` at /properties/correlation_id/anyOf/1 (was null, became object)", True),
        ("`type` at /properties/limit (was integer, became string)", False),
        ("`maxLength` at /properties/task", False),
    ],
)
def test_only_texts_of_a_query_may_have_another_type(violation: str, expected: bool) -> None:
    failure = f"Schema-violating request accepted\n\nInvalid component: parameters `x` in query\n  - violates {violation}"
    assert is_text(failure) is expected
    assert not is_text(failure.replace(" in query", " in body"))
