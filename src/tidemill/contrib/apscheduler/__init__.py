"""APScheduler's API on Tidemill: schedulers whose jobs are stored, and run once in a cluster.

Change ``from apscheduler.schedulers.background import BackgroundScheduler`` to
``from tidemill.contrib.apscheduler import BackgroundScheduler``.
"""

from __future__ import annotations

from tidemill.contrib.apscheduler.scheduler import (
    AsyncIOScheduler,
    BackgroundScheduler,
    BlockingScheduler,
    ConflictingIdError,
    JobLookupError,
    ScheduledJob,
)
from tidemill.contrib.apscheduler.triggers import CronTrigger, DateTrigger, IntervalTrigger

__all__ = [
    "AsyncIOScheduler",
    "BackgroundScheduler",
    "BlockingScheduler",
    "ConflictingIdError",
    "CronTrigger",
    "DateTrigger",
    "IntervalTrigger",
    "JobLookupError",
    "ScheduledJob",
]
