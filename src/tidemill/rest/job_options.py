"""Job options in the request bodies of schedules and definitions."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tidemill.rest.job_models import Correlation, Reference, Tag, read_policy, span
from tidemill.rest.models import BodyModel, Name, Seconds


class OptionsBody(BodyModel):
    """Options of the jobs; omitted ones use the task's options."""

    queue: Name | None = None
    priority: int | None = Field(None, ge=-100, le=100)
    timeout: Seconds | None = Field(None, description="Seconds; null: no limit.")
    retry: dict[str, Any] | None = None
    tags: list[Tag] = Field([], max_length=100)
    metadata: dict[str, Any] = Field({})
    reference: Reference | None = None
    correlation_id: Correlation | None = None
    expires: Seconds | None = Field(None, description="Seconds after each fire.")
    audit: bool | None = None
    jitter: Seconds | None = None
    record: Literal["full", "last", "none"] | None = None

    def options(self) -> dict[str, Any]:
        """Return the options that were given, as arguments of the client."""
        options: dict[str, Any] = {}
        for name in OptionsBody.model_fields:
            if name not in self.model_fields_set:
                continue
            value = getattr(self, name)
            if name == "timeout":
                options[name] = span(value)
            elif name == "retry":
                options[name] = None if value is None else read_policy(value)
            elif value is not None:
                options[name] = span(value) if name in ("expires", "jitter") else value
        return options
