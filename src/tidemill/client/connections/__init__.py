"""Enqueueing in the user's own transaction, on the connection he has open: jobs and his rows are kept together or not at all."""

from tidemill.client.connections.dispatch import aenqueue_on, enqueue_on

__all__ = ["aenqueue_on", "enqueue_on"]
