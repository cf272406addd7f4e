"""Every route answers as the OpenAPI document promises, to right and wrong requests; a sample with a fixed seed.

``python -m tests.interfaces.rest.schemas --examples 1000`` is the whole of it.
"""

from __future__ import annotations

import pytest
from tests.interfaces.rest.schemas import examine, furnished, labelled


@pytest.mark.long
def test_no_route_breaks_the_promises_of_the_document() -> None:
    with furnished("memory://") as made:
        found = examine(made, 1, words=["--phases", "examples,fuzzing"])
    assert found.exit_code == 0, found.text[-10_000:]
    assert f"Tested: {len(labelled())}" in found.text
