"""Tidemill: background jobs for Python that are simple to start, fast, and cannot be lost."""

from tidemill.app import App
from tidemill.client.access import acting
from tidemill.client.enqueue.bound_task import BoundTask, Recipe
from tidemill.client.jobs.handle import Job
from tidemill.clock import ManualClock
from tidemill.domain.access import Role
from tidemill.domain.breaker import Breaker
from tidemill.domain.calendar import BusinessCalendar, Exclude
from tidemill.domain.retry import Exponential, Fixed, Immediate, Linear, NoRetry
from tidemill.domain.schedule_rules import (
    All,
    Cron,
    Daily,
    Every,
    Manual,
    Monthly,
    MonthlyBusinessDay,
    Once,
    Weekly,
)
from tidemill.domain.states import JobState
from tidemill.domain.unique import Unique
from tidemill.engine.context import Context
from tidemill.errors import Cancel, PermanentError, Retry, Review, Snooze
from tidemill.tasks.events import Event
from tidemill.tasks.item_task import SKIP, Counts, ItemTask
from tidemill.tasks.limits import Limit, Rate
from tidemill.tasks.task import Task

__version__ = "0.1.0"

__all__ = [
    "SKIP",
    "All",
    "App",
    "BoundTask",
    "Breaker",
    "BusinessCalendar",
    "Cancel",
    "Context",
    "Counts",
    "Cron",
    "Daily",
    "Event",
    "Every",
    "Exclude",
    "Exponential",
    "Fixed",
    "Immediate",
    "ItemTask",
    "Job",
    "JobState",
    "Limit",
    "Linear",
    "Manual",
    "ManualClock",
    "Monthly",
    "MonthlyBusinessDay",
    "NoRetry",
    "Once",
    "PermanentError",
    "Rate",
    "Recipe",
    "Retry",
    "Review",
    "Role",
    "Snooze",
    "Task",
    "Unique",
    "Weekly",
    "acting",
]
