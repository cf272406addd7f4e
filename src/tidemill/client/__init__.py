"""Asks: enqueueing, handles, queries. Knows stores and tasks, and no worker."""
