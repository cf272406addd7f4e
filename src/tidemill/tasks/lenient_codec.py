"""Codec for tasks with ``extra="ignore"``, which drops unknown arguments."""

from __future__ import annotations

import json
from typing import Any

from tidemill.errors import BadArguments
from tidemill.tasks.codec import ArgumentsCodec


class LenientArguments(ArgumentsCodec):
    """Drops unknown arguments when a job is read. On enqueue, arguments are validated as for any other task."""

    __slots__ = ()

    def load(self, text: str) -> dict[str, Any]:
        try:
            return super().load(text)
        except BadArguments:
            given: Any = json.loads(text)
            known = {name: value for name, value in given.items() if name in self.names}
            if len(known) == len(given):
                raise
            return super().load(json.dumps(known))
