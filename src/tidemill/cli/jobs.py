"""``tidemill jobs``: the group; other modules define its verbs."""

from __future__ import annotations

import click

from tidemill.cli.groups import InOrder
from tidemill.cli.job_actions import (
    approve,
    cancel,
    change,
    delete,
    reject,
    rerun,
    reschedule,
    retry,
    run_now,
)
from tidemill.cli.job_runs import enqueue, watch
from tidemill.cli.job_streams import stream
from tidemill.cli.job_views import count, list_jobs, logs, show, why


@click.group(cls=InOrder)
def jobs() -> None:
    """List, enqueue, watch, cancel and retry jobs.

    An ID is a job's id, or a unique prefix or suffix of it with at least 6 characters.
    """


for _verb in (
    list_jobs,
    count,
    show,
    enqueue,
    watch,
    why,
    logs,
    stream,
    cancel,
    change,
    run_now,
    reschedule,
    retry,
    approve,
    reject,
    rerun,
    delete,
):
    jobs.add_command(_verb)
