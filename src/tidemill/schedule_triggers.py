"""The triggers of the public API, with the clock for ``preview()`` without a start.

The domain reads no clock. Whoever imports a trigger from ``tidemill`` imports it through this module, which provides one.
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
