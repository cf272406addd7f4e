"""The PostgreSQL store obeys the contract."""

from __future__ import annotations

import pytest
from tests.conformance.conftest import Shared

from tidemill.stores.base import Store
from tidemill.testing.conformance import StoreConformance


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def store(self, shared_postgres: Shared) -> Store:
        return shared_postgres.fresh()
