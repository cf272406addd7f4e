"""Responses of every route match the OpenAPI document; a sample with a fixed seed.

``python -m tests.interfaces.rest.schemas --examples 1000`` runs the full check.
"""

from __future__ import annotations

import pytest
from tests.interfaces.rest.schemas import examine, furnished, labelled


@pytest.mark.long
def test_no_route_violates_the_document() -> None:
    with furnished("memory://") as made:
        found = examine(made, 1, words=["--phases", "examples,fuzzing"])
    assert found.exit_code == 0, found.text[-10_000:]
    assert f"Tested: {len(labelled())}" in found.text
