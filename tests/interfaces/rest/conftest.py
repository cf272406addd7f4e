from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interfaces.rest.kit import Site, site


@pytest.fixture
def shop() -> Iterator[Site]:
    with site() as made:
        yield made


@pytest.fixture
def alone() -> Iterator[Site]:
    """A site without the stranger tenant, for tests that count over all tenants."""
    with site(stranger=False) as made:
        yield made
