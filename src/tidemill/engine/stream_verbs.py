"""The verb of a context that writes streams: values for live readers, such as the tokens of a language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidemill.domain.streams import check_stream_name


class StreamOutlet(Protocol):
    """The receiver of items. Tasks use threads: it may be called concurrently."""

    def write_stream(self, name: str, items: Sequence[tuple[int, str]]) -> None:
        """Queue items of a stream, each with its index and its JSON."""
        ...


class OutputStream:
    """One stream of a running job, for its own task."""

    __slots__ = ("_context", "name")

    def __init__(self, context: StreamVerbs, name: str) -> None:
        self._context, self.name = context, name

    def write(self, *values: object) -> None:
        """Append values, which must be JSON: texts, numbers, booleans, None, lists and dicts.

        The call returns at once; the worker writes batches at most 50 ms later, and before the job ends. Coroutines call it the same
        way. An item larger than 64 KiB raises ``PayloadTooLarge``, and so does one beyond 100,000 items or 16 MiB of an execution.
        """
        self._context._write_stream(self.name, values)


class StreamVerbs:
    """Streams of the running job."""

    __slots__ = ()

    def stream(self, name: str) -> OutputStream:
        """A stream of this job that others read while it runs: ``ctx.stream("tokens").write("Hello")``.

        Every execution begins its streams again with index 1, and readers see the number of the execution with every item.
        """
        check_stream_name(name)
        return OutputStream(self, name)

    def _write_stream(self, name: str, values: Sequence[object]) -> None:
        raise NotImplementedError
