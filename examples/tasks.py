"""Tasks of several kinds, run in this process: python examples/tasks.py [store URL]"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tidemill import (
    App,
    Context,
    Counts,
    Execution,
    Exponential,
    ItemTask,
    Job,
    ManualClock,
    Review,
    Task,
    Unique,
)

app = App(sys.argv[1] if len(sys.argv) > 1 else "memory://", clock=ManualClock(), migrate=True)


@dataclass
class Document:
    name: str
    pages: int


@app.task(queue="documents", retry=Exponential(max_attempts=5))
async def read_document(ctx: Context, document: Document) -> dict[str, int]:
    """Three stages with progress, then a child job."""
    for page in ctx.track(range(document.pages), message="reading"):
        with ctx.stage("extract"):
            ctx.log("read a page", page=page)
            await asyncio.sleep(0)
    index_document.enqueue(name=document.name)
    return {"pages": document.pages}


@app.task(unique=Unique(by=("name",), within=timedelta(minutes=5)))
def index_document(name: str) -> None: ...


@app.task
def publish(name: str) -> dict[str, str]:
    raise Review(f"may {name} be published?", output={"name": name})


class CallPartner(Task[str, int]):
    """No retry for what is not there; a longer wait when the partner is busy."""

    def run(self, url: str) -> int:
        raise ConnectionError(f"503 from {url}")

    def should_retry(self, execution: Execution) -> bool:
        return execution.error is None or "404" not in execution.error.message

    def retry_delay(self, execution: Execution) -> timedelta | None:
        busy = execution.error is not None and "503" in execution.error.message
        return timedelta(seconds=10) * 2**execution.attempt if busy else None


class Thumbnails(ItemTask[str, dict[str, int]]):
    """Goes through a folder; a broken picture does not stop it."""

    def items(self, folder: str) -> Iterator[str]:
        yield from (f"{folder}/{number}.png" for number in range(5))

    def process(self, item: str, index: int, ctx: Context) -> None:
        if index == 3:
            raise ValueError(f"{item} is no picture")

    def summary(self, counts: Counts) -> dict[str, int]:
        return {"made": counts.processed, "broken": counts.failed}


call_partner = app.task(CallPartner)
thumbnails = app.task(Thumbnails)


def main() -> None:
    with app.tenant("acme"):
        jobs: list[Job[Any]] = [
            read_document.using(tags=["upload"], correlation_id="order-7").enqueue(
                document=Document("cv", 3)
            ),
            publish.enqueue(name="cv"),
            call_partner.enqueue(url="https://partner.example/api"),
            thumbnails.enqueue(folder="/pictures"),
        ]
        app.testing().run_until_idle(max_time=timedelta(hours=1))
        for job in jobs:
            job.refresh()
            print(f"{job.task:<14}{job.status:<15}attempt {job.attempt}  {job.value or job.reason}")
        children = [child.task for child in jobs[0].children()]
        print(f"read_document enqueued {children}, all of correlation {jobs[0].correlation_id}")
        print(f"approved: {jobs[1].approve('looks good').value}")


if __name__ == "__main__":
    main()
    app.close()
