"""Stores: memory, SQLite and PostgreSQL behind one contract (``base``).

A store performs atomic compare-and-set operations and makes no decisions.
"""
