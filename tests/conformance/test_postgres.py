"""Conformance tests of the PostgreSQL store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conformance.conftest import SharedPostgres

from tidemill.stores.base import Store
from tidemill.testing.conformance import StoreConformance


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def store(self, shared_postgres: SharedPostgres) -> Store:
        return shared_postgres.fresh()

    @pytest.fixture
    def neighbour(self, shared_postgres: SharedPostgres) -> Iterator[Store]:
        neighbour = shared_postgres.another()
        yield neighbour
        neighbour.close()
