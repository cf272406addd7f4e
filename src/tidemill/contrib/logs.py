"""Handlers and formatters for programs that configure logging themselves.

::

    logging.config.dictConfig({
        "version": 1,
        "formatters": {"json": {"()": "tidemill.contrib.logs.JsonLines"}},
        "handlers": {
            "file": {
                "class": "tidemill.contrib.logs.DailyFileHandler",
                "path": "logs/shop.log",
                "keep": 30,
                "formatter": "json",
            },
        },
        "root": {"handlers": ["file"], "level": "INFO"},
    })
"""

from __future__ import annotations

from tidemill.engine.log_files import DailyFileHandler
from tidemill.engine.log_formats import JsonLines, PlainLines

__all__ = ["DailyFileHandler", "JsonLines", "PlainLines"]
