"""Handlers of durable subscriptions, as an app declares them."""

from __future__ import annotations

from typing import NamedTuple

from tidemill.domain.subscriptions import StoredSubscription
from tidemill.errors import BadSettings
from tidemill.tasks.events import Subscriber

_RESERVED = ("notifications/", "live/", "heartbeats")


class DurableHandler(NamedTuple):
    """A durable subscription and the function that handles its events."""

    subscription: StoredSubscription
    handler: Subscriber


def check_subscription_name(name: object) -> str:
    """Check the name of a durable subscription."""
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= 100
        or not name.isprintable()
        or name.strip() != name
        or name.startswith(_RESERVED)
    ):
        raise BadSettings(
            f"durable is {name!r}; give the name of a subscription: 1 to 100 printable characters, "
            f"which does not begin with {' or '.join(_RESERVED)}"
        )
    return name
