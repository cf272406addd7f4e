"""Answers of the asynchronous methods of ``app.archive``."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from typing import Any


def archive_stories() -> dict[str, tuple[Callable[[Any], Awaitable[Any]], Any]]:
    """The stories by the name of the method, each with a check of the result."""
    return {
        "Archive.arun": (lambda it: it.app.archive.arun(older_than="0s"), lambda run: run.archived == 1),
        "Archive.astatus": (lambda it: it.app.archive.astatus(), lambda status: status.enabled),
        "Archive.aexplain": (
            lambda it: it.app.archive.aexplain(it.archived()),
            lambda choice: choice.tier == "archive",
        ),
        "Archive.aget": (lambda it: it.app.archive.aget(it.archived()), lambda job: job.task == "send"),
        "Archive.asearch": (
            lambda it: (it.archived(), it.app.archive.asearch(task="send"))[1],
            lambda page: len(page.items) == 1,
        ),
        "Archive.arestore": (
            lambda it: it.app.archive.arestore([it.archived()]),
            lambda done: len(done.restored) == 1,
        ),
        "Archive.aexport": (
            lambda it: (it.archived(), it.app.archive.aexport(io.BytesIO()))[1],
            lambda count: count == 1,
        ),
        "Archive.aerase": (
            lambda it: it.app.archive.aerase(ids=[it.archived()]),
            lambda done: done.jobs == 1,
        ),
        "Archive.arebuild": (lambda it: it.app.archive.arebuild(), lambda places: places == {}),
    }
