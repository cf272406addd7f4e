"""The triggers of the public API, with the clock for ``preview()`` without a start.

The domain reads no clock. The names of ``tidemill`` come from this module, so that a program that uses a trigger has one.
"""

from __future__ import annotations

from tidemill.clock import SystemClock
from tidemill.domain.schedule_rules import (
    After,
    All,
    Cron,
    Daily,
    Every,
    Manual,
    Monthly,
    MonthlyBusinessDay,
    On,
    Once,
    Trigger,
    Weekly,
)

__all__ = [
    "After", "All", "Cron", "Daily", "Every", "Manual", "Monthly", "MonthlyBusinessDay", "On", "Once", "Trigger", "Weekly",
]  # fmt: skip

Trigger.present = SystemClock().now
