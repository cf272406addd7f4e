"""The states of nodes as people see them."""

from __future__ import annotations

from tidemill.domain.job import JobRow
from tidemill.domain.states import JobState

SKIPPED = "skipped"
SKIP_REASON = "skipped: "
"""The beginning of the reason of every cancelled job that could not or need not run."""


def node_label(job: JobRow) -> str:
    """The state of a node's job; ``skipped`` if it was cancelled because it could not or need not run."""
    if job.state is JobState.CANCELLED and (job.reason or "").startswith(SKIP_REASON):
        return SKIPPED
    return job.state.value


def fails_flow(job: JobRow) -> bool:
    """Whether the job has failed and its flow fails with it."""
    failed = job.state in (JobState.FAILED, JobState.TIMED_OUT, JobState.DEAD_LETTERED)
    return failed and not job.details.may_fail
