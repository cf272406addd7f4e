"""``tidemill jobs``: the group; its verbs stand in the files beside it."""

from __future__ import annotations

import click

from tidemill.cli.jobs_act import approve, cancel, delete, reject, retry
from tidemill.cli.jobs_read import list_jobs, logs, show, why
from tidemill.cli.jobs_run import enqueue, watch


class InOrder(click.Group):
    """Lists its verbs in the order of a job's life instead of the alphabet's."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=InOrder)
def jobs() -> None:
    """Find jobs, enqueue them, follow them, decide about them."""


for _verb in (list_jobs, show, enqueue, watch, why, logs, cancel, retry, approve, reject, delete):
    jobs.add_command(_verb)
