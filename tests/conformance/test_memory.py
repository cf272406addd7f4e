"""Conformance tests of the memory store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.testing.conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        store = MemoryStore()
        yield store
        store.close()
