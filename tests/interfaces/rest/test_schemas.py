"""Responses of every route match the OpenAPI document; a sample with a fixed seed.

``python -m tests.interfaces.rest.schemas --examples 1000`` runs the full check.
"""

from __future__ import annotations

import pytest
from tests.interfaces.rest.schemas import examine, routes


@pytest.mark.long
def test_no_route_violates_the_document() -> None:
    found = [answers.data() for answers in examine(routes(), ["memory"], examples=1)]
    assert [(row["route"], title, text) for row in found for title, text in row["problems"].items()] == []
    assert len(found) == len(routes())
    assert all(row["requests"] for row in found)
