"""Tidemill: background jobs for Python that are simple to start, fast, and cannot be lost."""

from tidemill.domain.retry import Exponential, Fixed, Immediate, Linear, NoRetry
from tidemill.domain.unique import Unique
from tidemill.errors import Cancel, PermanentError, Retry, Review, Snooze

__version__ = "0.1.0"

__all__ = [
    "Cancel",
    "Exponential",
    "Fixed",
    "Immediate",
    "Linear",
    "NoRetry",
    "PermanentError",
    "Retry",
    "Review",
    "Snooze",
    "Unique",
]
