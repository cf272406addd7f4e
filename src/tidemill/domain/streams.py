"""Streams of a job: values that a running job writes in order, and that readers follow live.

Every execution of a job begins its streams again: items are ordered by the number of their execution, then by their index. The writer
assigns both, so a batch that is written twice is stored once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from tidemill.domain.bounds import check_key
from tidemill.errors import BadFilter, BadSettings, PayloadTooLarge, UsageError

MOST_ITEM = 64 * 1024
"""Bytes of one item as JSON."""

MOST_ITEMS, MOST_BYTES = 100_000, 16 * 1024 * 1024
"""Items and bytes that one execution may write to all its streams."""

PAGE = 1_000
"""Maximum number of items that a store returns at once."""

TOPICS = "stream:"
"""Prefix of the wake-up topics of streams."""

_POSITION = re.compile(r"(\d{1,18})-(\d{1,18})")


class StreamPosition(NamedTuple):
    """A place in a stream: the number of an execution, and the index ``n`` of an item of it. Both begin with 1."""

    execution: int = 0
    n: int = 0

    def text(self) -> str:
        """The position as an id of an event, such as ``1-300``."""
        return f"{self.execution}-{self.n}"


START = StreamPosition()
"""The position before the first item."""


def read_position(text: str) -> StreamPosition:
    """Read a position as ``text`` wrote it.

    >>> read_position("2-15")
    StreamPosition(execution=2, n=15)
    """
    match = _POSITION.fullmatch(text)
    if match is None:
        raise BadFilter(f"{text!r} is not a position in a stream; give one such as 1-300", field="after")
    return StreamPosition(int(match[1]), int(match[2]))


class StreamEntry(NamedTuple):
    """One item of a stream as its row, with the fence of its writer."""

    job_id: UUID
    number: int
    worker: UUID | None
    name: str
    n: int
    data: str

    @property
    def position(self) -> StreamPosition:
        """Its place in the stream."""
        return StreamPosition(self.number, self.n)


@dataclass(frozen=True, slots=True)
class StreamItem:
    """One value of a stream.

    ``execution`` is the number of the execution that wrote it, and ``index`` its place among the items of that execution. A reader that
    sees a larger ``execution`` can tell that the job ran again and that its stream restarted with index 1.
    """

    execution: int
    index: int
    value: Any

    @property
    def id(self) -> str:
        """The position of the item, to resume after it: ``job.stream(name, after=item.id)``."""
        return StreamPosition(self.execution, self.index).text()


def item_of(entry: StreamEntry) -> StreamItem:
    """The item as its readers see it."""
    return StreamItem(entry.number, entry.n, json.loads(entry.data))


def topic_of(id: UUID) -> str:
    """The wake-up topic of a job's streams. Jobs share 256 topics, because listeners remember every topic they received."""
    return f"{TOPICS}{id.int & 0xFF:02x}"


def check_stream_name(name: object) -> None:
    """Refuse a name that is not a short text."""
    if not isinstance(name, str) or not name:
        raise BadSettings(f"a stream's name is {name!r}; give a text such as 'tokens'", option="name")
    check_key("a stream's name", name)


class StreamVolume:
    """The items that one execution has written so far; it numbers the next ones and limits them."""

    __slots__ = ("_bytes", "_items", "_next")

    def __init__(self) -> None:
        self._items = self._bytes = 0
        self._next: dict[str, int] = {}

    def encode(self, name: str, values: Iterable[object]) -> list[tuple[int, str]]:
        """Encode values as the next items of a stream, all or none."""
        texts = [_encoded(name, value) for value in values]
        size = sum(map(len, texts))
        if self._items + len(texts) > MOST_ITEMS or self._bytes + size > MOST_BYTES:
            raise PayloadTooLarge(
                f"the streams of this execution are full: {self._items:,} items with {self._bytes:,} bytes are written, and the "
                f"limits are {MOST_ITEMS:,} items and {MOST_BYTES:,} bytes; write larger pieces, or return the value as the result",
                size=self._bytes + size,
                limit=MOST_BYTES,
            )
        first = self._next.get(name, 1)
        self._next[name] = first + len(texts)
        self._items += len(texts)
        self._bytes += size
        return list(enumerate(texts, start=first))


def _encoded(name: str, value: object) -> str:
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"stream {name!r} cannot take a value of type {type(value).__name__}: {error}; write JSON values such as texts"
        ) from None
    if len(text) > MOST_ITEM:
        raise PayloadTooLarge(
            f"an item of stream {name!r} has {len(text):,} bytes, and the limit is {MOST_ITEM:,}; write it in smaller pieces",
            size=len(text),
            limit=MOST_ITEM,
        )
    return text
