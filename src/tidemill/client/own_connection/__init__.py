"""Enqueueing and completing jobs in a transaction on the user's own connection."""

from tidemill.client.own_connection.dispatch import (
    aenqueue_on,
    afinish_on,
    alook_on,
    enqueue_on,
    finish_on,
    look_on,
)

__all__ = ["aenqueue_on", "afinish_on", "alook_on", "enqueue_on", "finish_on", "look_on"]
