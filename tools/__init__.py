"""Contributor tools behind ``dev.py``."""
