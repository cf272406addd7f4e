"""``tidemill flows check``: find unfinished durable functions that new code would replay in another way.

Intended for use before a deployment.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click

from tidemill.cli.app_argument import app_named
from tidemill.cli.context import CommandContext, tenant_option
from tidemill.cli.screen import Column, print_json, print_lines, print_table, thousands
from tidemill.domain.filters import JobFilter, Sort
from tidemill.domain.job import JobRow
from tidemill.domain.states import LIVE
from tidemill.engine.lifespan import OwnLoopLifetime
from tidemill.engine.replay_check import Replayed, has_steps, replay
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

_PAGE = 500


@click.command("check")
@app_named
@click.option("--store", "url", metavar="URL", help="Check the jobs in this store instead of the app's own.")
@click.option("--task", "task", metavar="NAME", help="Only jobs of this task.")
@click.option(
    "--sample",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    metavar="N",
    help="Replay at most N jobs of each task, oldest first.",
)
@tenant_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check_flows(app: str, url: str | None, task: str | None, sample: int, tenant: str, as_json: bool) -> None:
    """Replay unfinished durable functions with the code of APP.

    Nothing is written. Each replay ends at the first step without a record. The exit code is 1 if a job would take another way than its
    records: recorded steps are not reached, are called in another way, or the job would not resume.
    """
    with CommandContext(app, None, as_json=as_json) as context:
        other = None if url is None else open_store(url)
        try:
            replays = list(_replays(context, other or context.store, tenant, task, sample))
        finally:
            if other is not None:
                other.close()
    _show(replays, as_json=as_json)
    if any(one.is_changed for one in replays):
        click.get_current_context().exit(1)


def _replays(
    context: CommandContext, store: Store, tenant: str, task: str | None, sample: int
) -> Iterator[Replayed]:
    registry, client = context.registry, context.client
    names = registry.names() if task is None else [registry.get(task).name]
    life = OwnLoopLifetime(client.hooks)
    try:
        for name in names:
            begun = (job for job in _live(store, tenant, name) if has_steps(store, job))
            for job in islice(begun, sample):
                life.enter()
                yield replay(store, registry.get(name), job, client.clock, life)
    finally:
        life.exit()


def _live(store: Store, tenant: str, task: str) -> Iterator[JobRow]:
    where, after = JobFilter(tenant, states=LIVE, tasks=frozenset({task})), None
    while True:
        page = store.jobs(where, sort=Sort.OLDEST, limit=_PAGE, after=after)
        yield from page.items
        if page.next is None:
            return
        after = page.next


def _show(replays: list[Replayed], *, as_json: bool) -> None:
    changed = [one for one in replays if one.is_changed]
    if as_json:
        jobs = [
            {
                "job": str(one.job),
                "task": one.task,
                "runs": one.runs,
                "not_reached": one.not_reached,
                "changed": one.changed,
                "refused": one.refused,
            }
            for one in changed
        ]
        print_json({"replayed": len(replays), "jobs": jobs})
        return
    if not changed:
        print_lines([(f"{thousands(len(replays))} unfinished functions replay as recorded", "")])
        return
    columns = (Column("job"), Column("task", flexible=True), Column("finding", flexible=True))
    print_table(columns, [[str(one.job), one.task, one.words()] for one in changed], empty="")
    print_lines([(f"{thousands(len(changed))} of {thousands(len(replays))} functions would change", "")])
