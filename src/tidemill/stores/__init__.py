"""Remembers: compare-and-set, never decides. ``base`` is the contract; memory, SQLite and PostgreSQL keep it alike."""
