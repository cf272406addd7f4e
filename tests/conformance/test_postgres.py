"""The PostgreSQL store obeys the contract."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conformance.conftest import Shared

from tidemill.stores.base import Store
from tidemill.testing.conformance import StoreConformance


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def store(self, shared_postgres: Shared) -> Store:
        return shared_postgres.fresh()

    @pytest.fixture
    def neighbour(self, shared_postgres: Shared) -> Iterator[Store]:
        neighbour = shared_postgres.another()
        yield neighbour
        neighbour.close()
