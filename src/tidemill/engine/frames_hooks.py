"""Messages about the hooks of fires, between a supervisor and a runner.

The supervisor sends ``apply`` with jobs of one schedule and gets one answer: the jobs, or an error. It sends ``enqueued``
for jobs that it has written, which has no answer. Each message is at most ``frames.LIMIT`` bytes long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.job import NewJob
from tidemill.engine.fire_hooks import ENQUEUED, first_state
from tidemill.engine.frames import Data, id_to_data, instant_from_data, instant_to_data
from tidemill.engine.frames_follow_ups import job_from_data, job_to_data
from tidemill.tasks.events import Event

VERSION = 1
"""The version of these messages. A supervisor asks only runners that offer its own version."""

EVENTS = 500
"""Maximum jobs in one message about written jobs."""


JOBS, TEXT = 100, 2 * 1024 * 1024
"""Maximum jobs in one request, and characters of their arguments: with the largest metadata they fit into a message."""


def parts_of(jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    """Divide the jobs of a schedule, which may have missed many fires, into requests of bounded size."""
    part: list[NewJob] = []
    size = 0
    for job in jobs:
        if part and (len(part) >= JOBS or size + len(job.args) > TEXT):
            yield part
            part, size = [], 0
        part.append(job)
        size += len(job.args)
    yield part


def apply_to_data(jobs: Sequence[NewJob]) -> Data:
    """Encode the request to apply the hooks to jobs of one schedule, or its answer."""
    return {"kind": "apply", "jobs": [job_to_data(job) for job in jobs]}


def jobs_from_data(data: Data) -> tuple[NewJob, ...]:
    """Decode the jobs of a request or an answer."""
    return tuple(job_from_data(job) for job in data["jobs"])


def enqueued_to_data(jobs: Sequence[NewJob], now: datetime) -> Iterator[Data]:
    """Encode what an event needs of each written job, in messages of bounded size."""
    for at in range(0, len(jobs), EVENTS):
        some = [
            [id_to_data(job.id), job.task, job.tenant, first_state(job, now).value]
            for job in jobs[at : at + EVENTS]
        ]
        yield {"kind": "enqueued", "at": instant_to_data(now), "jobs": some}


def events_from_data(data: Data) -> list[Event]:
    """Decode the events of written jobs."""
    at = instant_from_data(data["at"])
    if at is None:
        raise ValueError("an event needs a time")
    return [Event(ENQUEUED, at, UUID(id), task, tenant, state) for id, task, tenant, state in data["jobs"]]
