"""The memory store: plain dictionaries under one lock.

It serves tests and experiments, and is the reference for the other stores.
"""

from tidemill.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
