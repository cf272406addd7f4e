"""Loggers of tasks. Tidemill stamps the job's id on every record inside a job."""

from __future__ import annotations

import logging


def get_task_logger(name: str) -> logging.Logger:
    """Return the logger of a task module."""
    return logging.getLogger(name)
