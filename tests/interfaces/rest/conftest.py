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
    """Without the stranger, for those who count what all tenants have."""
    with site(stranger=False) as made:
        yield made
