"""The memory store: plain dictionaries under one lock; for tests, for trying things out, and the oracle of the others."""

from tidemill.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
