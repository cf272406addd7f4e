"""An archived job, read back from its document as the job it was."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from tidemill.domain.job import Job
from tidemill.domain.retention import ArchivedJob

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@lru_cache(maxsize=1)
def _reader() -> TypeAdapter[Job]:
    from pydantic import TypeAdapter  # declaring a task does not load it

    return TypeAdapter(Job)


def read_archived(kept: ArchivedJob) -> Job:
    """The job as it was when it left the live tables."""
    return _reader().validate_python(json.loads(kept.document)["job"])
