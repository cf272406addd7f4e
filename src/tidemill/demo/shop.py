"""The sample shop's own code: what its tasks call, and where they fail.

Tracebacks and error groups treat it as the user's code. The history calls the same functions as the tasks, so that the errors of
yesterday and of now are in the same groups.
"""

from __future__ import annotations

from random import Random

from tidemill.errors import PermanentError

FORMER_RELEASE, RELEASE = "1.4.0", "1.5.0"
"""The release before, and the one that the demo runs."""


class CardRefused(PermanentError):
    """A card that cannot be charged, however often it is tried."""


class TotalMissing(PermanentError):
    """An invoice without a total."""


def send_order(order: int, dice: Random, share: float) -> str:
    """Send an order to the partner, whose server refuses this share of the calls."""
    if dice.random() < share:
        raise ConnectionError(f"the partner's server said 503 to order {order}")
    return "accepted"


def book_invoice(number: int, total: float | None) -> int:
    """Book an invoice, which needs a total."""
    if total is None:
        raise TotalMissing(f"invoice {number} has no total")
    return number


def charge(order: int, card: str) -> str:
    """Charge a card. A retry of an expired one would not help."""
    if card != "valid":
        raise CardRefused(f"order {order}: the card is {card}")
    return "charged"
