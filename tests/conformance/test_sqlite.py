"""Conformance tests of the SQLite store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.grounds import new_file

from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.testing.conformance import StoreConformance


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = open_store(new_file(tmp_path))
        yield store
        store.close()

    @pytest.fixture
    def neighbour(self, store: Store) -> Iterator[Store]:
        neighbour = open_store(store.url)
        yield neighbour
        neighbour.close()
