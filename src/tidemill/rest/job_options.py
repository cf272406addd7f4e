"""The options of the jobs that a schedule or a definition makes, as a body says them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tidemill.rest.job_models import Correlation, Tag, read_policy, span
from tidemill.rest.models import Body, Name, Seconds


class OptionsBody(Body):
    """What may be said of the jobs; what is left out is as the task says."""

    queue: Name | None = None
    priority: int | None = Field(None, ge=-100, le=100)
    timeout: Seconds | None = Field(None, description="Seconds; null: any time.")
    retry: dict[str, Any] | None = None
    tags: list[Tag] = Field([], max_length=100)
    metadata: dict[str, Any] = Field({})
    reference: tuple[str, str] | None = None
    correlation_id: Correlation | None = None
    expires: Seconds | None = Field(None, description="Seconds from each fire.")
    tier: Name | None = None
    audit: bool | None = None
    jitter: Seconds | None = None

    def options(self) -> dict[str, Any]:
        """Those that were said, as the client takes them."""
        said: dict[str, Any] = {}
        for name in OptionsBody.model_fields:
            if name not in self.model_fields_set:
                continue
            value = getattr(self, name)
            if name == "timeout":
                said[name] = span(value)
            elif name == "retry":
                said[name] = None if value is None else read_policy(value)
            elif value is not None:
                said[name] = span(value) if name in ("expires", "jitter") else value
        return said
