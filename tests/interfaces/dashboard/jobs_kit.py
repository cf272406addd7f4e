"""Creation of jobs, and the job ids on a page."""

from __future__ import annotations

import re
from typing import Any

from tidemill import App, Job
from tidemill.client.enqueue.bound_task import BoundTask

ARGS: dict[str, dict[str, Any]] = {"send": {"to": "ada"}, "fail": {"words": "no"}, "look": {"what": "it"}}
TABLE = re.compile(r"<tbody>(.*?)</tbody>", re.DOTALL)


def put(
    app: App, task: str = "send", *, tenant: str = "acme", number: int = 1, **options: Any
) -> list[Job[Any]]:
    """Enqueue jobs of one task."""
    args = options.pop("args", ARGS.get(task, {}))
    with app.tenant(tenant):
        made: BoundTask[..., Any] = app.bound_task(task).using(**options)
        return [made.enqueue(**args) for _ in range(number)]


def shown(page: str) -> list[str]:
    """The job ids in the table of a page."""
    found = TABLE.search(page)
    return [] if found is None else re.findall(r'data-href="/jobs/([0-9a-f-]{36})', found[1])


def ids(jobs: list[Job[Any]]) -> list[str]:
    return [str(job.id) for job in jobs]
